#include "text/jinja/operators.h"

#include <cmath>
#include <limits>

#include "base/cat.h"
#include "text/jinja/loop.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/big_integer.h"
#include "text/jinja/values/format.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/text_search.h"

namespace motley::text::jinja {
namespace {

std::string_view symbol(Order order) {
  switch (order) {
    case Order::less:
      return "<";
    case Order::less_equal:
      return "<=";
    case Order::greater:
      return ">";
    case Order::greater_equal:
      return ">=";
  }
  return "?";
}

bool holds(Order order, std::partial_ordering result) {
  switch (order) {
    case Order::less:
      return result < 0;
    case Order::less_equal:
      return result <= 0;
    case Order::greater:
      return result > 0;
    case Order::greater_equal:
      return result >= 0;
  }
  return false;
}

bool is_integral(const Value& value) { return value.is(Kind::integer) || value.is(Kind::boolean); }

std::int64_t as_integer(const Value& value) {
  return value.is(Kind::boolean) ? static_cast<std::int64_t>(value.boolean()) : value.integer();
}

// Wide enough for every integer and every double.
long double widest(const Value& value) {
  return is_integral(value) ? static_cast<long double>(as_integer(value))
                            : static_cast<long double>(value.number());
}

std::partial_ordering compare_numbers(const Value& left, const Value& right) {
  if (left.is(Kind::big_integer) || right.is(Kind::big_integer)) return compare_big(left, right);
  if (is_integral(left) && is_integral(right)) return as_integer(left) <=> as_integer(right);
  return widest(left) <=> widest(right);
}

Result<bool> equal_items(Runtime& runtime, const std::vector<Value>& left,
                         const std::vector<Value>& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    MOTLEY_TRY(const bool same, equal(runtime, left[i], right[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Runtime& runtime, const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    MOTLEY_TRY(const Value* const other, right.find(runtime, key));
    if (other == nullptr) return false;
    MOTLEY_TRY(const bool same, equal(runtime, value, *other));
    if (!same) return false;
  }
  return true;
}

bool equal_ranges(const Range& left, const Range& right) {
  if (left.size != right.size) return false;
  return left.size == 0 ||
         (left.start == right.start && (left.size == 1 || left.step == right.step));
}

Error unsupported_operands(std::string_view operation, const Value& left, const Value& right) {
  return failure(cat("unsupported operand type(s) for ", operation, ": '", type_name(left),
                     "' and '", type_name(right), "'"));
}

Result<Value> compute_integers(Arithmetic operation, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (operation) {
    case Arithmetic::add:
      overflows = __builtin_add_overflow(left, right, &result);
      break;
    case Arithmetic::subtract:
      overflows = __builtin_sub_overflow(left, right, &result);
      break;
    case Arithmetic::multiply:
      overflows = __builtin_mul_overflow(left, right, &result);
      break;
    case Arithmetic::divide:
      if (right == 0) return failure("division by zero");
      return Value::number(
          static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right)));
    case Arithmetic::floor_divide:
    case Arithmetic::modulo: {
      if (right == 0) return failure("integer division or modulo by zero");
      if (right == -1)
        return compute_integers(Arithmetic::multiply, operation == Arithmetic::modulo ? 0 : left,
                                -1);
      std::int64_t quotient = left / right;
      std::int64_t rest = left % right;
      if (rest != 0 && (rest < 0) != (right < 0)) {
        quotient -= 1;
        rest += right;
      }
      result = operation == Arithmetic::modulo ? rest : quotient;
      break;
    }
    case Arithmetic::power: {
      if (right < 0) {
        if (left == 0) return failure("0.0 cannot be raised to a negative power");
        return Value::number(std::pow(static_cast<double>(left), static_cast<double>(right)));
      }
      result = 1;
      std::int64_t base = left;
      for (std::int64_t rest = right; rest > 0 && !overflows; rest >>= 1) {
        if ((rest & 1) != 0) overflows = __builtin_mul_overflow(result, base, &result);
        if (rest > 1 && __builtin_mul_overflow(base, base, &base)) overflows = true;
      }
      break;
    }
  }
  if (overflows) return beyond_64_bits();
  return Value::integer(result);
}

// Python's divmod of doubles: the remainder has the sign of the divisor.
std::pair<double, double> floor_and_rest(double left, double right) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0) {
    if ((right < 0) != (rest < 0)) {
      rest += right;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, right);
  }
  if (quotient == 0) return {std::copysign(0.0, left / right), rest};
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return {floor, rest};
}

