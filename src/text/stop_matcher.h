#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::text {

// Ends a text where the first of several stop strings is complete, however the text is cut into
// pieces on its way. Of two that are complete at the same byte it is the longer one.
class StopMatcher {
 public:
  struct Output {
    std::string text;                 // may be passed on now
    std::optional<std::size_t> stop;  // which stop string ended the text
  };

  // Refuses an empty stop string. With `include`, a stop string is part of the text that it ends.
  static Result<StopMatcher> make(std::vector<std::string> stops, bool include);

  // Takes the next piece. Only an end of the text that may still become a stop string is held back.
  // Without `may_end` a stop string that is complete within this piece is plain text; one that
  // begins here may still end the text in a later piece. Nothing may be pushed after a stop.
  Output push(std::string_view piece, bool may_end = true);

  // What was held back, if no stop string came.
  std::string finish();

 private:
  struct Stop {
    std::string text;
    // Of each beginning: the longest shorter beginning that it ends with.
    std::vector<std::size_t> borders;
    std::size_t matched = 0;  // bytes of it that the text so far ends with
  };

  StopMatcher(std::vector<Stop> stops, bool include)
      : stops_(std::move(stops)), include_(include) {}

  std::vector<Stop> stops_;
  bool include_;
  std::string held_;
};

}  // namespace motley::text
