#pragma once

#include <filesystem>
#include <optional>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/engine.h"

namespace motley::server {

struct LoadAdapterRequest {
  engine::AdapterSpec spec;  // its path as the client wrote it
  bool replace = false;
};

Result<LoadAdapterRequest> read_load_adapter_request(const json::Value& body);
// The adapter's name.
Result<std::string> read_unload_adapter_request(const json::Value& body);

// The folder that a client's path means, with no symbolic link left in it. Relative paths begin at
// `root`; a folder outside it, or one with a file that lies outside it, is refused. Without a root
// every folder is good.
Result<std::filesystem::path> resolve_adapter_path(
    const std::filesystem::path& path, const std::optional<std::filesystem::path>& root);

}  // namespace motley::server
