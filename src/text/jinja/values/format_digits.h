#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"

// Shared by Python's two ways of formatting.
namespace motley::text::jinja {

// Counts the writing of so many digits of a number: they are copied as signs and zeros are added.
Result<void> count_digits(Runtime& runtime, std::int64_t digits);

// Reads a number of a format; larger ones than any valid one are capped.
std::int64_t read_amount(std::string_view text, std::size_t& at);

std::string in_base(std::uint64_t value, unsigned base, bool upper_case);

// The absolute value of an integer.
std::uint64_t magnitude(std::int64_t value);

// A number without its sign, as one of e, f, g and their capitals writes it.
std::string float_digits(double number, char type, int precision, bool alternate);

}  // namespace motley::text::jinja
