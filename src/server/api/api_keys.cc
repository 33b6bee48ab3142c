#include "server/api/api_keys.h"

#include <algorithm>
#include <cctype>

#include "base/cat.h"
#include "base/system/files.h"

namespace motley::server {
namespace {

constexpr std::size_t max_bytes = 1 << 20;
constexpr std::string_view scheme = "bearer ";

// Reads all of `given`, whether it matches or not.
bool equal_in_constant_time(std::string_view key, std::string_view given) {
  unsigned difference = key.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
  return difference == 0;
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::filesystem::path& file) {
  MOTLEY_TRY(const std::string text, read_text(file, max_bytes));
  ApiKeys keys;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    // Header values have no trailing blanks, so a key with one would never match.
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (!line.empty() && !line.starts_with('#')) keys.keys_.emplace_back(line);
    begin = end + 1;
  }
  if (keys.keys_.empty())
    return Error(ErrorCode::bad_file, "a file of keys that holds none", printable(file.string()),
                 "write a key a line, or leave the option out");
  return keys;
}

bool ApiKeys::holds(std::string_view given) const {
  bool found = false;
  for (const std::string& key : keys_) found |= equal_in_constant_time(key, given);
  return found;
}

bool ApiKeys::allow(std::string_view authorization, std::string_view api_key) const {
  if (!required() || holds(api_key)) return true;
  const bool bearer =
      authorization.size() >= scheme.size() &&
      std::ranges::equal(authorization.substr(0, scheme.size()), scheme,
                         [](char given, char wanted) {
                           return std::tolower(static_cast<unsigned char>(given)) == wanted;
                         });
  return bearer && holds(authorization.substr(scheme.size()));
}

}  // namespace motley::server
