#include "text/jinja/values/big_integer.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "base/cat.h"
#include "text/jinja/values/numbers.h"

namespace motley::text::jinja {
namespace {

// The decimal digits of an integer of any size, or of a double without fraction.
std::string digits_of(const Value& value) {
  if (value.is(Kind::big_integer)) return value.big_integer().digits;
  if (value.is(Kind::number)) return float_fixed(value.number(), 0);
  return cat(value.is(Kind::boolean) ? std::int64_t{value.boolean()} : value.integer());
}

std::strong_ordering compare_digits(std::string_view left, std::string_view right) {
  const bool negative = left.starts_with('-');
  if (negative != right.starts_with('-'))
    return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  if (negative) std::swap(left, right);
  if (left.size() != right.size()) return left.size() <=> right.size();
  return left <=> right;
}

}  // namespace

Result<Value> integer_of_digits(Runtime& runtime, std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  std::string text = cat(negative ? "-" : "", digits);
  if (digits.empty()) return Value::integer(0);
  const char* const end = text.data() + text.size();
  std::int64_t small = 0;
  if (std::from_chars(text.data(), end, small).ec == std::errc()) return Value::integer(small);
  double number = 0;
  if (std::from_chars(text.data(), end, number).ec != std::errc())
    return Error(ErrorCode::unsupported, "an integer beyond the range of a 64-bit float");
  runtime.heap().count(text.size());
  return Value::object(Kind::big_integer, &runtime.heap().make<BigInteger>(std::move(text)));
}

Result<Value> integer_of(Runtime& runtime, double number) {
  if (std::isnan(number)) return failure("cannot convert float NaN to integer");
  if (std::isinf(number)) return failure("cannot convert float infinity to integer");
  return integer_of_digits(runtime, float_fixed(std::trunc(number), 0));
}

Result<Value> negate_big(Runtime& runtime, const BigInteger& big) {
  if (is_negative(big)) return integer_of_digits(runtime, std::string_view(big.digits).substr(1));
  return integer_of_digits(runtime, cat("-", big.digits));
}

Result<Value> absolute_big(Runtime& runtime, const Value& big) {
  return is_negative(big.big_integer()) ? negate_big(runtime, big.big_integer()) : big;
}

bool is_negative(const BigInteger& big) { return big.digits.starts_with('-'); }

double as_double(const BigInteger& big) {
  double number = 0;
  std::from_chars(big.digits.data(), big.digits.data() + big.digits.size(), number);
  return number;
}

std::partial_ordering compare_big(const Value& left, const Value& right) {
  if (right.is(Kind::number)) {
    const double number = right.number();
    // Beyond 2^53 doubles have no fraction; of smaller ones the sign of the other decides.
    if (!std::isfinite(number) || std::fabs(number) < 0x1p53)
      return as_double(left.big_integer()) <=> number;
  } else if (left.is(Kind::number)) {
    return 0 <=> compare_big(right, left);
  }
  return compare_digits(digits_of(left), digits_of(right));
}

Error beyond_64_bits() { return Error(ErrorCode::unsupported, "an integer beyond 64 bits"); }

}  // namespace motley::text::jinja
