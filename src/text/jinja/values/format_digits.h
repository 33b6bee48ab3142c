#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// What Python's two ways of formatting share.
namespace motley::text::jinja {

// Digits of a format; a number beyond any use is cut to one that is refused.
std::int64_t read_amount(std::string_view text, std::size_t& at);

std::string in_base(std::uint64_t value, unsigned base, bool upper_case);

// The absolute value of an integer.
std::uint64_t magnitude(std::int64_t value);

// A number without its sign, as one of e, f, g and their capitals writes it.
std::string float_digits(double number, char type, int precision, bool alternate);

}  // namespace motley::text::jinja
