#include "text/jinja/values/format_digits.h"

#include <algorithm>
#include <cmath>

#include "base/ascii.h"
#include "text/jinja/values/numbers.h"

namespace motley::text::jinja {

Result<void> count_digits(Runtime& runtime, std::int64_t digits) {
  const std::size_t bytes = digits > 0 ? static_cast<std::size_t>(digits) : 0;
  MOTLEY_TRY_VOID(runtime.reserve(5, bytes));
  return runtime.step(1 + (bytes / 16));
}

std::int64_t read_amount(std::string_view text, std::size_t& at) {
  constexpr std::int64_t most = 1'000'000'000;
  std::int64_t number = 0;
  for (; at < text.size() && ascii::is_digit(text[at]); ++at)
    number = std::min(most, (number * 10) + (text[at] - '0'));
  return number;
}

std::string in_base(std::uint64_t value, unsigned base, bool upper_case) {
  std::string text;
  do {
    const unsigned digit = static_cast<unsigned>(value % base);
    text += static_cast<char>(digit < 10 ? '0' + digit : (upper_case ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value != 0);
  std::ranges::reverse(text);
  return text;
}

std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
}

std::string float_digits(double number, char type, int precision, bool alternate) {
  const double absolute = std::fabs(number);
  std::string text;
  switch (type) {
    case 'e':
    case 'E':
      text = float_scientific(absolute, precision, alternate);
      break;
    case 'f':
    case 'F':
      text = float_fixed(absolute, precision, alternate);
      break;
    default:
      text = float_general(absolute, precision, alternate);
  }
  if (type == 'E' || type == 'F' || type == 'G') {
    for (char& byte : text) {
      if (byte >= 'a' && byte <= 'z') byte = static_cast<char>(byte - 'a' + 'A');
    }
  }
  return text;
}

}  // namespace motley::text::jinja
