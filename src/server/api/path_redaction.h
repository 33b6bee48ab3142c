#pragma once

#include <filesystem>

#include "base/error.h"

// Where files lie on the server's machine is no client's business: messages name them without their
// folders.
namespace motley::server {

// An error of an adapter's load as the client may see it: the path that it sent in place of the one
// that this was resolved to, and of any other path its last name.
Error without_server_paths(const Error& error, const std::filesystem::path& resolved,
                           const std::filesystem::path& sent);

// The same where the client sent no path and files stand in an error's place alone.
Error without_server_paths(const Error& error);

}  // namespace motley::server
