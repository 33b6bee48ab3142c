#include "server/api/fields/notices.h"

#include <algorithm>
#include <string_view>

#include "base/log.h"

namespace motley::server {
namespace {

constexpr std::size_t max_logged = 256;
// Proxies limit headers to a few thousand bytes.
constexpr std::size_t max_header_bytes = 1024;

std::string header_value(const std::vector<std::string>& places) {
  std::string value;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string& place = places[i];
    if (i == serving::max_noticed || value.size() + place.size() > max_header_bytes) {
      value += ", ...";
      break;
    }
    if (!value.empty()) value += ", ";
    const std::size_t begin = value.size();
    value += place;
    std::replace_if(
        value.begin() + static_cast<std::ptrdiff_t>(begin), value.end(),
        [](char c) { return c <= ' ' || c > '~' || c == ','; }, '?');
  }
  return value;
}

// One place for all entries of a list: "messages[].name".
std::string without_numbers(std::string_view place) {
  std::string name;
  bool inside = false;
  for (const char c : place) {
    inside = c == '[' || (inside && c != ']');
    if (!inside || c == '[') name += c;
  }
  return name;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> notice_headers(const serving::Notices& notices) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (!notices.ignored.empty())
    headers.emplace_back("x-motley-ignored", header_value(notices.ignored));
  if (!notices.unenforced.empty())
    headers.emplace_back("x-motley-unenforced", header_value(notices.unenforced));
  return headers;
}

void IgnoredFieldsLog::say(const std::vector<std::string>& ignored) {
  for (const std::string& each : ignored) {
    const std::string field = without_numbers(each);
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      if (full_ || logged_.contains(field)) continue;
      full = full_ = logged_.size() == max_logged;
      if (!full) logged_.insert(field);
    }
    if (full) {
      log::info("request.ignored_full",
                {{"fields", max_logged}, {"message", "further fields are not logged"}});
    } else {
      log::info("request.ignored", {{"field", field}});
    }
  }
}

}  // namespace motley::server
