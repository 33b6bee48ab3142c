#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::server {

// The query of a request's target: NAME=VALUE pairs with & between, coded as forms are (%XX, and +
// for a space). It is kept as it came, so that many small pairs take no more memory than the head.
class Query {
 public:
  Query() = default;
  // Refuses a % that begins no escape.
  static Result<Query> parse(std::string_view text);

  // The value of the pair of this name, decoded: empty where there is no =, nothing without such a
  // pair. Two of one name are an error, because proxies and servers differ in which they read, and
  // so is a value that is no UTF-8.
  Result<std::optional<std::string>> value(std::string_view name) const;

 private:
  explicit Query(std::string_view text) : text_(text) {}

  std::string text_;
};

}  // namespace motley::server
