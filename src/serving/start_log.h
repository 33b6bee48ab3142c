#pragma once

#include <string_view>

#include "base/log.h"
#include "base/system/clock.h"

namespace motley::serving {

// Logs the duration of each part of the start.
class StartLog {
 public:
  explicit StartLog(const Clock& clock) : clock_(&clock), last_(clock.now()) {}

  // Logs a part that ends now, and began when the previous one ended.
  void done(std::string_view part) {
    const TimePoint now = clock_->now();
    log::info("start.part", {{"part", part}, {"seconds", seconds(now - last_)}});
    last_ = now;
  }

 private:
  const Clock* clock_;
  TimePoint last_;
};

}  // namespace motley::serving