Result<Value> compute_numbers(Arithmetic operation, double left, double right) {
  switch (operation) {
    case Arithmetic::add:
      return Value::number(left + right);
    case Arithmetic::subtract:
      return Value::number(left - right);
    case Arithmetic::multiply:
      return Value::number(left * right);
    case Arithmetic::divide:
      if (right == 0) return failure("float division by zero");
      return Value::number(left / right);
    case Arithmetic::floor_divide:
      if (right == 0) return failure("float floor division by zero");
      return Value::number(floor_and_rest(left, right).first);
    case Arithmetic::modulo:
      if (right == 0) return failure("float modulo");
      return Value::number(floor_and_rest(left, right).second);
    case Arithmetic::power: {
      if (left == 0 && right < 0) return failure("0.0 cannot be raised to a negative power");
      if (left < 0 && std::isfinite(left) && std::isfinite(right) && right != std::floor(right))
        return Error(ErrorCode::unsupported, "a power that is a complex number");
      const double result = std::pow(left, right);
      if (std::isinf(result) && std::isfinite(left) && std::isfinite(right))
        return failure("a power beyond the range of floating-point numbers");
      return Value::number(result);
    }
  }
  return unsupported_operands(symbol(operation), Value::number(left), Value::number(right));
}

bool is_sequence(const Value& value) { return value.is(Kind::list) || value.is(Kind::tuple); }

Result<Value> repeat(Runtime& runtime, const Value& sequence, std::int64_t count) {
  const std::size_t times = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (sequence.is(Kind::string)) return repeat_text(runtime, sequence.string(), times);
  const auto& items = sequence.sequence().items;
  MOTLEY_TRY_VOID(runtime.reserve(times, items.size() * sizeof(Value)));
  std::vector<Value> result;
  if (!items.empty()) {
    MOTLEY_TRY_VOID(runtime.step(times * items.size()));
    result.reserve(times * items.size());
    for (std::size_t i = 0; i < times; ++i) result.insert(result.end(), items.begin(), items.end());
  }
  return sequence.is(Kind::list) ? runtime.list(std::move(result))
                                 : runtime.tuple(std::move(result));
}

Result<Value> add_sequences(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is(Kind::string) && right.is(Kind::string))
    return add_texts(runtime, left.string(), right.string());
  if (left.kind() != right.kind())
    return failure(cat("can only concatenate ", type_name(left), " (not \"", type_name(right),
                       "\") to ", type_name(left)));
  const auto& first = left.sequence().items;
  const auto& more = right.sequence().items;
  MOTLEY_TRY_VOID(runtime.step(first.size() + more.size()));
  MOTLEY_TRY_VOID(runtime.reserve(first.size() + more.size(), sizeof(Value)));
  std::vector<Value> items;
  items.reserve(first.size() + more.size());
  items.insert(items.end(), first.begin(), first.end());
  items.insert(items.end(), more.begin(), more.end());
  return left.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

Result<bool> contains_item(Runtime& runtime, const Value& container, const Value& item) {
  MOTLEY_TRY(Cursor cursor, Cursor::over(container));
  while (true) {
    MOTLEY_TRY(const Value each, cursor.next(runtime));
    if (each.is(Kind::missing)) return false;
    MOTLEY_TRY(const bool same, equal(runtime, each, item));
    if (same) return true;
  }
}

}  // namespace

