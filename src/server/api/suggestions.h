#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace motley::server {

// What to do about a path without a route, of which there are these.
std::string path_advice(std::string_view path, std::span<const std::string_view> paths);

// What to do about a name that is neither the base's nor one of the adapters that the client may
// use.
std::string model_advice(std::string_view name, std::string_view base,
                         std::span<const engine::AdapterInfo> adapters);

// The error about such a name.
Error unknown_model(std::string_view name, std::string_view base,
                    std::span<const engine::AdapterInfo> adapters);

}  // namespace motley::server
