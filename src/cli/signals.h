#pragma once

#include <chrono>
#include <csignal>

namespace motley::cli {

// Keeps SIGINT, SIGTERM and SIGHUP from ending the process while it lives; they are waited for
// instead. A SIGHUP that is ignored, as under nohup, stays so. Made before the threads that shall
// not be disturbed either.
class HeldSignals {
 public:
  HeldSignals() {
    ::sigemptyset(&held_);
    ::sigaddset(&held_, SIGINT);
    ::sigaddset(&held_, SIGTERM);
    // A blocked signal would come in spite of being ignored.
    struct sigaction hangup{};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) ::sigaddset(&held_, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Whether one came, waiting for it at most that long.
  bool wait(std::chrono::milliseconds time) const {
    const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    return ::sigtimedwait(&held_, nullptr, &limit) > 0;
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

}  // namespace motley::cli
