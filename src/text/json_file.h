#pragma once

#include <filesystem>
#include <optional>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// The JSON of a file of a model's folder; nothing where there is no such file.
Result<std::optional<json::Value>> read_json_file(const std::filesystem::path& path);

}  // namespace motley::text
