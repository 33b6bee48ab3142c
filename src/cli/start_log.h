#pragma once

#include <string_view>

#include "base/log.h"
#include "base/system/clock.h"

namespace motley::cli {

// Says in the log how long each part of a start took.
class StartLog {
 public:
  explicit StartLog(const Clock& clock) : clock_(&clock), last_(clock.now()) {}

  // The part that ended now, and began where the one before ended.
  void done(std::string_view part) {
    const TimePoint now = clock_->now();
    log::info("start.part", {{"part", part}, {"seconds", seconds(now - last_)}});
    last_ = now;
  }

 private:
  const Clock* clock_;
  TimePoint last_;
};

}  // namespace motley::cli
