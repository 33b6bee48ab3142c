#include "text/jinja/builtins/arguments.h"

#include "text/jinja/operators.h"
#include "text/jinja/values/big_integer.h"

namespace motley::text::jinja {

Result<std::int64_t> as_count(const Value& value) {
  if (value.is(Kind::integer)) return value.integer();
  if (value.is(Kind::boolean)) return std::int64_t{value.boolean()};
  if (value.is(Kind::big_integer)) return beyond_64_bits();
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  return failure(cat("'", type_name(value), "' object cannot be interpreted as an integer"));
}

Result<std::int64_t> as_count_or(const Value& value, std::int64_t if_missing) {
  if (value.is(Kind::missing)) return if_missing;
  return as_count(value);
}

Result<bool> as_flag(Runtime& runtime, const Value& value) {
  if (value.is(Kind::missing)) return false;
  return truth(runtime, value);
}

Result<const String*> as_text(const Value& value, std::string_view function) {
  if (value.is(Kind::string)) return &value.string();
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  return failure(cat(function, "() takes a string, not ", type_name(value)));
}

}  // namespace motley::text::jinja
