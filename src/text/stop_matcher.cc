#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"

namespace motley::text {
namespace {

std::vector<std::size_t> borders_of(std::string_view text) {
  std::vector<std::size_t> borders(text.size() + 1, 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::size_t border = borders[i];
    while (border > 0 && text[border] != text[i]) border = borders[border];
    borders[i + 1] = text[border] == text[i] ? border + 1 : 0;
  }
  return borders;
}

}  // namespace

Result<StopMatcher> StopMatcher::make(std::vector<std::string> stops, bool include) {
  std::vector<Stop> made;
  for (std::string& stop : stops) {
    if (stop.empty())
      return Error(ErrorCode::invalid_argument, cat("stop string ", made.size(), " is empty"),
                   "stop", "leave it out");
    std::vector<std::size_t> borders = borders_of(stop);
    made.push_back({.text = std::move(stop), .borders = std::move(borders)});
  }
  return StopMatcher(std::move(made), include);
}

StopMatcher::Output StopMatcher::push(std::string_view piece, bool may_end) {
  for (std::size_t at = 0; at < piece.size(); ++at) {
    std::optional<std::size_t> complete;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      while (stop.matched > 0 && stop.text[stop.matched] != piece[at])
        stop.matched = stop.borders[stop.matched];
      if (stop.text[stop.matched] == piece[at]) ++stop.matched;
      if (stop.matched < stop.text.size()) continue;
      if (!may_end)
        stop.matched = stop.borders[stop.matched];
      else if (!complete || stop.text.size() > stops_[*complete].text.size())
        complete = i;
    }
    if (!complete) continue;
    held_ += piece.substr(0, at + 1);
    if (!include_) held_.resize(held_.size() - stops_[*complete].text.size());
    return {.text = std::exchange(held_, {}), .stop = complete};
  }
  held_ += piece;
  std::size_t uncertain = 0;
  for (const Stop& stop : stops_) uncertain = std::max(uncertain, stop.matched);
  Output output{.text = held_.substr(0, held_.size() - uncertain)};
  held_.erase(0, held_.size() - uncertain);
  return output;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace motley::text
