#pragma once

#include <filesystem>
#include <optional>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// Parses a JSON file of a model's folder; nothing if it does not exist.
Result<std::optional<json::Value>> read_json_file(const std::filesystem::path& path);

}  // namespace motley::text
