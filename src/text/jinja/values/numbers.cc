#include "text/jinja/values/numbers.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "base/ascii.h"
#include "base/cat.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/characters.h"

namespace motley::text::jinja {
namespace {

// Without white space at both ends.
std::string_view trimmed(std::string_view text) {
  while (!text.empty()) {
    const Character first = character_at(text, 0);
    if (!is_space(first.code_point)) break;
    text.remove_prefix(first.bytes);
  }
  while (!text.empty()) {
    const std::size_t last = character_before(text, text.size());
    if (!is_space(character_at(text, last).code_point)) break;
    text = text.substr(0, last);
  }
  return text;
}

// The base that a prefix such as 0x names, or 0.
int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  const char named = ascii::lower(text[1]);
  return named == 'x' ? 16 : named == 'o' ? 8 : named == 'b' ? 2 : 0;
}

std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && ascii::is_digit(text[i - 1]) &&
                         ascii::is_digit(text[i + 1]);
    if (!between) return std::nullopt;
  }
  return result;
}

// Longer than any double in the forms below, with at most 1100 digits after the point.
constexpr std::size_t longest_number = 1600;
constexpr int max_digits = 1100;

std::string written(double number, std::chars_format form, int precision) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char digits[longest_number];
  const int kept = std::min(precision, max_digits);
  const auto end = std::to_chars(digits, digits + sizeof digits, number, form, kept);
  std::string text(digits, end.ptr);
  // Doubles have no more digits: the rest are zeros.
  if (precision > kept) {
    const std::size_t exponent = std::min(text.find('e'), text.size());
    text.insert(exponent, static_cast<std::size_t>(precision - kept), '0');
  }
  return text;
}

void keep_point(std::string& text) {
  if (text.find('.') != std::string::npos || !ascii::is_digit(text.back())) return;
  text.insert(std::min(text.find('e'), text.size()), ".");
}

}  // namespace

std::string float_repr(double number) {
  if (!std::isfinite(number)) return written(number, std::chars_format::general, 0);
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific).ptr;
  const std::string_view text(digits, static_cast<std::size_t>(end - digits));
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const std::string_view exponent_text = text.substr(mark + 1 + (text[mark + 1] == '+' ? 1 : 0));
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  char plain[64];
  const auto plain_end =
      std::to_chars(plain, plain + sizeof plain, number, std::chars_format::fixed).ptr;
  std::string result(plain, plain_end);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string float_fixed(double number, int precision, bool alternate) {
  std::string text = written(number, std::chars_format::fixed, precision);
  if (alternate) keep_point(text);
  return text;
}

std::string float_scientific(double number, int precision, bool alternate) {
  std::string text = written(number, std::chars_format::scientific, precision);
  if (alternate) keep_point(text);
  return text;
}

std::string float_general(double number, int precision, bool alternate) {
  if (!std::isfinite(number)) return written(number, std::chars_format::general, 0);
  const int digits = std::max(precision, 1);
  const std::string scientific = written(number, std::chars_format::scientific, digits - 1);
  const std::size_t mark = scientific.find('e');
  int exponent = 0;
  const char* const begin = scientific.data() + mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(begin, scientific.data() + scientific.size(), exponent);
  const bool fixed = exponent >= -4 && exponent < digits;
  std::string text =
      fixed ? written(number, std::chars_format::fixed, digits - 1 - exponent) : scientific;
  if (alternate) {
    keep_point(text);
    return text;
  }
  const std::size_t tail = fixed ? text.size() : text.find('e');
  if (text.substr(0, tail).find('.') == std::string::npos) return text;
  std::size_t kept = tail;
  while (text[kept - 1] == '0') --kept;
  if (text[kept - 1] == '.') --kept;
  return text.erase(kept, tail - kept);
}

Result<std::optional<std::int64_t>> read_integer(std::string_view text, int base) {
  const std::optional<std::int64_t> nothing;
  if (base != 0 && (base < 2 || base > 36))
    return failure("int() base must be >= 2 and <= 36, or 0");
  std::string_view rest = trimmed(text);
  const bool negative = !rest.empty() && rest[0] == '-';
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) rest.remove_prefix(1);
  const int named = prefix_base(rest);
  bool after_prefix = false;
  if (named != 0 && (base == 0 || base == named)) {
    rest.remove_prefix(2);
    base = named;
    after_prefix = true;
  } else if (base == 0) {
    // 010 is invalid with base 0, 000 is valid.
    if (rest.size() > 1 && rest[0] == '0' && rest.find_first_not_of("0_") != std::string_view::npos)
      return nothing;
    base = 10;
  }
  std::int64_t value = 0;
  bool digit_before = after_prefix;  // an underscore may follow the prefix
  bool any = false;
  bool overflows = false;
  for (const char byte : rest) {
    if (byte == '_') {
      if (!digit_before) return nothing;
      digit_before = false;
      continue;
    }
    const int digit = ascii::digit_value(byte);
    if (digit >= base) return nothing;
    overflows = overflows || __builtin_mul_overflow(value, base, &value) ||
                // as a negative number, whose range is larger by one
                __builtin_sub_overflow(value, digit, &value);
    digit_before = true;
    any = true;
  }
  if (!any || !digit_before) return nothing;
  if (!overflows && !negative) overflows = __builtin_sub_overflow(0, value, &value);
  if (overflows) return Error(ErrorCode::unsupported, "an integer beyond 64 bits");
  return std::optional(value);
}

std::optional<std::string> long_decimal(std::string_view text) {
  constexpr std::size_t always_fits = 18;
  auto plain = without_underscores(trimmed(text));
  if (!plain) return std::nullopt;
  const std::size_t sign = plain->starts_with('-') || plain->starts_with('+') ? 1 : 0;
  const bool digits = plain->find_first_not_of("0123456789", sign) == std::string::npos;
  if (!digits || plain->size() - sign <= always_fits) return std::nullopt;
  return plain;
}

std::optional<double> read_float(std::string_view text) {
  const auto plain = without_underscores(trimmed(text));
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view rest = *plain;
  const bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  const std::string name = ascii::lower(rest);
  double value = 0;
  if (name == "inf" || name == "infinity") {
    value = HUGE_VAL;
  } else if (name == "nan") {
    value = std::nan("");
  } else {
    if (rest.empty() || (!ascii::is_digit(rest[0]) && rest[0] != '.')) return std::nullopt;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (end != rest.data() + rest.size()) return std::nullopt;
    // Out of range: infinite, or zero if the exponent is negative.
    if (problem == std::errc::result_out_of_range)
      value = name.find("e-") == std::string::npos ? HUGE_VAL : 0;
    else if (problem != std::errc())
      return std::nullopt;
  }
  return negative ? -value : value;
}

Result<std::int64_t> truncated(double number) {
  if (std::isnan(number)) return failure("cannot convert float NaN to integer");
  if (std::isinf(number)) return failure("cannot convert float infinity to integer");
  constexpr double beyond = 9223372036854775808.0;  // 2^63
  if (number >= beyond || number < -beyond)
    return Error(ErrorCode::unsupported, "an integer beyond 64 bits");
  return static_cast<std::int64_t>(number);
}

}  // namespace motley::text::jinja
