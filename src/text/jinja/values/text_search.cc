#include "text/jinja/values/text_search.h"

#include <cstring>

namespace motley::text::jinja {

std::size_t find_first(std::string_view text, std::string_view needle, std::size_t from) {
  const void* const found =
      memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return nowhere;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

Result<BackwardSearch> BackwardSearch::prepare(Runtime& runtime, std::string_view needle) {
  BackwardSearch search(needle);
  MOTLEY_TRY_VOID(runtime.step(1 + (needle.size() / 16)));
  MOTLEY_TRY_VOID(runtime.reserve(needle.size(), sizeof(std::uint32_t)));
  search.borders_.resize(needle.size());
  std::size_t border = 0;
  for (std::size_t at = 1; at < needle.size(); ++at) {
    while (border > 0 && search.from_end(at) != search.from_end(border))
      border = search.borders_[border - 1];
    if (search.from_end(at) == search.from_end(border)) ++border;
    search.borders_[at] = static_cast<std::uint32_t>(border);
  }
  return search;
}

Result<std::size_t> BackwardSearch::find_last(Runtime& runtime, std::string_view text) const {
  if (needle_.empty()) return text.size();
  std::size_t matched = 0;
  std::size_t at = text.size();
  std::size_t found = nowhere;
  while (at > 0 && found == nowhere) {
    --at;
    while (matched > 0 && text[at] != from_end(matched)) matched = borders_[matched - 1];
    if (text[at] == from_end(matched)) ++matched;
    if (matched == needle_.size()) found = at;
  }
  MOTLEY_TRY_VOID(runtime.step(1 + ((text.size() - at) / 16)));
  return found;
}

}  // namespace motley::text::jinja
