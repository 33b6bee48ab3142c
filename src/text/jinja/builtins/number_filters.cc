// Filters about numbers and single values.

#include <array>
#include <cmath>

#include "base/cat.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins/filter_lists.h"
#include "text/jinja/operators.h"
#include "text/jinja/values/big_integer.h"
#include "text/jinja/values/numbers.h"

namespace motley::text::jinja {
namespace {

Result<Value> absolute(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("abs", {""}, 1));
  if (values[0].is(Kind::number)) return Value::number(std::fabs(values[0].number()));
  if (!is_numeric(values[0]))
    return failure(cat("bad operand type for abs(): '", type_name(values[0]), "'"));
  if (values[0].is(Kind::big_integer)) return absolute_big(runtime, values[0]);
  MOTLEY_TRY(const std::int64_t number, as_count(values[0]));
  return number < 0 ? negate(runtime, values[0]) : Value::integer(number);
}

Result<Value> default_value(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<3>("default", {"value", "default_value", "boolean"}, 1));
  bool replaced = values[0].is(Kind::undefined);
  if (!replaced && !values[2].is(Kind::missing)) {
    MOTLEY_TRY(const bool by_truth, truth(runtime, values[2]));
    MOTLEY_TRY(const bool is_true, truth(runtime, values[0]));
    replaced = by_truth && !is_true;
  }
  if (!replaced) return values[0];
  return values[1].is(Kind::missing) ? runtime.text("") : values[1];
}

// Counts the reading of a number, which copies the text.
Result<void> count_reading(Runtime& runtime, std::string_view text) {
  MOTLEY_TRY_VOID(runtime.step(1 + (text.size() / 16)));
  return runtime.reserve(3, text.size());
}

Result<Value> to_float(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("float", {"value", "default"}, 1));
  if (values[0].is(Kind::undefined)) return failure(values[0].undefined().message);
  if (is_numeric(values[0])) return Value::number(as_double(values[0]));
  if (values[0].is(Kind::string)) {
    MOTLEY_TRY_VOID(count_reading(runtime, values[0].string().text()));
    if (const auto number = read_float(values[0].string().text())) return Value::number(*number);
  }
  return values[1].is(Kind::missing) ? Value::number(0) : values[1];
}

Result<Value> to_integer(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("int", {"value", "default", "base"}, 1));
  const Value& value = values[0];
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  const Value otherwise = values[1].is(Kind::missing) ? Value::integer(0) : values[1];
  if (is_numeric(value) && !value.is(Kind::number)) return unary_plus(value);
  if (value.is(Kind::number))
    return std::isnan(value.number()) ? otherwise : integer_of(runtime, value.number());
  if (!value.is(Kind::string)) return otherwise;
  MOTLEY_TRY_VOID(count_reading(runtime, value.string().text()));
  // If the base is invalid, int() fails and float() is tried.
  const auto base_value = as_count_or(values[2], 10);
  const std::int64_t base = base_value.ok() ? *base_value : -1;
  const bool base_fits = base == 0 || (base >= 2 && base <= 36);
  if (base_fits) {
    const std::string_view text = value.string().text();
    if (const auto big = long_decimal(text); big && base == 10)
      return integer_of_digits(runtime, *big);
    MOTLEY_TRY(const auto number, read_integer(text, static_cast<int>(base)));
    if (number) return Value::integer(*number);
  }
  const auto number = read_float(value.string().text());
  if (!number || !std::isfinite(*number)) return otherwise;
  return integer_of(runtime, *number);
}

// round(integer, -digits), halves to even.
Result<Value> round_integer(std::int64_t number, std::int64_t digits) {
  if (digits > 18) return Value::integer(0);
  std::int64_t unit = 1;
  for (std::int64_t i = 0; i < digits; ++i) unit *= 10;
  std::int64_t rest = number % unit;
  if (rest < 0) rest += unit;
  const bool up = rest > unit - rest || (rest == unit - rest && ((number - rest) / unit) % 2 != 0);
  std::int64_t result = 0;
  if (__builtin_sub_overflow(number, rest, &result) ||
      (up && __builtin_add_overflow(result, unit, &result)))
    return Error(ErrorCode::unsupported, "an integer beyond 64 bits");
  return Value::integer(result);
}

// round(number, digits): the decimal digits are those of the exact value.
Result<Value> round_number(double number, std::int64_t digits) {
  if (!std::isfinite(number) || digits > 323) return Value::number(number);
  if (digits < -308) return Value::number(std::copysign(0.0, number));
  if (digits >= 0) {
    const std::string text = float_fixed(number, static_cast<int>(digits));
    return Value::number(read_float(text).value_or(number));
  }
  // Digits of the scientific form are as exact as those after the point.
  const std::string leading = float_scientific(number, 0);
  MOTLEY_TRY(const auto exponent, read_integer(leading.substr(leading.find('e') + 1), 10));
  const std::int64_t kept = exponent.value_or(0) + digits;
  if (kept < -1) return Value::number(std::copysign(0.0, number));
  if (kept == -1) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::number(std::fabs(number) > unit / 2 ? std::copysign(unit, number)
                                                      : std::copysign(0.0, number));
  }
  return Value::number(
      read_float(float_scientific(number, static_cast<int>(kept))).value_or(number));
}

