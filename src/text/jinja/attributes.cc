#include "text/jinja/attributes.h"

#include <array>

#include "base/cat.h"
#include "text/jinja/builtins/methods.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/values/represent.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

// How Jinja's messages name a value without an attribute.
std::string described(const Value& value) {
  if (value.is(Kind::none)) return "None";
  return cat(type_name(value), " object");
}

Value unsafe(Runtime& runtime, const Value& value, std::string_view name) {
  return runtime.undefined(
      cat("access to attribute '", name, "' of '", type_name(value), "' object is unsafe."));
}

Value lacks_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  return runtime.undefined(cat("'", described(value), "' has no attribute '", name, "'"));
}

struct NextOfCycler : Callable {
  explicit NextOfCycler(Cycler& of) : cycler(of) {}
  Result<Value> call(Runtime&, Arguments& arguments) override {
    MOTLEY_TRY_VOID(arguments.bind_nothing("next"));
    const Value value = cycler.items[cycler.position];
    cycler.position = (cycler.position + 1) % cycler.items.size();
    return value;
  }
  std::string name() const override { return "<bound method Cycler.next>"; }
  Cycler& cycler;
};

struct ResetOfCycler : Callable {
  explicit ResetOfCycler(Cycler& of) : cycler(of) {}
  Result<Value> call(Runtime&, Arguments& arguments) override {
    MOTLEY_TRY_VOID(arguments.bind_nothing("reset"));
    cycler.position = 0;
    return Value::none();
  }
  std::string name() const override { return "<bound method Cycler.reset>"; }
  Cycler& cycler;
};

Value cycler_attribute(Runtime& runtime, Cycler& cycler, std::string_view name) {
  if (name == "current") return cycler.items[cycler.position];
  // The caller has counted them as kept; the copy is counted as it is made.
  if (name == "items") return runtime.tuple(cycler.items);
  if (name == "next")
    return Value::object(Kind::callable,
                         static_cast<Callable*>(&runtime.heap().make<NextOfCycler>(cycler)));
  if (name == "reset")
    return Value::object(Kind::callable,
                         static_cast<Callable*>(&runtime.heap().make<ResetOfCycler>(cycler)));
  return {};
}

// The result of getattr(); missing if it finds nothing.
Result<Value> own_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::loop:
      return loop_attribute(runtime, value.loop(), name);
    case Kind::cycler:
      return cycler_attribute(runtime, value.cycler(), name);
    case Kind::name_space: {
      const Value* const found = value.name_space().attributes.find(name);
      return found == nullptr ? Value() : *found;
    }
    case Kind::tuple:
      if (value.sequence().is_group && name == "grouper") return value.sequence().items[0];
      if (value.sequence().is_group && name == "list") return value.sequence().items[1];
      break;
    case Kind::range:
      if (name == "start") return Value::integer(value.range().start);
      if (name == "stop") return Value::integer(value.range().stop);
      if (name == "step") return Value::integer(value.range().step);
      break;
    default:
      break;
  }
  const Value method = find_method(runtime, value, name);
  if (!method.is(Kind::missing)) return method;
  if (changes_in_place(value.kind(), name)) return unsafe(runtime, value, name);
  return Value();
}

// A position counted from either end, or -1.
std::ptrdiff_t position(std::int64_t index, std::size_t size) {
  const auto length = static_cast<std::int64_t>(size);
  if (index < 0) index += length;
  return index < 0 || index >= length ? -1 : static_cast<std::ptrdiff_t>(index);
}

