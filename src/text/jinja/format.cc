#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/represent.h"
#include "text/jinja/strings.h"

namespace motley::text::jinja {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

// Digits of a format; a number beyond any use is cut to one that is refused.
std::int64_t read_number(std::string_view text, std::size_t& at) {
  constexpr std::int64_t most = 1'000'000'000;
  std::int64_t number = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) number = std::min(most, (number * 10) + (text[at] - '0'));
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

// A number without its sign, as one of e, f, g and their capitals writes it.
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

// ---------------------------------------------------------------------------------------- "%5.2f"

struct PercentField {
  bool has_key = false;
  std::size_t key_begin = 0;  // bytes of the format
  std::size_t key_end = 0;
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool blank = false;
  bool alternate = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 's';
};

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const String& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  Result<Value> run() {
    const std::string_view text = format_.text();
    MOTLEY_TRY_VOID(runtime_.scan(text.size()));
    std::size_t begin = 0;
    while (true) {
      const std::size_t at = std::min(text.find('%', begin), text.size());
      if (at > begin) out_.append(format_.marked.part(begin, at));
      if (at == text.size()) break;
      begin = at + 1;
      MOTLEY_TRY(const PercentField field, read_field(begin));
      MOTLEY_TRY_VOID(write(field));
      MOTLEY_TRY_VOID(runtime_.reserve(out_.text.size()));
    }
    // A mapping may hold more than the format takes; so may, in Python, whatever can be indexed.
    const bool may_rest = used_mapping_ || values_.is(Kind::dict) || values_.is(Kind::list) ||
                          values_.is(Kind::range) || values_.is(Kind::undefined);
    if (!may_rest && taken_ < given()) return failure("not all arguments converted during string formatting");
    return runtime_.text(std::move(out_), format_.markup);
  }

 private:
  std::size_t given() const { return values_.is(Kind::tuple) ? values_.sequence().items.size() : 1; }

  Result<Value> next_value() {
    if (taken_ >= given()) return failure("not enough arguments for format string");
    const std::size_t at = taken_++;
    return values_.is(Kind::tuple) ? values_.sequence().items[at] : values_;
  }

  Result<std::int64_t> read_amount(std::size_t& at) {
    if (at < format_.text().size() && format_.text()[at] == '*') {
      ++at;
      MOTLEY_TRY(const Value value, next_value());
      if (!value.is(Kind::integer)) return failure("* wants int");
      return std::clamp<std::int64_t>(value.integer(), -1'000'000'000, 1'000'000'000);
    }
    return read_number(format_.text(), at);
  }

  Result<PercentField> read_field(std::size_t& at) {
    const std::string_view text = format_.text();
    PercentField field;
    if (at < text.size() && text[at] == '(') {
      field.has_key = true;
      field.key_begin = ++at;
      int depth = 1;
      for (; at < text.size(); ++at) {
        if (text[at] == '(') ++depth;
        if (text[at] == ')' && --depth == 0) break;
      }
      if (at == text.size()) return failure("incomplete format key");
      field.key_end = at++;
    }
    for (bool more = true; more && at < text.size(); at += more ? 1 : 0) {
      switch (text[at]) {
        case '-':
          field.left = true;
          break;
        case '0':
          field.zero = true;
          break;
        case '+':
          field.plus = true;
          break;
        case ' ':
          field.blank = true;
          break;
        case '#':
          field.alternate = true;
          break;
        default:
          more = false;
      }
    }
    MOTLEY_TRY(field.width, read_amount(at));
    if (field.width < 0) {
      field.left = true;
      field.width = -field.width;
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
      MOTLEY_TRY(field.precision, read_amount(at));
      field.precision = std::max<std::int64_t>(field.precision, 0);
    }
    while (at < text.size() && (text[at] == 'l' || text[at] == 'h' || text[at] == 'L')) ++at;
    if (at == text.size()) return failure("incomplete format");
    field.type = text[at++];
    return field;
  }

  Result<Value> value_of(const PercentField& field) {
    if (!field.has_key) return next_value();
    if (!values_.is(Kind::dict)) return failure("format requires a mapping");
    used_mapping_ = true;
    const std::string_view key = format_.text().substr(field.key_begin, field.key_end - field.key_begin);
    const Value* const found = values_.dict().find(key);
    if (found == nullptr) return failure(cat("the format's mapping lacks the key ", quote(key)));
    return *found;
  }

