#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::cli {

// "http://host:port/prefix", taken apart. TLS is not spoken.
struct ServerUrl {
  std::string host;
  std::string port = "80";
  std::string prefix;  // of all paths, without a slash at its end

  // As errors name it.
  std::string shown() const { return "http://" + host + ":" + port; }

  static Result<ServerUrl> parse(std::string_view text);
};

}  // namespace motley::cli
