#pragma once

#include <string>
#include <string_view>

namespace motley::server {

// A path as in the table of routes: duplicate and trailing slashes, which clients produce when they
// join a base URL and a path, are removed. Escapes and dots stay as they are.
inline std::string plain_path(std::string_view path) {
  std::string plain;
  for (const char c : path) {
    if (c != '/' || !plain.ends_with('/')) plain += c;
  }
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

}  // namespace motley::server
