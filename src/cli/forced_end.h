#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/system/clock.h"
#include "cli/signals.h"

namespace motley::cli {

// Ends the process if its shutdown does not, whatever its other threads do: with status 0 at a
// further signal, with status 1 when the shutdown takes too long.
class ForcedEnd {
 public:
  // Exit status of a shutdown that did not come to its end.
  static constexpr int stuck_status = 1;

  // `signals` must outlive this. The thread is started here, because at the end there may be no
  // memory for it.
  explicit ForcedEnd(const HeldSignals& signals);
  ~ForcedEnd();
  ForcedEnd(const ForcedEnd&) = delete;
  ForcedEnd& operator=(const ForcedEnd&) = delete;

  // The shutdown has begun, and may take this long. Only the first call counts. From here on this
  // takes the signals.
  void arm(std::chrono::milliseconds time);

 private:
  void watch();

  const HeldSignals& signals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::optional<TimePoint> deadline_;
  std::thread thread_;
};

}  // namespace motley::cli