Result<Value> round_filter(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("round", {"value", "precision", "method"}, 1));
  std::string_view method = "common";
  if (values[2].is(Kind::string)) method = values[2].string().text();
  const bool known = method == "common" || method == "ceil" || method == "floor";
  if (!known || !(values[2].is(Kind::missing) || values[2].is(Kind::string)))
    return failure("method must be common, ceil or floor");
  const Value& value = values[0];
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  if (!is_numeric(value))
    return failure(cat("type ", type_name(value), " doesn't define __round__ method"));
  if (method == "common" && values[1].is(Kind::none)) {
    if (!value.is(Kind::number)) return unary_plus(value);
    MOTLEY_TRY(const Value whole, round_number(value.number(), 0));
    return integer_of(runtime, whole.number());
  }
  MOTLEY_TRY(const std::int64_t digits, as_count_or(values[1], 0));
  if (method == "common") {
    if (value.is(Kind::number)) return round_number(value.number(), digits);
    if (digits >= 0) return unary_plus(value);
    MOTLEY_TRY(const std::int64_t whole, as_count(value));
    return round_integer(whole, -digits);
  }
  MOTLEY_TRY(const Value unit,
             compute(runtime, Arithmetic::power, Value::integer(10), Value::integer(digits)));
  MOTLEY_TRY(const Value scaled, compute(runtime, Arithmetic::multiply, value, unit));
  Value whole = scaled;
  if (scaled.is(Kind::number)) {
    MOTLEY_TRY(const std::int64_t cut, truncated(method == "ceil" ? std::ceil(scaled.number())
                                                                  : std::floor(scaled.number())));
    whole = Value::integer(cut);
  }
  return compute(runtime, Arithmetic::divide, whole, unit);
}

Result<Value> file_size(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("filesizeformat", {"value", "binary"}, 1));
  bool binary = false;
  if (!values[1].is(Kind::missing)) {
    MOTLEY_TRY(binary, truth(runtime, values[1]));
  }
  double bytes = 0;
  if (is_numeric(values[0])) {
    bytes = as_double(values[0]);
  } else {
    if (values[0].is(Kind::string))
      MOTLEY_TRY_VOID(count_reading(runtime, values[0].string().text()));
    const auto number =
        values[0].is(Kind::string) ? read_float(values[0].string().text()) : std::nullopt;
    if (!number) return failure(cat("filesizeformat takes a number, not ", type_name(values[0])));
    bytes = *number;
  }
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return runtime.text("1 Byte");
  if (bytes < base) {
    MOTLEY_TRY(const std::int64_t whole, truncated(bytes));
    return runtime.text(cat(whole, " Bytes"));
  }
  constexpr std::string_view prefixes = "kMGTPEZY";
  double unit = base;
  std::size_t prefix = 0;
  for (;; ++prefix) {
    unit *= base;
    if (bytes < unit || prefix + 1 == prefixes.size()) break;
  }
  std::string name(prefixes.substr(prefix, 1));
  if (binary) name = prefix == 0 ? "Ki" : name + "i";
  return runtime.text(cat(float_fixed(base * bytes / unit, 1), " ", name, "B"));
}

Result<Value> attribute(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("attr", {"obj", "name"}, 2));
  MOTLEY_TRY(const String* const name, as_text(values[1], "attr"));
  if (values[0].is(Kind::undefined)) return failure(values[0].undefined().message);
  // Only what Python itself finds: an item of that name does not count.
  if (!values[0].is(Kind::dict)) return get_attribute(runtime, values[0], name->text());
  const Value method = find_method(runtime, values[0], name->text());
  if (!method.is(Kind::missing)) return method;
  MOTLEY_TRY_VOID(runtime.scan(name->text().size()));
  MOTLEY_TRY_VOID(runtime.reserve(2, name->text().size()));
  return runtime.undefined(cat("'dict object' has no attribute '", name->text(), "'"));
}

constexpr Filter filters[] = {
    {"abs", absolute},          {"attr", attribute},           {"d", default_value},
    {"default", default_value}, {"filesizeformat", file_size}, {"float", to_float},
    {"int", to_integer},        {"round", round_filter},
};

}  // namespace

std::span<const Filter> number_filters() { return filters; }

}  // namespace motley::text::jinja
