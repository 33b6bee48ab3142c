#include "base/system/watchdog.h"

#include <algorithm>
#include <csignal>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"

namespace motley {
namespace {

constexpr std::array<std::string_view, Watchdog::works> names = {"step", "work_ahead",
                                                                 "adapter_load", "request"};
constexpr std::array<std::string_view, Watchdog::works> subjects = {
    "a step", "work ahead of steps", "the load of an adapter", "the reading of a request"};

// The interval of checks: short compared with the limit, and cheap.
Duration interval_of(Duration limit) {
  return std::clamp<Duration>(limit / 8, std::chrono::milliseconds(1), std::chrono::seconds(1));
}

}  // namespace

std::string_view Watchdog::name(Work work) { return names[static_cast<std::size_t>(work)]; }

Watchdog::Scope::Scope(Watchdog* watchdog, Work work, Details details)
    : watchdog_(watchdog), work_(work), details_(details) {
  if (watchdog_ == nullptr) return;
  begin_ = watchdog_->clock_->now();
  const std::lock_guard held(watchdog_->lock_);
  after_ = watchdog_->first_;
  if (after_ != nullptr) after_->before_ = this;
  watchdog_->first_ = this;
}

Watchdog::Scope::~Scope() {
  if (watchdog_ == nullptr) return;
  {
    const std::lock_guard held(watchdog_->lock_);
    (before_ == nullptr ? watchdog_->first_ : before_->after_) = after_;
    if (after_ != nullptr) after_->before_ = before_;
  }
  if (!late_) return;
  log::warning("watchdog.ended",
               {{"what", name(work_)}, {"seconds", seconds(watchdog_->clock_->now() - begin_)}});
}

Watchdog::Watchdog(Duration limit, const Clock* clock) : limit_(limit), clock_(clock) {
  MOTLEY_CHECK(limit > Duration{}, "a limit that work can keep");
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard held(lock_);
    MOTLEY_CHECK(first_ == nullptr, "a watchdog outlives what it watches");
    stopping_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

std::optional<Error> Watchdog::stall() const {
  const std::lock_guard held(lock_);
  const Scope* longest = nullptr;
  for (const Scope* each = first_; each != nullptr; each = each->after_) {
    if (longest == nullptr || each->begin_ < longest->begin_) longest = each;
  }
  if (longest == nullptr) return std::nullopt;
  const Duration taken = clock_->now() - longest->begin_;
  if (taken < limit_) return std::nullopt;
  return Error(ErrorCode::unavailable,
               cat(subjects[static_cast<std::size_t>(longest->work_)], " has taken ",
                   static_cast<std::int64_t>(seconds(taken)), " s so far"),
               "", "look at the log for what it is at; it may end, or the server must be ended");
}

std::array<std::uint64_t, Watchdog::works> Watchdog::stalls() const {
  const std::lock_guard held(lock_);
  return stalls_;
}

Watchdog::Scope* Watchdog::late_locked() const {
  const TimePoint now = clock_->now();
  for (Scope* each = first_; each != nullptr; each = each->after_) {
    if (!each->late_ && now - each->begin_ >= limit_) return each;
  }
  return nullptr;
}

void Watchdog::watch() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock held(lock_);
  while (!stopping_) {
    if (Scope* const late = late_locked()) {
      late->late_ = true;
      ++stalls_[static_cast<std::size_t>(late->work_)];
      const Work work = late->work_;
      const Duration taken = clock_->now() - late->begin_;
      // Under the lock, which the end of the work waits for.
      const Result<std::string> details = within_memory([&] { return late->details_(); });
      held.unlock();
      log::warning("watchdog.stalled",
                   {{"what", name(work)},
                    {"seconds", seconds(taken)},
                    {"details", details.ok() ? std::string_view(*details) : "out of memory"}});
      held.lock();
      continue;
    }
    clock_->wait_until(stopped_, held, clock_->now() + interval_of(limit_),
                       [this] { return stopping_; });
  }
}

}  // namespace motley
