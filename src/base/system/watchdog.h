#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/system/clock.h"

namespace motley {

// Detects work that takes longer than it should: it is logged once with its details, counted, and
// reported in the server's health until it ends.
class Watchdog {
 public:
  // What is watched.
  enum class Work : std::uint8_t { step, work_ahead, adapter_load, request };
  static constexpr std::size_t works = 4;
  static std::string_view name(Work work);

  // Describes the work. Called on the watchdog's thread during the work, and only if it takes too
  // long: what it reads must not change until the work ends.
  using Details = FunctionRef<std::string()>;

  // A piece of work, from begin to end. Allocates nothing; does nothing without a watchdog.
  class Scope {
   public:
    // What the details refer to must outlive the scope.
    Scope(Watchdog* watchdog, Work work, Details details);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Watchdog;
    Watchdog* watchdog_;
    Work work_;
    Details details_;
    TimePoint begin_;
    bool late_ = false;
    Scope* before_ = nullptr;  // in the list of current work
    Scope* after_ = nullptr;
  };

  // `clock` must outlive it.
  Watchdog(Duration limit, const Clock* clock);
  // All scopes must have ended.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // An error about work that exceeds the limit, if there is any.
  std::optional<Error> stall() const;
  // How often each kind of work was too slow.
  std::array<std::uint64_t, works> stalls() const;

 private:
  void watch();
  // The first scope that exceeds the limit; on the watchdog's thread.
  Scope* late_locked() const;

  const Duration limit_;
  const Clock* clock_;
  mutable std::mutex lock_;
  std::condition_variable stopped_;
  Scope* first_ = nullptr;
  std::array<std::uint64_t, works> stalls_ = {};
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace motley
