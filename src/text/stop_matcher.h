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

// Stop strings, ready to be searched for: shared by all texts that they may end.
class StopStrings {
 public:
  // Refuses an empty stop string.
  static Result<std::shared_ptr<const StopStrings>> make(std::vector<std::string> stops);

 private:
  friend class StopMatcher;
  struct Stop {
    std::string text;
    // Of each beginning: the longest shorter beginning that it ends with.
    std::vector<std::uint32_t> borders;
  };

  std::vector<Stop> stops_;
};

// Ends a text where the first of several stop strings is complete, however the text is cut into
// pieces on its way. Of two that are complete at the same byte it is the longer one.
class StopMatcher {
 public:
  struct Output {
    std::string text;                 // may be passed on now
    std::optional<std::size_t> stop;  // which stop string ended the text
  };

  // With `include`, a stop string is part of the text that it ends.
  StopMatcher(std::shared_ptr<const StopStrings> stops, bool include)
      : stops_(std::move(stops)), matched_(stops_->stops_.size(), 0), include_(include) {}

  // Takes the next piece. Only an end of the text that may still become a stop string is held back.
  // Without `may_end` a stop string that is complete within this piece is plain text; one that
  // begins here may still end the text in a later piece. Nothing may be pushed after a stop.
  Output push(std::string_view piece, bool may_end = true);

  // What was held back, if no stop string came.
  std::string finish();

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::uint32_t> matched_;  // bytes of each stop string that the text so far ends with
  bool include_;
  std::string held_;
};

}  // namespace motley::text
