#include "text/jinja/builtins/methods.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "text/jinja/attributes.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/cursor.h"

namespace motley::text::jinja {
namespace {

struct BoundMethod : Callable {
  BoundMethod(const Value& of, const Method& which) : self(of), method(which) {}

  Result<Value> call(Runtime& runtime, Arguments& arguments) override {
    return method.call(runtime, self, arguments);
  }
  std::string name() const override {
    return cat("<built-in method ", method.name, " of ", type_name(self), " object>");
  }

  Value self;
  const Method& method;
};

// ------------------------------------------------------------------------------------------ lists

// Counts the memory that a list grows by, before it does.
Result<void> make_room(Runtime& runtime, std::vector<Value>& items, std::size_t more) {
  if (more <= items.capacity() - items.size()) return {};
  const std::size_t wanted = std::max(items.size() + more, 2 * items.size());
  MOTLEY_TRY_VOID(runtime.reserve(wanted, sizeof(Value)));
  runtime.heap().count((wanted - items.capacity()) * sizeof(Value));
  items.reserve(wanted);
  return {};
}

Result<Value> append(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("append", {""}, 1));
  MOTLEY_TRY_VOID(make_room(runtime, self.sequence().items, 1));
  self.sequence().items.push_back(values[0]);
  return Value::none();
}

Result<Value> extend(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("extend", {""}, 1));
  MOTLEY_TRY(const std::vector<Value> more, to_vector(runtime, values[0]));
  auto& items = self.sequence().items;
  MOTLEY_TRY_VOID(runtime.step(more.size() / 8));
  MOTLEY_TRY_VOID(make_room(runtime, items, more.size()));
  items.insert(items.end(), more.begin(), more.end());
  return Value::none();
}

Result<Value> insert(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("insert", {"", ""}, 2));
  MOTLEY_TRY(std::int64_t at, as_count(values[0]));
  auto& items = self.sequence().items;
  const auto size = static_cast<std::int64_t>(items.size());
  if (at < 0) at = std::max<std::int64_t>(at, -size) + size;
  at = std::min(at, size);
  MOTLEY_TRY_VOID(runtime.step(1 + (items.size() / 32)));
  MOTLEY_TRY_VOID(make_room(runtime, items, 1));
  items.insert(items.begin() + at, values[1]);
  return Value::none();
}

Result<Value> pop(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("pop", {""}, 0));
  MOTLEY_TRY(std::int64_t at, as_count_or(values[0], -1));
  auto& items = self.sequence().items;
  if (items.empty()) return failure("pop from empty list");
  const auto size = static_cast<std::int64_t>(items.size());
  if (at < 0 && at >= -size) at += size;
  if (at < 0 || at >= size) return failure("pop index out of range");
  MOTLEY_TRY_VOID(runtime.step(1 + (items.size() / 32)));
  const Value value = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + at);
  return value;
}

Result<Value> copy_list(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("copy"));
  MOTLEY_TRY_VOID(runtime.step(self.sequence().items.size()));
  MOTLEY_TRY_VOID(runtime.reserve(self.sequence().items.size(), sizeof(Value)));
  return runtime.list(self.sequence().items);
}

Result<Value> count_items(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("count", {""}, 1));
  MOTLEY_TRY(Cursor cursor, Cursor::over(self));
  std::int64_t count = 0;
  while (true) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return Value::integer(count);
    MOTLEY_TRY(const bool same, equal(runtime, item, values[0]));
    if (same) ++count;
  }
}

Result<Value> index_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("index", {"", "", ""}, 1));
  const auto size = static_cast<std::int64_t>(self.sequence().items.size());
  const auto clamped = [size](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
  };
  MOTLEY_TRY(const std::int64_t begin, as_count_or(values[1], 0));
  MOTLEY_TRY(const std::int64_t end, as_count_or(values[2], size));
  for (std::int64_t at = clamped(begin); at < clamped(end); ++at) {
    MOTLEY_TRY(const bool same,
               equal(runtime, self.sequence().items[static_cast<std::size_t>(at)], values[0]));
    if (same) return Value::integer(at);
  }
  return failure(cat(type_name(self), ".index(x): x not in ", type_name(self)));
}

constexpr Method list_methods[] = {
    {"append", append},  {"copy", copy_list}, {"count", count_items}, {"extend", extend},
    {"index", index_of}, {"insert", insert},  {"pop", pop},
};
constexpr Method tuple_methods[] = {{"count", count_items}, {"index", index_of}};
constexpr Method range_methods[] = {{"count", count_items}};

// ------------------------------------------------------------------------------------------ dicts

template <View::Of part>
Result<Value> view(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("this method"));
  return Value::object(Kind::view, &runtime.heap().make<View>(self.dict(), part));
}

Result<Value> get(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("get", {"", ""}, 1));
  MOTLEY_TRY(const Value* const found, self.dict().find(runtime, values[0]));
  if (found != nullptr) return *found;
  return values[1].is(Kind::missing) ? Value::none() : values[1];
}

Result<Value> copy_dict(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("copy"));
  auto& copy = runtime.heap().make<Dict>();
  for (const auto& [key, value] : self.dict().entries())
    MOTLEY_TRY_VOID(copy.set(runtime, key, value));
  return Value::object(Kind::dict, &copy);
}

constexpr Method dict_methods[] = {
    {"copy", copy_dict},
    {"get", get},
    {"items", view<View::Of::items>},
    {"keys", view<View::Of::keys>},
    {"values", view<View::Of::values>},
};

std::span<const Method> methods_of(Kind kind) {
  switch (kind) {
    case Kind::string:
      return string_methods();
    case Kind::list:
      return list_methods;
    case Kind::tuple:
      return tuple_methods;
    case Kind::range:
      return range_methods;
    case Kind::dict:
      return dict_methods;
    default:
      return {};
  }
}

}  // namespace

Value find_method(Runtime& runtime, const Value& value, std::string_view name) {
  const std::span<const Method> methods = methods_of(value.kind());
  const auto found = std::ranges::lower_bound(methods, name, {}, &Method::name);
  if (found == methods.end() || found->name != name) return {};
  return Value::object(Kind::callable,
                       static_cast<Callable*>(&runtime.heap().make<BoundMethod>(value, *found)));
}

bool changes_in_place(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 4> of_lists = {"clear", "remove", "reverse", "sort"};
  constexpr std::array<std::string_view, 5> of_dicts = {"clear", "pop", "popitem", "setdefault",
                                                        "update"};
  if (kind == Kind::list) return std::ranges::find(of_lists, name) != of_lists.end();
  if (kind == Kind::dict) return std::ranges::find(of_dicts, name) != of_dicts.end();
  return false;
}

}  // namespace motley::text::jinja
