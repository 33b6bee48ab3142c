#pragma once

#include <filesystem>
#include <optional>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/requests/adapter_spec.h"

namespace motley::server {

// Bodies of these requests hold only a few names.
inline constexpr std::size_t max_adapter_request_bytes = 64 << 10;
// Of a list of requests to abort.
inline constexpr std::size_t max_request_ids_bytes = 1 << 20;

struct LoadAdapterRequest {
  engine::AdapterSpec spec;  // with the path as the client wrote it
  bool replace = false;
};

Result<LoadAdapterRequest> read_load_adapter_request(const json::Value& body);
// `on_replace`: whether running requests switch to the new content.
Result<bool> read_on_replace(const std::optional<std::string>& text);
// The adapter's name.
Result<std::string> read_unload_adapter_request(const json::Value& body);

// Resolves a client's path to a folder, without symbolic links. Relative paths begin at `root`; a
// folder outside of it, or one with a file that lies outside, is refused. Without a root every
// folder is accepted.
Result<std::filesystem::path> resolve_adapter_path(
    const std::filesystem::path& path, const std::optional<std::filesystem::path>& root);

// Puts the resolved folder into a client's spec. Files that are opened later must lie below the
// root as well, so a link that is exchanged after this check leads nowhere.
Result<void> place_adapter(engine::AdapterSpec& spec,
                           const std::optional<std::filesystem::path>& root);

}  // namespace motley::server
