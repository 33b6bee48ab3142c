#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "server/http/messages/message.h"

namespace motley::server {

// The parameters of a route that takes them in its query or in a JSON body, where the body may be
// left out. The query counts more. Names that a route does not ask for are ignored.
class Parameters {
 public:
  // The request must outlive it.
  static Result<Parameters> read(const HttpRequest& request);

  // Nothing if it is not given, or null.
  Result<std::optional<std::string>> text(std::string_view name) const;
  // Of a query "true", "false", "1" or "0", in letters of any size.
  Result<std::optional<bool>> flag(std::string_view name) const;
  // Of the body alone; empty if it is not given.
  Result<std::vector<std::string>> texts(std::string_view name) const;

 private:
  const json::Value* member(std::string_view name) const;

  const Query* query_ = nullptr;
  json::Value body_;
};

}  // namespace motley::server
