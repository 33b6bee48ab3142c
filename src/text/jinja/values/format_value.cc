// format(value, "*>8.2f")

#include <algorithm>
#include <cmath>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/values/big_integer.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/format.h"
#include "text/jinja/values/format_digits.h"
#include "text/jinja/values/numbers.h"
#include "text/jinja/values/represent.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

struct Specification {
  std::string fill = " ";
  bool has_fill = false;
  char align = 0;  // one of < > = ^, or 0
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  std::int64_t width = 0;
  char grouping = 0;
  std::int64_t precision = -1;
  char type = 0;
};

bool is_align(char byte) { return byte == '<' || byte == '>' || byte == '=' || byte == '^'; }

Result<Specification> read_specification(std::string_view text) {
  Specification spec;
  std::size_t at = 0;
  const std::size_t first = text.empty() ? 0 : character_at(text, 0).bytes;
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.has_fill = true;
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  const auto take = [&](std::string_view any_of) {
    return at < text.size() && any_of.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0) {
    spec.zero = !spec.has_fill;
    if (spec.zero) spec.fill = "0";
  }
  spec.width = read_amount(text, at);
  spec.grouping = take(",_");
  if (spec.grouping != 0 && spec.zero)
    return Error(ErrorCode::unsupported,
                 "a format specifier with both zeros in front and grouping");
  if (take(".") != 0) {
    if (at == text.size() || !ascii::is_digit(text[at]))
      return failure("Format specifier missing precision");
    spec.precision = read_amount(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return failure("Invalid format specifier");
  return spec;
}

void group(std::string& digits, char separator, std::size_t size) {
  std::size_t whole = 0;
  while (whole < digits.size() && ascii::digit_value(digits[whole]) < 16) ++whole;
  for (std::size_t at = whole; at > size; at -= size) digits.insert(at - size, 1, separator);
}

Result<Value> aligned(Runtime& runtime, const Specification& spec, std::string_view sign,
                      const MarkedText& body, char otherwise) {
  MOTLEY_TRY_VOID(runtime.scan(body.text.size()));
  const auto length = static_cast<std::int64_t>(sign.size()) + utf8::count(body.text);
  const std::size_t space = spec.width > length ? static_cast<std::size_t>(spec.width - length) : 0;
  const char align = spec.align != 0 ? spec.align : otherwise;
  const std::size_t before = align == '<' ? 0 : align == '^' ? space / 2 : space;
  const MarkedText fill{.text = spec.fill};
  TextBuilder result(runtime);
  if (align == '=') MOTLEY_TRY_VOID(result.append(sign, false));
  MOTLEY_TRY_VOID(result.append_times(fill, before));
  if (align != '=') MOTLEY_TRY_VOID(result.append(sign, false));
  MOTLEY_TRY_VOID(result.append(body));
  MOTLEY_TRY_VOID(result.append_times(fill, space - before));
  return result.finish();
}

Error unknown_type(char type, std::string_view object) {
  return failure(cat("Unknown format code ", quote(std::string_view(&type, 1)),
                     " for object of type '", object, "'"));
}

Result<Value> format_text(Runtime& runtime, const String& text, const Specification& spec) {
  if (spec.type != 0 && spec.type != 's') return unknown_type(spec.type, "str");
  if (spec.sign != '-' || spec.alternate || spec.grouping != 0 || spec.align == '=')
    return failure("this part of a format specifier is not allowed for strings");
  if (spec.precision < 0) return aligned(runtime, spec, "", text.marked, '<');
  MOTLEY_TRY_VOID(runtime.scan(text.text().size()));
  const std::size_t end = byte_of_character(text.text(), static_cast<std::size_t>(spec.precision));
  MOTLEY_TRY(const Value cut, part_of(runtime, text, 0, end));
  return aligned(runtime, spec, "", cut.string().marked, '<');
}

std::string_view sign_of(bool negative, const Specification& spec) {
  if (negative) return "-";
  if (spec.sign == '+') return "+";
  return spec.sign == ' ' ? " " : "";
}

// As g, but scientific from one digit earlier on, and with a digit behind the point.
std::string short_digits(double number, int precision) {
  if (!std::isfinite(number)) return float_repr(number);
  const std::string scientific = float_scientific(number, precision - 1);
  const std::size_t mark = scientific.find('e');
  const auto exponent = read_integer(std::string_view(scientific).substr(mark + 1), 10);
  const bool at_edge = number != 0 && exponent.ok() && exponent->value_or(0) == precision - 1;
  if (!at_edge) {
    std::string digits = float_general(number, precision);
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    return digits;
  }
  std::size_t kept = scientific.find('.') == std::string::npos
                         ? mark
                         : scientific.find_last_not_of('0', mark - 1) + 1;
  if (scientific[kept - 1] == '.') --kept;
  return cat(std::string_view(scientific).substr(0, kept),
             std::string_view(scientific).substr(mark));
}

Result<Value> format_float(Runtime& runtime, double number, const Specification& spec) {
  char type = spec.type;
  if (type == 'n') type = 'g';
  if (type != 0 && std::string_view("eEfFgG%").find(type) == std::string_view::npos)
    return unknown_type(type, "float");
  const auto precision = static_cast<int>(spec.precision);
  MOTLEY_TRY_VOID(count_digits(runtime, spec.precision));
  std::string digits;
  if (type == 0 && spec.precision < 0) {
    digits = float_repr(std::fabs(number));
  } else if (type == 0) {
    digits = short_digits(std::fabs(number), std::max(precision, 1));
  } else {
    const double scaled = type == '%' ? number * 100 : number;
    digits = float_digits(scaled, type == '%' ? 'f' : type, spec.precision < 0 ? 6 : precision,
                          spec.alternate);
    if (type == '%') digits += '%';
  }
  if (spec.grouping != 0) group(digits, spec.grouping, 3);
  const bool negative = std::signbit(number) && !std::isnan(number);
  return aligned(runtime, spec, sign_of(negative, spec), MarkedText{.text = digits},
                 spec.zero ? '=' : '>');
}

Result<Value> format_big_integer(Runtime& runtime, const BigInteger& number,
                                 const Specification& spec) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos)
    return format_float(runtime, as_double(number), spec);
  if (spec.precision >= 0) return failure("Precision not allowed in integer format specifier");
  if (type != 'd') return beyond_64_bits();
  const bool negative = is_negative(number);
  MarkedText body{.text = number.digits.substr(negative ? 1 : 0)};
  if (spec.grouping != 0) group(body.text, spec.grouping, 3);
  return aligned(runtime, spec, sign_of(negative, spec), body, spec.zero ? '=' : '>');
}

