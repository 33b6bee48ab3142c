#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Shared by Python's two ways of formatting.
namespace motley::text::jinja {

// Reads a number of a format; larger ones than any valid one are capped.
std::int64_t read_amount(std::string_view text, std::size_t& at);

std::string in_base(std::uint64_t value, unsigned base, bool upper_case);

// The absolute value of an integer.
std::uint64_t magnitude(std::int64_t value);

// A number without its sign, as one of e, f, g and their capitals writes it.
std::string float_digits(double number, char type, int precision, bool alternate);

}  // namespace motley::text::jinja
