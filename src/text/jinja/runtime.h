#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/syntax/depth.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// An error of the template or its inputs. The interpreter adds the position.
inline Error failure(std::string what) {
  return Error(ErrorCode::invalid_argument, std::move(what));
}

// One rendering: its values, and its use of the limits.
class Runtime {
 public:
  // `now` is the local time for strftime_now.
  Runtime(const RenderLimits& limits, const std::tm& now) : limits_(limits), now_(now) {}

  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }
  const RenderLimits& limits() const { return limits_; }

  // Counts steps; fails if the limit of steps or of memory is exceeded.
  Result<void> step(std::size_t count = 1);
  // Counts the reading of text.
  Result<void> scan(std::size_t bytes) { return step(1 + (bytes / 64)); }
  // Fails if a value of this size exceeds the limit. Call before creating more than the size of the
  // inputs.
  Result<void> reserve(std::size_t bytes) const;
  // The same for `count` pieces of `bytes` each.
  Result<void> reserve(std::size_t count, std::size_t bytes) const;

  // Records that the template has refused its inputs by raise_exception.
  void raise() { has_raised_ = true; }
  bool has_raised() const { return has_raised_; }

  // One level deeper, as long as the result exists.
  Result<Depth> deeper();

  // Creates values. Text of a string_view is trusted by default.
  Value text(std::string_view text, bool untrusted = false);
  Value text(MarkedText marked, bool markup = false) {
    return heap_.string(std::move(marked), markup);
  }
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value undefined(std::string why) {
    return Value::object(Kind::undefined, &heap_.make<Undefined>(std::move(why)));
  }

 private:
  RenderLimits limits_;
  std::tm now_;
  Heap heap_;
  std::size_t steps_ = 0;
  int depth_ = 0;
  bool has_raised_ = false;
};

}  // namespace motley::text::jinja
