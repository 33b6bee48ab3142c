#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::server {

// The keys that open the API; none: it is open to all.
class ApiKeys {
 public:
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // A key a line; empty lines and those that begin with # are skipped. A file without keys is
  // refused: it would open what was meant to be closed.
  static Result<ApiKeys> load(const std::filesystem::path& file);

  bool required() const { return !keys_.empty(); }
  // By an Authorization header, "Bearer KEY", or an X-Api-Key header; either may be empty. The time
  // it takes does not depend on how much of a key was right.
  bool allow(std::string_view authorization, std::string_view api_key = {}) const;

 private:
  bool holds(std::string_view given) const;

  std::vector<std::string> keys_;
};

}  // namespace motley::server