  Result<void> write(const PercentField& field) {
    if (field.type == '%') return out_.append("%", false), Result<void>();
    MOTLEY_TRY(const Value value, value_of(field));
    switch (field.type) {
      case 's':
      case 'r':
      case 'a':
        return write_text(field, value);
      case 'c':
        return write_character(field, value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return write_integer(field, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return write_float(field, value);
      default:
        return failure(cat("unsupported format character ", quote(std::string_view(&field.type, 1))));
    }
  }

  Result<void> put(const PercentField& field, const MarkedText& text) {
    const auto length = static_cast<std::int64_t>(count_characters(text.text));
    const std::size_t space = field.width > length ? static_cast<std::size_t>(field.width - length) : 0;
    MOTLEY_TRY_VOID(runtime_.reserve(out_.text.size() + space));
    if (!field.left) out_.append(std::string(space, ' '), false);
    out_.append(text);
    if (field.left) out_.append(std::string(space, ' '), false);
    return {};
  }

  Result<void> write_text(const PercentField& field, const Value& value) {
    MOTLEY_TRY(MarkedText text, field.type == 's' ? to_text(runtime_, value) : represent(runtime_, value));
    if (format_.markup) text = escaped(String(std::move(text), value.is(Kind::string) && value.string().markup));
    if (field.precision >= 0)
      text = text.part(0, byte_of_character(text.text, static_cast<std::size_t>(field.precision)));
    return put(field, text);
  }

  Result<void> write_character(const PercentField& field, const Value& value) {
    MarkedText text;
    if (value.is(Kind::string) && length_of(value.string()) == 1) {
      text = value.string().marked;
    } else if (value.is(Kind::integer)) {
      if (value.integer() < 0 || value.integer() > 0x10FFFF) return failure("%c arg not in range(0x110000)");
      utf8::append(text.text, static_cast<char32_t>(value.integer()));
    } else {
      return failure("%c requires int or char");
    }
    return put(field, text);
  }

  Result<void> write_number(const PercentField& field, bool negative, std::string_view prefix,
                            std::string digits, bool may_zero) {
    std::string sign(negative ? "-" : field.plus ? "+" : field.blank ? " " : "");
    sign += prefix;
    const auto length = static_cast<std::int64_t>(sign.size() + digits.size());
    if (field.zero && !field.left && may_zero && field.width > length) {
      MOTLEY_TRY_VOID(runtime_.reserve(static_cast<std::size_t>(field.width)));
      digits.insert(0, static_cast<std::size_t>(field.width - length), '0');
    }
    return put(field, MarkedText{.text = sign + digits});
  }

  Result<void> write_integer(const PercentField& field, const Value& value) {
    const bool decimal = field.type == 'd' || field.type == 'i' || field.type == 'u';
    std::int64_t number = 0;
    if (value.is(Kind::integer) || value.is(Kind::boolean)) {
      MOTLEY_TRY(number, as_count(value));
    } else if (value.is(Kind::number) && decimal) {
      MOTLEY_TRY(number, truncated(value.number()));
    } else {
      if (value.is(Kind::undefined)) return failure(value.undefined().message);
      return failure(cat("%", std::string_view(&field.type, 1), " format: ",
                         decimal ? "a real number" : "an integer", " is required, not ", type_name(value)));
    }
    const unsigned base = decimal ? 10 : field.type == 'o' ? 8 : 16;
    std::string digits = in_base(magnitude(number), base, field.type == 'X');
    if (field.precision > static_cast<std::int64_t>(digits.size())) {
      MOTLEY_TRY_VOID(runtime_.reserve(static_cast<std::size_t>(field.precision)));
      digits.insert(0, static_cast<std::size_t>(field.precision) - digits.size(), '0');
    }
    const std::string_view prefix = !field.alternate || decimal ? ""
                                    : base == 8                 ? "0o"
                                    : field.type == 'X'         ? "0X"
                                                                : "0x";
    return write_number(field, number < 0, prefix, std::move(digits), true);
  }

  Result<void> write_float(const PercentField& field, const Value& value) {
    double number = 0;
    if (is_numeric(value)) {
      number = as_double(value);
    } else {
      if (value.is(Kind::undefined)) return failure(value.undefined().message);
      return failure(cat("must be real number, not ", type_name(value)));
    }
    const std::int64_t precision = field.precision < 0 ? 6 : field.precision;
    MOTLEY_TRY_VOID(runtime_.reserve(static_cast<std::size_t>(precision)));
    std::string digits = float_digits(number, field.type, static_cast<int>(precision), field.alternate);
    return write_number(field, std::signbit(number) && !std::isnan(number), "", std::move(digits), true);
  }

  Runtime& runtime_;
  const String& format_;
  const Value& values_;
  std::size_t taken_ = 0;
  bool used_mapping_ = false;
  MarkedText out_;
};

// ---------------------------------------------------------------------------------------- "{:>5}"

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
  spec.width = read_number(text, at);
  spec.grouping = take(",_");
  if (spec.grouping != 0 && spec.zero)
    return Error(ErrorCode::unsupported, "a format specifier with both zeros in front and grouping");
  if (take(".") != 0) {
    if (at == text.size() || !is_digit(text[at])) return failure("Format specifier missing precision");
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return failure("Invalid format specifier");
  return spec;
}

void group(std::string& digits, char separator, std::size_t size) {
  std::size_t whole = 0;
  while (whole < digits.size() && (is_digit(digits[whole]) || (digits[whole] >= 'a' && digits[whole] <= 'f') ||
                                   (digits[whole] >= 'A' && digits[whole] <= 'F')))
    ++whole;
  for (std::size_t at = whole; at > size; at -= size) digits.insert(at - size, 1, separator);
}

Result<MarkedText> aligned(Runtime& runtime, const Specification& spec, std::string_view sign,
                           const MarkedText& body, char otherwise) {
  const auto length = static_cast<std::int64_t>(sign.size() + count_characters(body.text));
  const std::size_t space = spec.width > length ? static_cast<std::size_t>(spec.width - length) : 0;
  MOTLEY_TRY_VOID(runtime.reserve(space, spec.fill.size()));
  const char align = spec.align != 0 ? spec.align : otherwise;
  const std::size_t before = align == '<' ? 0 : align == '^' ? space / 2 : space;
  MarkedText result;
  const auto fill = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) result.append(spec.fill, false);
  };
  if (align == '=') {
    result.append(sign, false);
    fill(before);
  } else {
    fill(before);
    result.append(sign, false);
  }
  result.append(body);
  fill(space - before);
  return result;
}

