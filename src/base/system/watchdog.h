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

// Notices work that takes longer than it ever should: it is logged once with what it was at,
// counted, and reported with the server's health until it ends.
class Watchdog {
 public:
  // What is watched.
  enum class Work : std::uint8_t { step, work_ahead, adapter_load, request };
  static constexpr std::size_t works = 4;
  static std::string_view name(Work work);

  // What the work is at. Called on the watchdog's thread while the work goes on, and only if it
  // takes too long: what it reads must not change until the work ends.
  using Details = FunctionRef<std::string()>;

  // A piece of work, from its beginning to its end. Takes no memory; without a watchdog nothing
  // happens.
  class Scope {
   public:
    // What the details refer to outlives the scope.
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
    Scope* before_ = nullptr;  // in the list of what goes on
    Scope* after_ = nullptr;
  };

  // `clock` outlives it.
  Watchdog(Duration limit, const Clock* clock);
  // When all scopes have ended.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // What goes on for longer than the limit, if anything does.
  std::optional<Error> stall() const;
  // How often each work was too slow.
  std::array<std::uint64_t, works> stalls() const;

 private:
  void watch();
  // The first that has become too slow; on the watchdog's thread.
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