bool is_numeric(const Value& value) {
  return is_integral(value) || value.is(Kind::big_integer) || value.is(Kind::number);
}

double as_double(const Value& value) {
  if (value.is(Kind::big_integer)) return as_double(value.big_integer());
  return value.is(Kind::number) ? value.number() : static_cast<double>(as_integer(value));
}

bool has_length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

Result<std::size_t> length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return std::size_t{0};
    case Kind::string:
      if (!value.string().ascii) MOTLEY_TRY_VOID(runtime.scan(value.string().text().size()));
      return length_of(value.string());
    case Kind::list:
    case Kind::tuple:
      return value.sequence().items.size();
    case Kind::dict:
      return value.dict().size();
    case Kind::view:
      return value.view().dict.size();
    case Kind::range:
      return static_cast<std::size_t>(value.range().size);
    case Kind::loop:
      return value.loop().length(runtime);
    default:
      return failure(cat("object of type '", type_name(value), "' has no len()"));
  }
}

Result<bool> truth(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean();
    case Kind::integer:
      return value.integer() != 0;
    case Kind::big_integer:
      return true;
    case Kind::number:
      return value.number() != 0;
    default:
      break;
  }
  if (!has_length(value)) return true;
  MOTLEY_TRY(const std::size_t size, length(runtime, value));
  return size > 0;
}

Result<bool> equal(Runtime& runtime, const Value& left, const Value& right) {
  MOTLEY_TRY_VOID(runtime.step());
  if (is_numeric(left) && is_numeric(right)) return compare_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  MOTLEY_TRY(const auto deeper, runtime.deeper());
  switch (left.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      if (left.string().text().size() != right.string().text().size()) return false;
      MOTLEY_TRY_VOID(runtime.scan(left.string().text().size()));
      return left.string().text() == right.string().text();
    case Kind::list:
    case Kind::tuple:
      if (left.same_as(right)) return true;
      return equal_items(runtime, left.sequence().items, right.sequence().items);
    case Kind::dict:
      if (left.same_as(right)) return true;
      return equal_dicts(runtime, left.dict(), right.dict());
    case Kind::range:
      return equal_ranges(left.range(), right.range());
    default:
      return left.same_as(right);
  }
}

Result<bool> compare(Runtime& runtime, Order order, const Value& left, const Value& right) {
  MOTLEY_TRY_VOID(runtime.step());
  if (left.is(Kind::undefined)) return failure(left.undefined().message);
  if (right.is(Kind::undefined)) return failure(right.undefined().message);
  if (is_numeric(left) && is_numeric(right)) return holds(order, compare_numbers(left, right));
  if (left.kind() == right.kind() && left.is(Kind::string)) {
    MOTLEY_TRY_VOID(
        runtime.scan(std::min(left.string().text().size(), right.string().text().size())));
    // The byte order of UTF-8 is the order of code points.
    return holds(order, left.string().text() <=> right.string().text());
  }
  if (left.kind() == right.kind() && is_sequence(left)) {
    MOTLEY_TRY(const auto deeper, runtime.deeper());
    const auto& ours = left.sequence().items;
    const auto& theirs = right.sequence().items;
    for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      MOTLEY_TRY(const bool same, equal(runtime, ours[i], theirs[i]));
      if (!same) return compare(runtime, order, ours[i], theirs[i]);
    }
    return holds(order, ours.size() <=> theirs.size());
  }
  return failure(cat("'", symbol(order), "' not supported between instances of '", type_name(left),
                     "' and '", type_name(right), "'"));
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is(Kind::string))
        return failure(cat("'in <string>' requires string as left operand, not ", type_name(item)));
      MOTLEY_TRY_VOID(runtime.scan(container.string().text().size() + item.string().text().size()));
      return find_first(container.string().text(), item.string().text()) != nowhere;
    case Kind::dict: {
      MOTLEY_TRY(const Value* const found, container.dict().find(runtime, item));
      return found != nullptr;
    }
    case Kind::view:
      if (container.view().part == View::Of::keys) {
        MOTLEY_TRY(const Value* const found, container.view().dict.find(runtime, item));
        return found != nullptr;
      }
      return contains_item(runtime, container, item);
    default:
      if (!Cursor::can_walk(container))
        return failure(cat("argument of type '", type_name(container), "' is not iterable"));
      return contains_item(runtime, container, item);
  }
}