Result<MarkedText> format_text(Runtime& runtime, const MarkedText& text, const Specification& spec) {
  if (spec.type != 0 && spec.type != 's')
    return failure(cat("Unknown format code ", quote(std::string_view(&spec.type, 1)), " for object of type 'str'"));
  if (spec.sign != '-' || spec.alternate || spec.grouping != 0 || spec.align == '=')
    return failure("this part of a format specifier is not allowed for strings");
  MarkedText cut = text;
  if (spec.precision >= 0)
    cut = text.part(0, byte_of_character(text.text, static_cast<std::size_t>(spec.precision)));
  return aligned(runtime, spec, "", cut, '<');
}

std::string_view sign_of(bool negative, const Specification& spec) {
  if (negative) return "-";
  if (spec.sign == '+') return "+";
  return spec.sign == ' ' ? " " : "";
}

Result<MarkedText> format_float(Runtime& runtime, double number, const Specification& spec) {
  char type = spec.type;
  if (type == 'n') type = 'g';
  if (type != 0 && std::string_view("eEfFgG%").find(type) == std::string_view::npos)
    return failure(cat("Unknown format code ", quote(std::string_view(&type, 1)), " for object of type 'float'"));
  const auto precision = static_cast<int>(spec.precision);
  MOTLEY_TRY_VOID(runtime.reserve(spec.precision < 0 ? 0 : static_cast<std::size_t>(precision)));
  std::string digits;
  if (type == 0 && spec.precision < 0) {
    digits = float_repr(std::fabs(number));
  } else if (type == 0) {
    // As g, but with at least one digit behind the point and scientific one digit earlier.
    digits = float_general(std::fabs(number), precision, spec.alternate);
    const std::string fixed = float_scientific(std::fabs(number), std::max(precision, 1) - 1);
    const std::size_t mark = fixed.find('e');
    const bool at_edge = mark != std::string::npos && std::stoi(fixed.substr(mark + 1)) == std::max(precision, 1) - 1;
    if (at_edge && std::fabs(number) != 0) {
      const std::string shorter = float_general(std::fabs(number), precision, spec.alternate);
      std::string mantissa = fixed.substr(0, mark);
      while (mantissa.find('.') != std::string::npos && (mantissa.back() == '0' || mantissa.back() == '.')) {
        const bool point = mantissa.back() == '.';
        mantissa.pop_back();
        if (point) break;
      }
      digits = shorter.find('e') != std::string::npos ? shorter : mantissa + fixed.substr(mark);
    }
    if (std::isfinite(number) && digits.find('.') == std::string::npos && digits.find('e') == std::string::npos)
      digits += ".0";
  } else {
    const double scaled = type == '%' ? number * 100 : number;
    digits = float_digits(scaled, type == '%' ? 'f' : type, spec.precision < 0 ? 6 : precision, spec.alternate);
    if (type == '%') digits += '%';
  }
  if (spec.grouping != 0) group(digits, spec.grouping, 3);
  const bool negative = std::signbit(number) && !std::isnan(number);
  return aligned(runtime, spec, sign_of(negative, spec), MarkedText{.text = digits}, spec.zero ? '=' : '>');
}

