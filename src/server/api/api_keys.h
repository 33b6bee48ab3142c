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
  // Of an Authorization header, "Bearer KEY". The time it takes says nothing of how much of a key
  // was right.
  bool allow(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace motley::server
