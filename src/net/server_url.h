#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::net {

// The path in "unix:PATH" and in "unix:///PATH". What follows two slashes is a host, which a Unix
// socket has none of: "unix://run/x" names no path.
std::optional<std::string_view> unix_socket_path(std::string_view url);

// Where a server is: "http://host:port/prefix", or "unix:/path/of/its/socket". TLS is not
// supported.
struct ServerUrl {
  std::string host;  // IPv6 without brackets
  std::string port = "80";
  std::string prefix;                      // of all paths, without a trailing slash
  std::filesystem::path unix_socket = {};  // in place of all that; empty: none

  static Result<ServerUrl> parse(std::string_view text);

  // As requests name the server.
  std::string authority() const;
  // As shown in errors.
  std::string shown() const;
  // "can't reach the server: connection refused".
  Error failed(std::string_view doing, std::string_view why) const;
};

}  // namespace motley::net
