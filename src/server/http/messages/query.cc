#include "server/http/messages/query.h"

#include <algorithm>

#include "base/cat.h"
#include "server/http/wire/percent_encoding.h"

namespace motley::server {
namespace {

std::string decoded(std::string_view coded) {
  std::string spaced(coded);
  std::ranges::replace(spaced, '+', ' ');
  return percent_decoded(spaced).text;
}

}  // namespace

Query::Query(std::string_view text)
    : text_(text), well_formed_(percent_decoded(text).well_formed) {}

Result<std::optional<std::string>> Query::value(std::string_view name) const {
  std::optional<std::string> found;
  std::string_view rest = text_;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (pair.empty() || decoded(pair.substr(0, equals)) != name) continue;
    if (found)
      return Error(ErrorCode::invalid_argument, "two values in the query", std::string(name),
                   "give one");
    found = decoded(pair.substr(std::min(equals + 1, pair.size())));
  }
  if (found && !is_text(*found))
    return Error(ErrorCode::invalid_argument, "a value in the query that is no UTF-8, or holds NUL",
                 std::string(name), "code it as UTF-8");
  return found;
}

}  // namespace motley::server