Result<void> require_hashable(Runtime& runtime, const Value& value) {
  if (!is_hashable_kind(value.kind()))
    return failure(cat("unhashable type: '", type_name(value), "'"));
  if (!value.is(Kind::tuple)) return {};
  MOTLEY_TRY(const auto deeper, runtime.deeper());
  for (const Value& item : value.sequence().items) {
    MOTLEY_TRY_VOID(runtime.step());
    MOTLEY_TRY_VOID(require_hashable(runtime, item));
  }
  return {};
}

std::string_view symbol(Arithmetic operation) {
  switch (operation) {
    case Arithmetic::add:
      return "+";
    case Arithmetic::subtract:
      return "-";
    case Arithmetic::multiply:
      return "*";
    case Arithmetic::divide:
      return "/";
    case Arithmetic::floor_divide:
      return "//";
    case Arithmetic::modulo:
      return "%";
    case Arithmetic::power:
      return "** or pow()";
  }
  return "?";
}

Result<Value> compute(Runtime& runtime, Arithmetic operation, const Value& left,
                      const Value& right) {
  if (operation == Arithmetic::modulo && left.is(Kind::string))
    return format_percent(runtime, left.string(), right);
  if (left.is(Kind::undefined)) return failure(left.undefined().message);
  if (right.is(Kind::undefined)) return failure(right.undefined().message);
  if (is_integral(left) && is_integral(right))
    return compute_integers(operation, as_integer(left), as_integer(right));
  const bool any_big = left.is(Kind::big_integer) || right.is(Kind::big_integer);
  const bool any_float = left.is(Kind::number) || right.is(Kind::number);
  if (any_big && is_numeric(left) && is_numeric(right) && !any_float) return beyond_64_bits();
  if (is_numeric(left) && is_numeric(right))
    return compute_numbers(operation, as_double(left), as_double(right));
  const bool left_repeats = left.is(Kind::string) || is_sequence(left);
  const bool right_repeats = right.is(Kind::string) || is_sequence(right);
  if (operation == Arithmetic::multiply) {
    if (left_repeats && is_integral(right)) return repeat(runtime, left, as_integer(right));
    if (right_repeats && is_integral(left)) return repeat(runtime, right, as_integer(left));
    if (any_big && (left_repeats || right_repeats)) return beyond_64_bits();
    if (left_repeats || right_repeats)
      return failure(cat("can't multiply sequence by non-int of type '",
                         type_name(left_repeats ? right : left), "'"));
  }
  if (operation == Arithmetic::add && left_repeats) return add_sequences(runtime, left, right);
  return unsupported_operands(symbol(operation), left, right);
}

Result<Value> negate(Runtime& runtime, const Value& value) {
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  if (value.is(Kind::number)) return Value::number(-value.number());
  if (value.is(Kind::big_integer)) return negate_big(runtime, value.big_integer());
  if (is_integral(value) && as_integer(value) == INT64_MIN)
    return integer_of_digits(runtime, "9223372036854775808");
  if (is_integral(value)) return compute_integers(Arithmetic::subtract, 0, as_integer(value));
  return failure(cat("bad operand type for unary -: '", type_name(value), "'"));
}

Result<Value> unary_plus(const Value& value) {
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  if (value.is(Kind::number) || value.is(Kind::big_integer)) return value;
  if (is_integral(value)) return Value::integer(as_integer(value));
  return failure(cat("bad operand type for unary +: '", type_name(value), "'"));
}

}  // namespace motley::text::jinja
