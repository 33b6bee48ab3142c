#pragma once

#include <string>
#include <string_view>

namespace motley::server {

inline constexpr std::string_view model_prefix = "/v1/models/";

// A path as routes write it: clients that join a base URL and a path leave slashes twice or at the
// end. Escapes and dots stay what they are.
inline std::string plain_path(std::string_view path) {
  std::string plain;
  for (const char c : path) {
    if (c != '/' || !plain.ends_with('/')) plain += c;
  }
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

}  // namespace motley::server