Result<MarkedText> format_integer(Runtime& runtime, std::int64_t number, const Specification& spec) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos)
    return format_float(runtime, static_cast<double>(number), spec);
  if (spec.precision >= 0) return failure("Precision not allowed in integer format specifier");
  MarkedText body;
  std::string sign(sign_of(number < 0, spec));
  switch (type) {
    case 'd':
      body.text = in_base(magnitude(number), 10, false);
      break;
    case 'b':
      body.text = in_base(magnitude(number), 2, false);
      break;
    case 'o':
      body.text = in_base(magnitude(number), 8, false);
      break;
    case 'x':
    case 'X':
      body.text = in_base(magnitude(number), 16, type == 'X');
      break;
    case 'c':
      if (number < 0 || number > 0x10FFFF) return failure("%c arg not in range(0x110000)");
      utf8::append(body.text, static_cast<char32_t>(number));
      return aligned(runtime, spec, "", body, '<');
    default:
      return failure(cat("Unknown format code ", quote(std::string_view(&type, 1)), " for object of type 'int'"));
  }
  if (spec.grouping != 0) group(body.text, spec.grouping, type == 'd' ? 3 : 4);
  if (spec.alternate && type != 'd') sign += cat("0", std::string_view(&type, 1));
  return aligned(runtime, spec, sign, body, spec.zero ? '=' : '>');
}

