#include "cli/forced_end.h"

#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace motley::cli {
namespace {

// The interval of checks whether the shutdown is over; delays its end by up to this.
constexpr auto look_up = std::chrono::milliseconds(20);

// Nothing is destroyed, because that may wait for the thread that is stuck.
[[noreturn]] void end_now(int status, std::string_view why) {
  log::warning("serve.cutting_off", {{"why", why}, {"status", status}});
  log::write_before_end("");
  std::_Exit(status);
}

}  // namespace

ForcedEnd::ForcedEnd(const HeldSignals& signals)
    : signals_(signals), thread_([this] { watch(); }) {}

ForcedEnd::~ForcedEnd() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ForcedEnd::arm(std::chrono::milliseconds time) {
  {
    const std::lock_guard lock(mutex_);
    if (deadline_) return;
    deadline_ = std::chrono::steady_clock::now() + time;
  }
  changed_.notify_all();
}

void ForcedEnd::watch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_ || deadline_; });
  while (!over_) {
    const TimePoint deadline = *deadline_;
    lock.unlock();
    const int signal = signals_.wait(look_up);
    if (signal == SIGHUP) {
      log::info("serve.hangup_ignored", {{"why", "the server is ending"}});
    } else if (signal != 0) {
      end_now(0, "a second signal");
    }
    if (std::chrono::steady_clock::now() >= deadline)
      end_now(stuck_status, "a thread does not end: its work is lost");
    lock.lock();
  }
}

}  // namespace motley::cli
