// "%5.2f" % values

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/operators.h"
#include "text/jinja/values/big_integer.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/format.h"
#include "text/jinja/values/format_digits.h"
#include "text/jinja/values/numbers.h"
#include "text/jinja/values/represent.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

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

  // The flag that a character before the width sets; null if it is none.
  bool* flag(char byte) {
    if (byte == '-') return &left;
    if (byte == '0') return &zero;
    if (byte == '+') return &plus;
    if (byte == ' ') return &blank;
    return byte == '#' ? &alternate : nullptr;
  }
};

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const String& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values), out_(runtime) {}

  Result<Value> run() {
    const std::string_view text = format_.text();
    MOTLEY_TRY_VOID(runtime_.scan(text.size()));
    std::size_t begin = 0;
    while (true) {
      const std::size_t at = std::min(text.find('%', begin), text.size());
      MOTLEY_TRY_VOID(out_.append_part(format_.marked, begin, at));
      if (at == text.size()) break;
      begin = at + 1;
      MOTLEY_TRY_VOID(runtime_.step());
      MOTLEY_TRY(const PercentField field, read_field(begin));
      MOTLEY_TRY_VOID(write(field));
    }
    // A mapping may have unused entries; so may, in Python, anything that can be indexed.
    const bool may_rest = used_mapping_ || values_.is(Kind::dict) || values_.is(Kind::list) ||
                          values_.is(Kind::range) || values_.is(Kind::undefined);
    if (!may_rest && taken_ < given())
      return failure("not all arguments converted during string formatting");
    return out_.finish(format_.markup);
  }

 private:
  std::size_t given() const {
    return values_.is(Kind::tuple) ? values_.sequence().items.size() : 1;
  }

  Result<Value> next_value() {
    if (taken_ >= given()) return failure("not enough arguments for format string");
    const std::size_t at = taken_++;
    return values_.is(Kind::tuple) ? values_.sequence().items[at] : values_;
  }

  Result<std::int64_t> read_size(std::size_t& at) {
    if (at < format_.text().size() && format_.text()[at] == '*') {
      ++at;
      MOTLEY_TRY(const Value value, next_value());
      if (!value.is(Kind::integer)) return failure("* wants int");
      return std::clamp<std::int64_t>(value.integer(), -1'000'000'000, 1'000'000'000);
    }
    return read_amount(format_.text(), at);
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
    for (; at < text.size(); ++at) {
      bool* const flag = field.flag(text[at]);
      if (flag == nullptr) break;
      *flag = true;
    }
    MOTLEY_TRY(field.width, read_size(at));
    if (field.width < 0) {
      field.left = true;
      field.width = -field.width;
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
      MOTLEY_TRY(field.precision, read_size(at));
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
    const std::string_view key =
        format_.text().substr(field.key_begin, field.key_end - field.key_begin);
    MOTLEY_TRY_VOID(runtime_.step(key.size() / 4));
    const Value* const found = values_.dict().find(key);
    if (found == nullptr)
      return failure(cat("the format's mapping lacks the key ", quote(shortened(key))));
    return *found;
  }

  Result<void> write(const PercentField& field) {
    if (field.type == '%') return out_.append("%", false);
    MOTLEY_TRY(const Value value, value_of(field));
    const auto is_one_of = [&](std::string_view types) {
      return types.find(field.type) != std::string_view::npos;
    };
    if (is_one_of("sra")) return write_text(field, value);
    if (field.type == 'c') return write_character(field, value);
    if (is_one_of("diuoxX")) return write_integer(field, value);
    if (is_one_of("eEfFgG")) return write_float(field, value);
    return failure(cat("unsupported format character ", quote(std::string_view(&field.type, 1))));
  }

  Result<void> put(const PercentField& field, const MarkedText& text) {
    const MarkedText blank{.text = " "};
    const std::int64_t length = utf8::count(text.text);
    const std::size_t space =
        field.width > length ? static_cast<std::size_t>(field.width - length) : 0;
    if (!field.left) MOTLEY_TRY_VOID(out_.append_times(blank, space));
    MOTLEY_TRY_VOID(out_.append(text));
    return field.left ? out_.append_times(blank, space) : Result<void>();
  }

  Result<void> write_text(const PercentField& field, const Value& value) {
    MOTLEY_TRY(Value text,
               field.type == 's' ? to_string(runtime_, value) : represent(runtime_, value));
    if (format_.markup && !(value.is(Kind::string) && value.string().markup)) {
      MOTLEY_TRY(text, escape_html(runtime_, text.string()));
    }
    MOTLEY_TRY_VOID(runtime_.scan(text.string().text().size()));
    if (field.precision >= 0) {
      const std::size_t end =
          byte_of_character(text.string().text(), static_cast<std::size_t>(field.precision));
      MOTLEY_TRY(text, part_of(runtime_, text.string(), 0, end));
    }
    return put(field, text.string().marked);
  }

  Result<void> write_character(const PercentField& field, const Value& value) {
    MarkedText text;
    if (value.is(Kind::string) && length_of(value.string()) == 1) {
      text = value.string().marked;
    } else if (value.is(Kind::integer)) {
      if (value.integer() < 0 || value.integer() > 0x10FFFF)
        return failure("%c arg not in range(0x110000)");
      utf8::append(text.text, static_cast<char32_t>(value.integer()));
    } else {
      return failure("%c requires int or char");
    }
    return put(field, text);
  }

  Result<void> write_number(const PercentField& field, bool negative, std::string_view prefix,
                            std::string digits) {
    std::string sign(negative ? "-" : field.plus ? "+" : field.blank ? " " : "");
    sign += prefix;
    const auto length = static_cast<std::int64_t>(sign.size() + digits.size());
    if (field.zero && !field.left && field.width > length) {
      MOTLEY_TRY_VOID(count_digits(runtime_, field.width));
      digits.insert(0, static_cast<std::size_t>(field.width - length), '0');
    }
    return put(field, MarkedText{.text = sign + digits});
  }

  // Up to the field's precision.
  Result<std::string> with_zeros(const PercentField& field, std::string digits) const {
    if (field.precision > static_cast<std::int64_t>(digits.size())) {
      MOTLEY_TRY_VOID(count_digits(runtime_, field.precision));
      digits.insert(0, static_cast<std::size_t>(field.precision) - digits.size(), '0');
    }
    return digits;
  }

  Result<void> write_big_integer(const PercentField& field, const BigInteger& big) {
    if (field.type != 'd' && field.type != 'i' && field.type != 'u') return beyond_64_bits();
    const bool negative = is_negative(big);
    MOTLEY_TRY(std::string digits, with_zeros(field, big.digits.substr(negative ? 1 : 0)));
    return write_number(field, negative, "", std::move(digits));
  }

  Result<void> write_integer(const PercentField& field, const Value& value) {
    const bool decimal = field.type == 'd' || field.type == 'i' || field.type == 'u';
    if (value.is(Kind::big_integer)) return write_big_integer(field, value.big_integer());
    std::int64_t number = 0;
    if (value.is(Kind::integer) || value.is(Kind::boolean)) {
      MOTLEY_TRY(number, as_count(value));
    } else if (value.is(Kind::number) && decimal) {
      MOTLEY_TRY(number, truncated(value.number()));
    } else {
      if (value.is(Kind::undefined)) return failure(value.undefined().message);
      return failure(cat("%", std::string_view(&field.type, 1),
                         " format: ", decimal ? "a real number" : "an integer",
                         " is required, not ", type_name(value)));
    }
    const unsigned base = decimal ? 10 : field.type == 'o' ? 8 : 16;
    MOTLEY_TRY(std::string digits,
               with_zeros(field, in_base(magnitude(number), base, field.type == 'X')));
    const std::string_view prefix = !field.alternate || decimal ? ""
                                    : base == 8                 ? "0o"
                                    : field.type == 'X'         ? "0X"
                                                                : "0x";
    return write_number(field, number < 0, prefix, std::move(digits));
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
    MOTLEY_TRY_VOID(count_digits(runtime_, precision));
    std::string digits =
        float_digits(number, field.type, static_cast<int>(precision), field.alternate);
    return write_number(field, std::signbit(number) && !std::isnan(number), "", std::move(digits));
  }

  Runtime& runtime_;
  const String& format_;
  const Value& values_;
  std::size_t taken_ = 0;
  bool used_mapping_ = false;
  TextBuilder out_;
};

}  // namespace

Result<Value> format_percent(Runtime& runtime, const String& format, const Value& values) {
  return PercentFormat(runtime, format, values).run();
}

}  // namespace motley::text::jinja
