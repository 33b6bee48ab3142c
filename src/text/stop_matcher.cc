#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"

namespace motley::text {
namespace {

std::vector<std::uint32_t> borders_of(std::string_view text) {
  std::vector<std::uint32_t> borders(text.size() + 1, 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::uint32_t border = borders[i];
    while (border > 0 && text[border] != text[i]) border = borders[border];
    borders[i + 1] = text[border] == text[i] ? border + 1 : 0;
  }
  return borders;
}

}  // namespace

Result<std::shared_ptr<const StopStrings>> StopStrings::make(std::vector<std::string> stops) {
  const auto made = std::make_shared<StopStrings>();
  for (std::string& stop : stops) {
    if (stop.empty())
      return Error(ErrorCode::invalid_argument,
                   cat("stop string ", made->stops_.size(), " is empty"), "stop", "leave it out");
    std::vector<std::uint32_t> borders = borders_of(stop);
    made->stops_.push_back({.text = std::move(stop), .borders = std::move(borders)});
  }
  return std::shared_ptr<const StopStrings>(made);
}

StopMatcher::Output StopMatcher::push(std::string_view piece, bool may_end) {
  const auto& stops = stops_->stops_;
  for (std::size_t at = 0; at < piece.size(); ++at) {
    std::optional<std::size_t> complete;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const StopStrings::Stop& stop = stops[i];
      std::uint32_t& matched = matched_[i];
      while (matched > 0 && stop.text[matched] != piece[at]) matched = stop.borders[matched];
      if (stop.text[matched] == piece[at]) ++matched;
      if (matched < stop.text.size()) continue;
      if (!may_end)
        matched = stop.borders[matched];
      else if (!complete || stop.text.size() > stops[*complete].text.size())
        complete = i;
    }
    if (!complete) continue;
    held_ += piece.substr(0, at + 1);
    if (!include_) held_.resize(held_.size() - stops[*complete].text.size());
    return {.text = std::exchange(held_, {}), .stop = complete};
  }
  held_ += piece;
  const std::size_t uncertain = matched_.empty() ? 0 : std::ranges::max(matched_);
  Output output{.text = held_.substr(0, held_.size() - uncertain)};
  held_.erase(0, held_.size() - uncertain);
  return output;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace motley::text
