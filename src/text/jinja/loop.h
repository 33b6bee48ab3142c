#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// The `loop` variable of templates, which drives the loop. It looks ahead only when asked to, so
// that generators are read no earlier than in Jinja.
struct Loop : Object {
  Loop(Value over, Cursor from, std::int64_t level) : iterable(over), cursor(from), depth0(level) {}

  // Goes to the next item; false at the end.
  Result<bool> advance(Runtime& runtime);
  // The item after the current one, or a missing value.
  Result<Value> peek(Runtime& runtime);
  // Reads a generator to its end.
  Result<std::size_t> length(Runtime& runtime);

  Value iterable;
  Cursor cursor;
  Value current;
  Value before;
  Value after;  // found by peek() and not yet taken by advance()
  bool has_peeked = false;
  std::int64_t index0 = -1;
  std::int64_t depth0;
  std::int64_t known_length = -1;
  Value last_changed;           // the last arguments of changed(), a tuple
  Callable* recurse = nullptr;  // for loops marked `recursive`
};

inline Loop& Value::loop() const { return get<Loop>(Kind::loop); }

// loop.index and so on; missing if loops have no such attribute.
Result<Value> loop_attribute(Runtime& runtime, Loop& loop, std::string_view name);

}  // namespace motley::text::jinja
