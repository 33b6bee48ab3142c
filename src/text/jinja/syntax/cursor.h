#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// Iterates over a value like Python's iter(). A list that grows meanwhile is iterated to its new
// end.
class Cursor {
 public:
  // An error if the value is not iterable.
  static Result<Cursor> over(const Value& value);
  static bool can_walk(const Value& value);

  // The next value, or a missing one at the end. Counts a step.
  Result<Value> next(Runtime& runtime);

 private:
  explicit Cursor(const Value& value) : value_(value) {}

  Value value_;
  std::size_t at_ = 0;  // an index, or a byte of a string
};

// list(value)
Result<std::vector<Value>> to_vector(Runtime& runtime, const Value& value);

// The pair of a dict's entry.
Value entry_pair(Runtime& runtime, const Dict::Entry& entry);

}  // namespace motley::text::jinja