class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const String& format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  Result<Value> run() {
    MOTLEY_TRY_VOID(runtime_.scan(format_.text().size()));
    MOTLEY_TRY(MarkedText out, expand(0, format_.text().size(), 2));
    return runtime_.text(std::move(out), format_.markup);
  }

 private:
  // The format between two bytes with its fields filled in.
  Result<MarkedText> expand(std::size_t begin, std::size_t end, int nesting) {
    if (nesting == 0) return failure("Max string recursion exceeded");
    const std::string_view text = format_.text();
    MarkedText out;
    for (std::size_t at = begin; at < end;) {
      const std::size_t brace = std::min(text.substr(0, end).find_first_of("{}", at), end);
      if (brace > at) out.append(format_.marked.part(at, brace));
      if (brace == end) break;
      at = brace + 1;
      if (at < end && text[at] == text[brace]) {
        out.append(format_.marked.part(brace, at++));
        continue;
      }
      if (text[brace] == '}') return failure("Single '}' encountered in format string");
      MOTLEY_TRY(const MarkedText field, expand_field(at, end, nesting));
      out.append(field);
      MOTLEY_TRY_VOID(runtime_.reserve(out.text.size()));
    }
    return out;
  }

  // The field whose name begins at `at`, which is moved behind its closing brace.
  Result<MarkedText> expand_field(std::size_t& at, std::size_t end, int nesting) {
    const std::string_view text = format_.text();
    int depth = 1;
    std::size_t close = at;
    std::size_t colon = std::string_view::npos;
    for (; close < end; ++close) {
      if (text[close] == '{') ++depth;
      if (text[close] == '}' && --depth == 0) break;
      if (text[close] == ':' && depth == 1 && colon == std::string_view::npos) colon = close;
    }
    if (close == end) return failure("expected '}' before end of string");
    const std::size_t head_end = std::min(colon, close);
    std::string_view head = text.substr(at, head_end - at);
    char conversion = 0;
    if (head.size() >= 2 && head[head.size() - 2] == '!') {
      conversion = head.back();
      head.remove_suffix(2);
    }
    MOTLEY_TRY(Value value, value_of(head));
    if (conversion == 'r' || conversion == 'a') {
      MOTLEY_TRY(MarkedText quoted, represent(runtime_, value));
      value = runtime_.text(std::move(quoted));
    } else if (conversion == 's') {
      MOTLEY_TRY(value, to_string(runtime_, value));
    } else if (conversion != 0) {
      return failure("Unknown conversion specifier");
    }
    MarkedText specification;
    if (colon < close) {
      MOTLEY_TRY(specification, expand(colon + 1, close, nesting - 1));
    }
    at = close + 1;
    MOTLEY_TRY(MarkedText shown, format_value(runtime_, value, specification.text));
    if (!format_.markup) return shown;
    return escaped(String(std::move(shown), value.is(Kind::string) && value.string().markup));
  }

  Result<Value> value_of(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    MOTLEY_TRY(Value value, first_value(name.substr(0, first_end)));
    for (std::size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) return failure("Empty attribute in format string");
        MOTLEY_TRY(value, get_attribute(runtime_, value, name.substr(at + 1, end - at - 1)));
        at = end;
        continue;
      }
      const std::size_t end = name.find(']', at);
      if (name[at] != '[' || end == std::string_view::npos) return failure("Missing ']' in format string");
      const std::string_view key = name.substr(at + 1, end - at - 1);
      const bool is_number = !key.empty() && std::ranges::all_of(key, is_digit);
      std::size_t digits = 0;
      const Value index = is_number ? Value::integer(read_number(key, digits)) : runtime_.text(key);
      MOTLEY_TRY(value, get_item(runtime_, value, index));
      at = end + 1;
    }
    return value;
  }

  Result<Value> first_value(std::string_view name) {
    const bool is_number = std::ranges::all_of(name, is_digit);
    if (!is_number) {
      for (const auto& [key, value] : arguments_.keyword) {
        if (key == name) return value;
      }
      return failure(cat("format() lacks the argument ", quote(name)));
    }
    std::size_t digits = 0;
    const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(read_number(name, digits));
    if (index >= arguments_.positional.size())
      return failure(cat("Replacement index ", index, " out of range for positional args tuple"));
    return arguments_.positional[index];
  }

  Runtime& runtime_;
  const String& format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

Result<MarkedText> format_value(Runtime& runtime, const Value& value, std::string_view specification) {
  if (specification.empty()) return to_text(runtime, value);
  MOTLEY_TRY(const Specification spec, read_specification(specification));
  switch (value.kind()) {
    case Kind::string:
      return format_text(runtime, value.string().marked, spec);
    case Kind::boolean:
      return format_integer(runtime, value.boolean() ? 1 : 0, spec);
    case Kind::integer:
      return format_integer(runtime, value.integer(), spec);
    case Kind::number:
      return format_float(runtime, value.number(), spec);
    default:
      return failure(cat("unsupported format string passed to ", type_name(value), ".__format__"));
  }
}

Result<Value> format_percent(Runtime& runtime, const String& format, const Value& values) {
  return PercentFormat(runtime, format, values).run();
}

Result<Value> format_braces(Runtime& runtime, const String& format, const Arguments& arguments) {
  return BraceFormat(runtime, format, arguments).run();
}

}  // namespace motley::text::jinja
