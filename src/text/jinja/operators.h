#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

// Python's operators on values. Errors have Python's wording where template authors know it.
namespace motley::text::jinja {

Result<bool> truth(Runtime& runtime, const Value& value);

// len(); an error for values without a length.
Result<std::size_t> length(Runtime& runtime, const Value& value);
bool has_length(const Value& value);

Result<bool> equal(Runtime& runtime, const Value& left, const Value& right);

enum class Order : std::uint8_t { less, less_equal, greater, greater_equal };
Result<bool> compare(Runtime& runtime, Order order, const Value& left, const Value& right);

// `item in container`
Result<bool> contains(Runtime& runtime, const Value& container, const Value& item);

Result<void> require_hashable(Runtime& runtime, const Value& value);

enum class Arithmetic : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power
};
std::string_view symbol(Arithmetic operation);
Result<Value> compute(Runtime& runtime, Arithmetic operation, const Value& left,
                      const Value& right);
Result<Value> negate(Runtime& runtime, const Value& value);
Result<Value> unary_plus(const Value& value);

// A number as a double; booleans count as 0 and 1. Only for numeric kinds.
bool is_numeric(const Value& value);
double as_double(const Value& value);

}  // namespace motley::text::jinja
