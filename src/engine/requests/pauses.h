#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/requests/request.h"

namespace motley::engine {

// What becomes of requests that have been accepted when a pause begins. New ones are refused in
// `abort` and `wait`, and queue in `keep`.
enum class PauseMode : std::uint8_t {
  abort,  // they end at once, with what they have
  wait,   // they run to their end
  keep,   // they stand still, and go on when the pause ends
};

struct Pause {
  PauseMode mode = PauseMode::abort;
  std::string adapter = {};  // only requests that name it; empty: all requests
  bool clears_cache = true;  // in `abort` and `wait`: of the prefixes, once the requests have ended
};

// Which requests are paused. A pause of all decides for all while it lasts, and the pauses of
// adapters decide before and after it. Of a request that names several adapters a pause that ends
// requests decides before one that keeps them, so that it comes to its end.
class Pauses {
 public:
  // So many adapters can be paused at a time.
  static constexpr std::size_t max_adapters = 1024;

  // Replaces an earlier pause of the same adapter, or of all. Refuses one adapter too many.
  Result<void> add(const Pause& pause);
  // Ends the pause of this adapter; empty: that of all.
  void end(std::string_view adapter);
  void end_all();

  bool empty() const { return !all_ && adapters_.empty(); }
  // Whether all requests are paused.
  bool all() const { return all_.has_value(); }
  std::vector<std::string> adapters() const;

  // What a pause says of a request; nothing if it is not paused.
  std::optional<PauseMode> of(const Request& request) const;
  // Whether it stands still.
  bool keeps(const Request& request) const { return of(request) == PauseMode::keep; }
  // Whether a new request may come.
  Result<void> check(const Request& request) const;

 private:
  std::optional<PauseMode> all_;
  std::map<std::string, PauseMode, std::less<>> adapters_;
};

}  // namespace motley::engine