// value[key] as in Python, or a missing value.
Result<Value> own_item(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::dict)) {
    const auto hashable = require_hashable(runtime, key);
    if (!hashable.ok() && hashable.error().code() == ErrorCode::invalid_argument) return Value();
    MOTLEY_TRY(const Value* const found, value.dict().find(runtime, key));
    return found == nullptr ? Value() : *found;
  }
  if (!key.is(Kind::integer) && !key.is(Kind::boolean)) return Value();
  const std::int64_t index =
      key.is(Kind::integer) ? key.integer() : static_cast<std::int64_t>(key.boolean());
  switch (value.kind()) {
    case Kind::list:
    case Kind::tuple: {
      const auto& items = value.sequence().items;
      const std::ptrdiff_t at = position(index, items.size());
      return at < 0 ? Value() : items[static_cast<std::size_t>(at)];
    }
    case Kind::range: {
      const std::ptrdiff_t at = position(index, static_cast<std::size_t>(value.range().size));
      return at < 0 ? Value() : value.range().at(at);
    }
    case Kind::string: {
      const String& string = value.string();
      if (!string.ascii) MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
      const std::ptrdiff_t at = position(index, length_of(string));
      if (at < 0) return Value();
      return characters_of(runtime, string, static_cast<std::size_t>(at),
                           static_cast<std::size_t>(at) + 1);
    }
    default:
      return Value();
  }
}

}  // namespace

Result<Value> get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  // The name may be compared with a key, and may be part of a message.
  MOTLEY_TRY_VOID(runtime.step(1 + (name.size() / 16)));
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  MOTLEY_TRY(const Value own, own_attribute(runtime, value, name));
  if (!own.is(Kind::missing)) return own;
  if (value.is(Kind::dict)) {
    if (const Value* const found = value.dict().find(name)) return *found;
  }
  return lacks_attribute(runtime, value, name);
}

Result<Value> get_item(Runtime& runtime, const Value& value, const Value& key) {
  MOTLEY_TRY_VOID(runtime.step());
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  MOTLEY_TRY(const Value item, own_item(runtime, value, key));
  if (!item.is(Kind::missing)) return item;
  if (key.is(Kind::string)) {
    const std::string_view name = key.string().text();
    MOTLEY_TRY_VOID(runtime.scan(name.size()));
    MOTLEY_TRY_VOID(runtime.reserve(2, name.size()));
    MOTLEY_TRY(const Value own, own_attribute(runtime, value, name));
    return own.is(Kind::missing) ? lacks_attribute(runtime, value, name) : own;
  }
  MOTLEY_TRY(const Value shown, represent(runtime, key));
  MOTLEY_TRY_VOID(runtime.reserve(2, shown.string().text().size()));
  return runtime.undefined(cat(described(value), " has no element ", shown.string().text()));
}

Result<Value> get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                        const Value& step) {
  if (value.is(Kind::undefined)) return failure(value.undefined().message);
  if (value.is(Kind::dict)) return failure("unhashable type: 'slice'");
  if (!value.is(Kind::string) && !value.is(Kind::list) && !value.is(Kind::tuple) &&
      !value.is(Kind::range))
    return failure(cat("'", type_name(value), "' object is not subscriptable"));
  MOTLEY_TRY(const std::size_t size, length(runtime, value));
  MOTLEY_TRY(const SliceBounds bounds, slice_bounds(size, start, stop, step));
  if (value.is(Kind::string)) return slice_text(runtime, value.string(), bounds);
  if (value.is(Kind::range)) {
    const Range& range = value.range();
    std::int64_t by = 0;
    if (__builtin_mul_overflow(range.step, bounds.step, &by))
      return Error(ErrorCode::unsupported, "an integer beyond 64 bits");
    const std::int64_t from = range.start + (bounds.start * range.step);
    const auto count = static_cast<std::int64_t>(bounds.count);
    return Value::object(Kind::range, &runtime.heap().make<Range>(from, from + (count * by), by));
  }
  MOTLEY_TRY_VOID(runtime.step(bounds.count));
  MOTLEY_TRY_VOID(runtime.reserve(bounds.count, sizeof(Value)));
  std::vector<Value> items;
  items.reserve(bounds.count);
  auto at = bounds.start;
  for (std::size_t i = 0; i < bounds.count; ++i) {
    items.push_back(value.sequence().items[static_cast<std::size_t>(at)]);
    if (i + 1 < bounds.count) at += bounds.step;
  }
  return value.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

}  // namespace motley::text::jinja
