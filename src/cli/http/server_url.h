#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::cli {

// The parts of "http://host:port/prefix". TLS is not supported.
struct ServerUrl {
  std::string host;
  std::string port = "80";
  std::string prefix;  // of all paths, without a trailing slash

  // As shown in errors.
  std::string shown() const { return "http://" + host + ":" + port; }

  static Result<ServerUrl> parse(std::string_view text);
};

}  // namespace motley::cli
