#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

// Python's integers have no bound. Those beyond 64 bits are carried by their decimal digits: they
// are printed, compared, negated and turned into doubles; other arithmetic with them is refused.
namespace motley::text::jinja {

// The integer of these digits, of kind integer where it fits 64 bits: a sign, zeros in front are
// allowed. An error beyond the range of a double.
Result<Value> integer_of_digits(Runtime& runtime, std::string_view digits);

// int(number) for a finite number of any size.
Result<Value> integer_of(Runtime& runtime, double number);

// -big and abs(big), which may fit 64 bits.
Result<Value> negate_big(Runtime& runtime, const BigInteger& big);
Result<Value> absolute_big(Runtime& runtime, const Value& big);

bool is_negative(const BigInteger& big);
double as_double(const BigInteger& big);

// At least one of them a big integer, the other a number of any kind. Exact, as in Python.
std::partial_ordering compare_big(const Value& left, const Value& right);

// What computing with integers beyond 64 bits gives.
Error beyond_64_bits();

}  // namespace motley::text::jinja
