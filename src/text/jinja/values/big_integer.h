#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

// Python's integers are unbounded. Those beyond 64 bits are stored as decimal digits: they can be
// printed, compared, negated and converted to doubles; other arithmetic with them is refused.
namespace motley::text::jinja {

// The integer with these digits, of kind integer if it fits in 64 bits. A sign and leading zeros
// are allowed. An error beyond the range of a double.
Result<Value> integer_of_digits(Runtime& runtime, std::string_view digits);

// int(number) for a finite number of any size.
Result<Value> integer_of(Runtime& runtime, double number);

// -big and abs(big), which may fit in 64 bits.
Result<Value> negate_big(Runtime& runtime, const BigInteger& big);
Result<Value> absolute_big(Runtime& runtime, const Value& big);

bool is_negative(const BigInteger& big);
double as_double(const BigInteger& big);

// At least one of them a big integer, the other a number of any kind. Exact, as in Python.
std::partial_ordering compare_big(const Value& left, const Value& right);

// The error of arithmetic with integers beyond 64 bits.
Error beyond_64_bits();

}  // namespace motley::text::jinja
