#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>

namespace motley::cli {

// Blocks SIGINT, SIGTERM and SIGHUP during its lifetime, so that they can be waited for. Must be
// created before threads that shall not receive them.
class HeldSignals {
 public:
  // What SIGHUP means: the end, unless it is ignored, as under nohup; or a request of the operator.
  enum class Hangup { ends, asks };

  explicit HeldSignals(Hangup meaning = Hangup::ends) {
    ::sigemptyset(&held_);
    ::sigaddset(&held_, SIGINT);
    ::sigaddset(&held_, SIGTERM);
    // A blocked signal would be delivered although it is ignored.
    struct sigaction hangup{};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (meaning == Hangup::asks || hangup.sa_handler != SIG_IGN) ::sigaddset(&held_, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Waits at most this long for one; its number, or 0.
  int wait(std::chrono::milliseconds time) const {
    const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    return std::max(0, ::sigtimedwait(&held_, nullptr, &limit));
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

}  // namespace motley::cli