Result<Value> format_integer(Runtime& runtime, std::int64_t number, const Specification& spec) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos)
    return format_float(runtime, static_cast<double>(number), spec);
  if (spec.precision >= 0) return failure("Precision not allowed in integer format specifier");
  MarkedText body;
  std::string sign(sign_of(number < 0, spec));
  if (type == 'c') {
    if (number < 0 || number > 0x10FFFF) return failure("%c arg not in range(0x110000)");
    utf8::append(body.text, static_cast<char32_t>(number));
    return aligned(runtime, spec, "", body, '<');
  }
  const unsigned base = type == 'd'                  ? 10
                        : type == 'b'                ? 2
                        : type == 'o'                ? 8
                        : type == 'x' || type == 'X' ? 16
                                                     : 0;
  if (base == 0) return unknown_type(type, "int");
  body.text = in_base(magnitude(number), base, type == 'X');
  if (spec.grouping != 0) group(body.text, spec.grouping, type == 'd' ? 3 : 4);
  if (spec.alternate && type != 'd') sign += cat("0", std::string_view(&type, 1));
  return aligned(runtime, spec, sign, body, spec.zero ? '=' : '>');
}

}  // namespace

Result<Value> format_value(Runtime& runtime, const Value& value, std::string_view specification) {
  if (specification.empty()) return to_string(runtime, value);
  MOTLEY_TRY(const Specification spec, read_specification(specification));
  switch (value.kind()) {
    case Kind::string:
      return format_text(runtime, value.string(), spec);
    case Kind::boolean:
      return format_integer(runtime, value.boolean() ? 1 : 0, spec);
    case Kind::integer:
      return format_integer(runtime, value.integer(), spec);
    case Kind::big_integer:
      return format_big_integer(runtime, value.big_integer(), spec);
    case Kind::number:
      return format_float(runtime, value.number(), spec);
    default:
      return failure(cat("unsupported format string passed to ", type_name(value), ".__format__"));
  }
}

}  // namespace motley::text::jinja
