#pragma once

#include <algorithm>
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

// An error of the template or its inputs. The interpreter adds the position. A long message is cut:
// it may contain a text of any size.
Error failure(std::string what);
// As much of a text as a message may have, for those that quote a text of any size.
std::string_view shortened(std::string_view text);

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
  Result<void> reserve(std::size_t bytes);
  // The same for `count` pieces of `bytes` each.
  Result<void> reserve(std::size_t count, std::size_t bytes);
  // Counts memory that belongs to no value until it is released; fails beyond the limit. See Held.
  Result<void> hold(std::size_t bytes);
  void release(std::size_t bytes) { held_ -= bytes; }

  // What has been counted so far: steps, and the largest amount of memory at any time.
  std::size_t steps() const { return steps_; }
  std::size_t memory() const { return std::max(most_, heap_.used() + held_); }

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
    heap_.count_text(why);
    return Value::object(Kind::undefined, &heap_.make<Undefined>(std::move(why)));
  }

 private:
  RenderLimits limits_;
  std::tm now_;
  Heap heap_;
  std::size_t steps_ = 0;
  std::size_t held_ = 0;
  std::size_t most_ = 0;  // memory when the most was held or reserved
  int depth_ = 0;
  bool has_raised_ = false;
};

// Memory of an operation that is not part of a value, counted during its lifetime.
class Held {
 public:
  explicit Held(Runtime& runtime) : runtime_(runtime) {}
  ~Held() { runtime_.release(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // Call before the memory is allocated.
  Result<void> grow(std::size_t bytes) {
    MOTLEY_TRY_VOID(runtime_.hold(bytes));
    bytes_ += bytes;
    return {};
  }
  void shrink(std::size_t bytes) {
    runtime_.release(bytes);
    bytes_ -= bytes;
  }

 private:
  Runtime& runtime_;
  std::size_t bytes_ = 0;
};

}  // namespace motley::text::jinja
