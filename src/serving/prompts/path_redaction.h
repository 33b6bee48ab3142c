#pragma once

#include <filesystem>

#include "base/error.h"

// Clients must not see where files are on the server: messages name them without their folders.
namespace motley::serving {

// The error of an adapter's load as shown to the client: with the path that it sent in place of the
// resolved one, and other paths reduced to their last component.
Error without_server_paths(const Error& error, const std::filesystem::path& resolved,
                           const std::filesystem::path& sent);

// The same if the client sent no path and only the error's place is a path.
Error without_server_paths(const Error& error);

}  // namespace motley::serving
