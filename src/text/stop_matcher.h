#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace motley::text {

// Prepared stop strings, shared by all texts that they may end.
class StopStrings {
 public:
  // Refuses an empty stop string.
  static Result<std::shared_ptr<const StopStrings>> make(std::vector<std::string> stops);

 private:
  friend class StopMatcher;
  struct Stop {
    std::string text;
    // By prefix: the length of its longest proper border.
    std::vector<std::uint32_t> borders;
  };

  std::vector<Stop> stops_;
};

// Finds the first completed stop string in a text that arrives in pieces of any size. Of two that
// complete at the same byte it is the longer one.
class StopMatcher {
 public:
  struct Output {
    std::string text;                 // text that can be passed on now
    std::optional<std::size_t> stop;  // index of the stop string that ended the text
  };

  // `include`: the stop string is part of the text.
  StopMatcher(std::shared_ptr<const StopStrings> stops, bool include)
      : stops_(std::move(stops)), matched_(stops_->stops_.size(), 0), include_(include) {}

  // Takes the next piece. Only a suffix that may become a stop string is held back. With `may_end`
  // false, a stop string that completes in this piece is ignored; one that begins here may still
  // end the text in a later piece. Must not be called after a stop.
  Output push(std::string_view piece, bool may_end = true);

  // The text that was held back, if no stop string completed.
  std::string finish();

 private:
  std::shared_ptr<const StopStrings> stops_;
  // by stop string: the length of its longest prefix that ends the text so far
  std::vector<std::uint32_t> matched_;
  bool include_;
  std::string held_;
};

}  // namespace motley::text
