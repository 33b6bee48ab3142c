#include "text/jinja/syntax/attribute_path.h"

#include "text/jinja/attributes.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/numbers.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

bool all_digits(std::string_view text) {
  for (const char byte : text) {
    if (byte < '0' || byte > '9') return false;
  }
  return !text.empty();
}

Result<std::vector<Value>> split_at(Runtime& runtime, const String& text,
                                    std::string_view separator) {
  const Value by = runtime.text(separator);
  return split(runtime, text, &by.string(), -1);
}

}  // namespace

Result<AttributePath> AttributePath::read(Runtime& runtime, const Value& attribute) {
  AttributePath path;
  if (attribute.is(Kind::missing) || attribute.is(Kind::none)) return path;
  if (!attribute.is(Kind::string)) {
    path.keys_.push_back(attribute);
    return path;
  }
  MOTLEY_TRY(const std::vector<Value> parts, split_at(runtime, attribute.string(), "."));
  for (const Value& part : parts) {
    if (!all_digits(part.string().text())) {
      path.keys_.push_back(part);
      continue;
    }
    MOTLEY_TRY(const auto index, read_integer(part.string().text(), 10));
    path.keys_.push_back(Value::integer(index.value_or(0)));
  }
  return path;
}

Result<std::vector<AttributePath>> AttributePath::read_all(Runtime& runtime,
                                                           const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is(Kind::string)) {
    MOTLEY_TRY(AttributePath only, read(runtime, attribute));
    paths.push_back(std::move(only));
    return paths;
  }
  MOTLEY_TRY(const std::vector<Value> parts, split_at(runtime, attribute.string(), ","));
  for (const Value& part : parts) {
    MOTLEY_TRY(AttributePath path, read(runtime, part));
    paths.push_back(std::move(path));
  }
  return paths;
}

Result<Value> AttributePath::get(Runtime& runtime, const Value& item) const {
  Value value = item;
  for (const Value& key : keys_) {
    MOTLEY_TRY(value, get_item(runtime, value, key));
    if (value.is(Kind::undefined) && !default_.is(Kind::missing) && !default_.is(Kind::none))
      value = default_;
  }
  return value;
}

}  // namespace motley::text::jinja
