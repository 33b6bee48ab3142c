#pragma once

#include <chrono>
#include <csignal>

namespace motley::cli {

// Blocks SIGINT, SIGTERM and SIGHUP during its lifetime, so that they can be waited for. A SIGHUP
// that is ignored, as under nohup, stays ignored. Must be created before threads that shall not
// receive them.
class HeldSignals {
 public:
  HeldSignals() {
    ::sigemptyset(&held_);
    ::sigaddset(&held_, SIGINT);
    ::sigaddset(&held_, SIGTERM);
    // A blocked signal would be delivered although it is ignored.
    struct sigaction hangup{};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) ::sigaddset(&held_, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Waits at most this long for one; whether one came.
  bool wait(std::chrono::milliseconds time) const {
    const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    return ::sigtimedwait(&held_, nullptr, &limit) > 0;
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

}  // namespace motley::cli
