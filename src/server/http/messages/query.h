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
  explicit Query(std::string_view text);

  // Whether each % begins an escape. Requests whose query is not are refused before it is read.
  bool well_formed() const { return well_formed_; }

  // The value of the pair of this name, decoded: empty where there is no =, nothing without such a
  // pair. Two of one name are an error, because proxies and servers differ in which they read, and
  // so is a value that is no text.
  Result<std::optional<std::string>> value(std::string_view name) const;

 private:
  std::string text_;
  bool well_formed_ = true;
};

}  // namespace motley::server
