#include "dist/gpu_ranks.h"

#include <utility>

#include "base/cat.h"
#include "base/units.h"

namespace motley::dist {

void GpuRanks::Member::fail(const Error& error) {
  Error named = error;
  group_.fail(std::move(named).within(cat("rank ", rank_)));
}

GpuRanks::GpuRanks(int ranks, Duration max_wait)
    : ranks_(ranks), max_wait_(max_wait), meetings_(ranks) {}

Error GpuRanks::missed(int rank, std::string_view call) const {
  return Error(ErrorCode::internal, cat("rank ", rank, " did not come to ", call, " within ",
                                        format_seconds(seconds(max_wait_))));
}

Result<void> GpuRanks::meet(int rank, std::string_view call) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  const auto goes_on = [&] { return status().ok() && clock.now() - begin < max_wait_; };
  const int missing = meetings_.come(rank, goes_on);
  if (missing < 0) return {};
  MOTLEY_TRY_VOID(status());
  fail(missed(missing, call));
  return status();
}

void GpuRanks::fail(Error error) {
  const std::lock_guard held(lock_);
  if (!failure_) failure_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  end_waits();
}

Result<void> GpuRanks::status() {
  if (!failed_.load(std::memory_order_acquire)) {
    std::optional<Error> error = reported();
    if (!error) return {};
    fail(*std::move(error));
  }
  const std::lock_guard held(lock_);
  return *failure_;
}

}  // namespace motley::dist
