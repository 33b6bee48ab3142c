#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/values/value.h"

// Reading and writing numbers like Python.
namespace motley::text::jinja {

// repr(float): shortest digits that read back, 1.0, 1e+16, 1e-05, inf, nan.
std::string float_repr(double number);

// With that many digits after the point, as %f, %e and %g give them; `alternate` keeps the point.
std::string float_fixed(double number, int precision, bool alternate = false);
std::string float_scientific(double number, int precision, bool alternate = false);
std::string float_general(double number, int precision, bool alternate = false);

// int(text, base): allows surrounding white space, a sign, and underscores between digits. Nothing
// if it is no integer; an error beyond 64 bits.
Result<std::optional<std::int64_t>> read_integer(std::string_view text, int base);

// The digits and sign of a decimal integer, perhaps too long for 64 bits, as int(text) reads it.
std::optional<std::string> long_decimal(std::string_view text);

// float(text)
std::optional<double> read_float(std::string_view text);

// int(number), or an error for those that are not finite or beyond 64 bits.
Result<std::int64_t> truncated(double number);

}  // namespace motley::text::jinja
