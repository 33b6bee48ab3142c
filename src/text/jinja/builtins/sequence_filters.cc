// Filters over several values.

#include <algorithm>
#include <array>
#include <functional>

#include "base/cat.h"
#include "text/jinja/builtins/filter_lists.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/attribute_path.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/represent.h"
#include "text/jinja/values/sorting.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

template <class T, class... Parameters>
Value generate(Runtime& runtime, Parameters&&... parameters) {
  auto& made = runtime.heap().make<T>(std::forward<Parameters>(parameters)...);
  return Value::object(Kind::generator, static_cast<Generator*>(&made));
}

// Counts the arguments that a generator keeps.
void count_kept(Runtime& runtime, const Arguments& arguments) {
  runtime.heap().count((arguments.positional.size() * sizeof(Value)) +
                       (arguments.keyword.size() * sizeof(arguments.keyword[0])));
}

// Copies them with a value in front, for a call.
Result<Arguments> with_value(Runtime& runtime, const Arguments& arguments, const Value& value) {
  MOTLEY_TRY_VOID(runtime.step((arguments.positional.size() + arguments.keyword.size()) / 8));
  Arguments call;
  call.positional.reserve(arguments.positional.size() + 1);
  call.positional.push_back(value);
  call.positional.insert(call.positional.end(), arguments.positional.begin(),
                         arguments.positional.end());
  call.keyword = arguments.keyword;
  return call;
}

// A generator over a list that is computed when the first value is requested.
struct Deferred : Generator {
  using Make = std::function<Result<std::vector<Value>>(Runtime&)>;
  explicit Deferred(Make how) : make(std::move(how)) {}

  Result<Value> next(Runtime& runtime) override {
    if (make != nullptr) {
      MOTLEY_TRY(items, std::exchange(make, nullptr)(runtime));
      runtime.heap().count(items.capacity() * sizeof(Value));
    }
    return at < items.size() ? items[at++] : Value();
  }

  Make make;
  std::vector<Value> items;
  std::size_t at = 0;
};

// A string in lower case unless case matters; other values are unchanged.
Result<Value> sort_key(Runtime& runtime, const AttributePath& path, const Value& item,
                       bool case_counts) {
  MOTLEY_TRY(const Value key, path.get(runtime, item));
  if (case_counts || !key.is(Kind::string)) return key;
  return in_case(runtime, key.string(), Case::lower);
}

Result<Value> ordered(Runtime& runtime, const std::vector<Value>& items,
                      const std::vector<std::size_t>& order) {
  MOTLEY_TRY_VOID(runtime.reserve(items.size(), sizeof(Value)));
  std::vector<Value> result;
  result.reserve(items.size());
  for (const std::size_t at : order) result.push_back(items[at]);
  return runtime.list(std::move(result));
}

// Appends to a list that grows by doubling, and becomes a value later.
Result<void> add(Runtime& runtime, std::vector<Value>& items, const Value& item) {
  if (items.size() == items.capacity())
    MOTLEY_TRY_VOID(runtime.reserve(1 + (3 * items.size()), sizeof(Value)));
  items.push_back(item);
  return {};
}

// --------------------------------------------------------------------------------- one by one

struct MappedAttribute : Generator {
  MappedAttribute(Cursor from, AttributePath which) : cursor(from), path(std::move(which)) {}
  Result<Value> next(Runtime& runtime) override {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return item;
    return path.get(runtime, item);
  }
  Cursor cursor;
  AttributePath path;
};

// An unknown filter or test is only an error if there is an item to apply it to.
struct MappedFilter : Generator {
  MappedFilter(Cursor from, const Filter* which, std::string called, Arguments with)
      : cursor(from), filter(which), name(std::move(called)), arguments(std::move(with)) {}
  Result<Value> next(Runtime& runtime) override {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return item;
    if (filter == nullptr) return failure(cat("No filter named ", shortened(name), "."));
    MOTLEY_TRY(Arguments call, with_value(runtime, arguments, item));
    return filter->call(runtime, call);
  }
  Cursor cursor;
  const Filter* filter;
  std::string name;
  Arguments arguments;
};

// A copy of a text that a generator keeps for messages.
std::string kept_name(Runtime& runtime, const Value& name) {
  std::string kept(name.string().text());
  runtime.heap().count_text(kept);
  return kept;
}

struct FailsWhenRead : Generator {
  explicit FailsWhenRead(std::string why) : message(std::move(why)) {}
  Result<Value> next(Runtime&) override { return failure(message); }
  std::string message;
};

Value not_iterable(Runtime& runtime, const Value& value) {
  return generate<FailsWhenRead>(runtime, cat("'", type_name(value), "' object is not iterable"));
}

Value empty_generator(Runtime& runtime) {
  return generate<Deferred>(
      runtime, [](Runtime&) -> Result<std::vector<Value>> { return std::vector<Value>(); });
}

// All arguments except the filtered value.
Arguments behind_value(const Arguments& arguments) {
  return {.positional = {arguments.positional.begin() + 1, arguments.positional.end()},
          .keyword = arguments.keyword};
}

Result<Value> map(Runtime& runtime, Arguments& arguments) {
  const Value value = arguments.positional[0];
  count_kept(runtime, arguments);
  MOTLEY_TRY(const bool any, truth(runtime, value));
  if (!any) return empty_generator(runtime);
  if (!Cursor::can_walk(value)) return not_iterable(runtime, value);
  MOTLEY_TRY(Cursor cursor, Cursor::over(value));
  Arguments rest = behind_value(arguments);
  if (rest.positional.empty()) {
    Value attribute;
    Value otherwise;
    for (const auto& [name, given] : rest.keyword) {
      if (name != "attribute" && name != "default")
        return generate<FailsWhenRead>(
            runtime,
            kept_name(runtime, runtime.text(cat("Unexpected keyword argument '", name, "'"))));
      (name == "attribute" ? attribute : otherwise) = given;
    }
    if (attribute.is(Kind::missing))
      return generate<FailsWhenRead>(runtime, "map requires a filter argument");
    MOTLEY_TRY(AttributePath path, AttributePath::read(runtime, attribute));
    path.set_default(otherwise);
    return generate<MappedAttribute>(runtime, cursor, std::move(path));
  }
  const Value name = rest.positional[0];
  rest.positional.erase(rest.positional.begin());
  const Filter* const filter = name.is(Kind::string) ? find_filter(name.string().text()) : nullptr;
  MOTLEY_TRY(const Value shown, represent(runtime, name));
  return generate<MappedFilter>(runtime, cursor, filter, kept_name(runtime, shown),
                                std::move(rest));
}

struct Selected : Generator {
  Selected(Cursor from, AttributePath which, std::string called, Arguments with, bool passing)
      : cursor(from),
        path(std::move(which)),
        name(std::move(called)),
        arguments(std::move(with)),
        keeps(passing) {}

  Result<Value> next(Runtime& runtime) override {
    while (true) {
      MOTLEY_TRY(const Value item, cursor.next(runtime));
      if (item.is(Kind::missing)) return item;
      MOTLEY_TRY(const bool passes, holds(runtime, item));
      if (passes == keeps) return item;
    }
  }

  Result<bool> holds(Runtime& runtime, const Value& item) {
    MOTLEY_TRY(const Value value, path.get(runtime, item));
    if (name.empty()) return truth(runtime, value);
    const Test* const test = find_test(name);
    if (test == nullptr) return failure(cat("No test named ", quote(shortened(name)), "."));
    MOTLEY_TRY(Arguments call, with_value(runtime, arguments, value));
    return test->call(runtime, call);
  }

  Cursor cursor;
  AttributePath path;
  std::string name;  // of the test; empty: the value's truth
  Arguments arguments;
  bool keeps;
};

template <bool keeps, bool by_attribute>
Result<Value> select(Runtime& runtime, Arguments& arguments) {
  const Value value = arguments.positional[0];
  count_kept(runtime, arguments);
  MOTLEY_TRY(const bool any, truth(runtime, value));
  if (!any) return empty_generator(runtime);
  if (!Cursor::can_walk(value)) return not_iterable(runtime, value);
  MOTLEY_TRY(Cursor cursor, Cursor::over(value));
  Arguments rest = behind_value(arguments);
  AttributePath path;
  if (by_attribute) {
    if (rest.positional.empty())
      return generate<FailsWhenRead>(runtime, "Missing parameter for attribute name");
    MOTLEY_TRY(path, AttributePath::read(runtime, rest.positional[0]));
    rest.positional.erase(rest.positional.begin());
  }
  std::string name;
  if (!rest.positional.empty()) {
    const Value given = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
    const bool is_name = given.is(Kind::string) && !given.string().text().empty();
    MOTLEY_TRY(const Value shown, is_name ? to_string(runtime, given) : represent(runtime, given));
    MOTLEY_TRY_VOID(runtime.scan(shown.string().text().size()));
    name = kept_name(runtime, shown);
  }
  return generate<Selected>(runtime, cursor, std::move(path), std::move(name), std::move(rest),
                            keeps);
}

struct UniqueItems : Generator {
  UniqueItems(Cursor from, AttributePath which, bool counts, Dict& keys)
      : cursor(from), path(std::move(which)), case_counts(counts), seen(keys) {}

  Result<Value> next(Runtime& runtime) override {
    while (true) {
      MOTLEY_TRY(const Value item, cursor.next(runtime));
      if (item.is(Kind::missing)) return item;
      MOTLEY_TRY(const Value key, sort_key(runtime, path, item, case_counts));
      MOTLEY_TRY(const Value* const known, seen.find(runtime, key));
      if (known != nullptr) continue;
      MOTLEY_TRY_VOID(seen.set(runtime, key, key));
      return item;
    }
  }

  Cursor cursor;
  AttributePath path;
  bool case_counts;
  Dict& seen;
};

Result<Value> unique(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<3>("unique", {"value", "case_sensitive", "attribute"}, 1));
  MOTLEY_TRY(const bool case_counts, as_flag(runtime, values[1]));
  MOTLEY_TRY(AttributePath path, AttributePath::read(runtime, values[2]));
  if (!Cursor::can_walk(values[0])) return not_iterable(runtime, values[0]);
  MOTLEY_TRY(Cursor cursor, Cursor::over(values[0]));
  return generate<UniqueItems>(runtime, cursor, std::move(path), case_counts,
                               runtime.heap().make<Dict>());
}

// ----------------------------------------------------------------------------------- one of many

Result<Value> first(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("first", {"seq"}, 1));
  MOTLEY_TRY(Cursor cursor, Cursor::over(values[0]));
  MOTLEY_TRY(const Value item, cursor.next(runtime));
  return item.is(Kind::missing) ? runtime.undefined("No first item, sequence was empty.") : item;
}

Result<Value> last(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("last", {"seq"}, 1));
  const Value& value = values[0];
  if (value.is(Kind::generator) || !Cursor::can_walk(value))
    return failure(cat("'", type_name(value), "' object is not reversible"));
  Value item;
  if (value.is(Kind::string)) {
    const String& string = value.string();
    if (!string.text().empty()) {
      MOTLEY_TRY(item,
                 part_of(runtime, string, character_before(string.text(), string.text().size()),
                         string.text().size()));
    }
  } else if (value.is(Kind::list) || value.is(Kind::tuple)) {
    if (!value.sequence().items.empty()) item = value.sequence().items.back();
  } else {
    MOTLEY_TRY(const std::vector<Value> items, to_vector(runtime, value));
    if (!items.empty()) item = items.back();
  }
  return item.is(Kind::missing) ? runtime.undefined("No last item, sequence was empty.") : item;
}

template <Order better>
Result<Value> best(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<3>("min", {"value", "case_sensitive", "attribute"}, 1));
  MOTLEY_TRY(const bool case_counts, as_flag(runtime, values[1]));
  MOTLEY_TRY(const AttributePath path, AttributePath::read(runtime, values[2]));
  MOTLEY_TRY(Cursor cursor, Cursor::over(values[0]));
  MOTLEY_TRY(Value winner, cursor.next(runtime));
  if (winner.is(Kind::missing)) return runtime.undefined("No aggregated item, sequence was empty.");
  MOTLEY_TRY(Value winning_key, sort_key(runtime, path, winner, case_counts));
  while (true) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return winner;
    MOTLEY_TRY(const Value key, sort_key(runtime, path, item, case_counts));
    MOTLEY_TRY(const bool wins, compare(runtime, better, key, winning_key));
    if (!wins) continue;
    winner = item;
    winning_key = key;
  }
}

Result<Value> sum(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("sum", {"iterable", "attribute", "start"}, 1));
  MOTLEY_TRY(const AttributePath path, AttributePath::read(runtime, values[1]));
  Value total = values[2].is(Kind::missing) ? Value::integer(0) : values[2];
  if (total.is(Kind::string)) return failure("sum() can't sum strings [use ''.join(seq) instead]");
  MOTLEY_TRY(Cursor cursor, Cursor::over(values[0]));
  while (true) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return total;
    MOTLEY_TRY(const Value part, path.get(runtime, item));
    MOTLEY_TRY(total, compute(runtime, Arithmetic::add, total, part));
  }
}

Result<Value> count(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("length", {""}, 1));
  MOTLEY_TRY(const std::size_t size, length(runtime, values[0]));
  return Value::integer(static_cast<std::int64_t>(size));
}

// -------------------------------------------------------------------------------------- whole
// lists

Result<Value> list(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("list", {"value"}, 1));
  MOTLEY_TRY(std::vector<Value> items, to_vector(runtime, values[0]));
  return runtime.list(std::move(items));
}

Result<Value> reverse(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("reverse", {"value"}, 1));
  const Value value = values[0];
  if (value.is(Kind::string)) {
    MOTLEY_TRY(const std::size_t size, length(runtime, value));
    MOTLEY_TRY(const SliceBounds bounds, slice_bounds(size, Value(), Value(), Value::integer(-1)));
    return slice_text(runtime, value.string(), bounds);
  }
  if (!Cursor::can_walk(value)) return failure("argument must be iterable");
  const auto backwards = [value](Runtime& later) -> Result<std::vector<Value>> {
    MOTLEY_TRY(std::vector<Value> items, to_vector(later, value));
    std::ranges::reverse(items);
    return items;
  };
  // A generator becomes a list first, everything else an iterator.
  if (!value.is(Kind::generator)) return generate<Deferred>(runtime, backwards);
  MOTLEY_TRY(std::vector<Value> items, backwards(runtime));
  return runtime.list(std::move(items));
}

Result<Value> items_of(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("items", {"value"}, 1));
  const Value value = values[0];
  return generate<Deferred>(runtime, [value](Runtime& later) -> Result<std::vector<Value>> {
    std::vector<Value> pairs;
    if (value.is(Kind::undefined)) return pairs;
    if (!value.is(Kind::dict)) return failure("Can only get item pairs from a mapping.");
    for (const Dict::Entry& entry : value.dict().entries()) {
      MOTLEY_TRY_VOID(later.step());
      MOTLEY_TRY_VOID(add(later, pairs, entry_pair(later, entry)));
    }
    return pairs;
  });
}

Result<Value> sort(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<4>("sort", {"value", "reverse", "case_sensitive", "attribute"}, 1));
  MOTLEY_TRY(const std::int64_t descending, as_count_or(values[1], 0));
  MOTLEY_TRY(const bool case_counts, as_flag(runtime, values[2]));
  MOTLEY_TRY(const std::vector<AttributePath> paths, AttributePath::read_all(runtime, values[3]));
  MOTLEY_TRY(const std::vector<Value> items, to_vector(runtime, values[0]));
  MOTLEY_TRY_VOID(runtime.reserve(items.size(), sizeof(Value)));
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    MOTLEY_TRY_VOID(runtime.step(paths.size()));
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      MOTLEY_TRY(const Value part, sort_key(runtime, path, item, case_counts));
      parts.push_back(part);
    }
    keys.push_back(runtime.list(std::move(parts)));
  }
  MOTLEY_TRY(const std::vector<std::size_t> order, sorted_order(runtime, keys, descending != 0));
  return ordered(runtime, items, order);
}

Result<Value> sort_dict(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<4>("dictsort", {"value", "case_sensitive", "by", "reverse"}, 1));
  MOTLEY_TRY(const bool case_counts, as_flag(runtime, values[1]));
  MOTLEY_TRY(const std::int64_t descending, as_count_or(values[3], 0));
  std::string_view by = "key";
  if (values[2].is(Kind::string)) by = values[2].string().text();
  if (!(values[2].is(Kind::missing) || values[2].is(Kind::string)) ||
      (by != "key" && by != "value"))
    return failure("You can only sort by either \"key\" or \"value\"");
  if (values[0].is(Kind::undefined)) return failure(values[0].undefined().message);
  if (!values[0].is(Kind::dict))
    return failure(cat("'", type_name(values[0]), "' object has no attribute 'items'"));
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const Dict::Entry& entry : values[0].dict().entries()) {
    MOTLEY_TRY_VOID(runtime.step());
    MOTLEY_TRY_VOID(add(runtime, pairs, entry_pair(runtime, entry)));
    MOTLEY_TRY(const Value key, sort_key(runtime, AttributePath(),
                                         by == "key" ? entry.first : entry.second, case_counts));
    MOTLEY_TRY_VOID(add(runtime, keys, key));
  }
  MOTLEY_TRY(const std::vector<std::size_t> order, sorted_order(runtime, keys, descending != 0));
  return ordered(runtime, pairs, order);
}

Result<Value> group_by(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<4>("groupby", {"value", "attribute", "default", "case_sensitive"}, 2));
  MOTLEY_TRY(const bool case_counts, as_flag(runtime, values[3]));
  MOTLEY_TRY(AttributePath path, AttributePath::read(runtime, values[1]));
  path.set_default(values[2]);
  MOTLEY_TRY(const std::vector<Value> items, to_vector(runtime, values[0]));
  std::vector<Value> keys;
  for (const Value& item : items) {
    MOTLEY_TRY(const Value key, sort_key(runtime, path, item, case_counts));
    MOTLEY_TRY_VOID(add(runtime, keys, key));
  }
  MOTLEY_TRY(const std::vector<std::size_t> order, sorted_order(runtime, keys, false));
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    for (; end < order.size(); ++end) {
      MOTLEY_TRY(const bool same, equal(runtime, keys[order[begin]], keys[order[end]]));
      if (!same) break;
      MOTLEY_TRY_VOID(add(runtime, members, items[order[end]]));
    }
    // The key of the group's first member, not in lower case.
    MOTLEY_TRY(const Value key, path.get(runtime, items[order[begin]]));
    const Value group = runtime.tuple({key, runtime.list(std::move(members))});
    group.sequence().is_group = true;
    MOTLEY_TRY_VOID(add(runtime, groups, group));
    begin = end;
  }
  return runtime.list(std::move(groups));
}

Result<Value> batch(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("batch", {"value", "linecount", "fill_with"}, 2));
  return generate<Deferred>(runtime, [values](Runtime& later) -> Result<std::vector<Value>> {
    MOTLEY_TRY(const std::vector<Value> items, to_vector(later, values[0]));
    const auto is_full = [&](std::size_t size) -> Result<bool> {
      return equal(later, Value::integer(static_cast<std::int64_t>(size)), values[1]);
    };
    std::vector<Value> batches;
    std::vector<Value> current;
    for (const Value& item : items) {
      MOTLEY_TRY(const bool full, is_full(current.size()));
      if (full) MOTLEY_TRY_VOID(add(later, batches, later.list(std::exchange(current, {}))));
      MOTLEY_TRY_VOID(add(later, current, item));
    }
    if (current.empty()) return batches;
    if (!values[2].is(Kind::missing) && !values[2].is(Kind::none)) {
      const Value size = Value::integer(static_cast<std::int64_t>(current.size()));
      MOTLEY_TRY(const bool is_short, compare(later, Order::less, size, values[1]));
      if (is_short) {
        MOTLEY_TRY(const std::int64_t wanted, as_count(values[1]));
        MOTLEY_TRY_VOID(later.reserve(static_cast<std::size_t>(wanted), sizeof(Value)));
        current.resize(static_cast<std::size_t>(wanted), values[2]);
      }
    }
    batches.push_back(later.list(std::move(current)));
    return batches;
  });
}

Result<Value> slice(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("slice", {"value", "slices", "fill_with"}, 2));
  return generate<Deferred>(runtime, [values](Runtime& later) -> Result<std::vector<Value>> {
    MOTLEY_TRY(const std::vector<Value> items, to_vector(later, values[0]));
    MOTLEY_TRY(const std::int64_t wanted, as_count(values[1]));
    if (wanted == 0) return failure("integer division or modulo by zero");
    std::vector<Value> slices;
    if (wanted < 0) return slices;
    const auto count = static_cast<std::size_t>(wanted);
    MOTLEY_TRY_VOID(later.step(count));
    MOTLEY_TRY_VOID(later.reserve(count, sizeof(Sequence) + (2 * allocation_bytes)));
    const std::size_t size = items.size() / count;
    const std::size_t longer = items.size() % count;
    const bool fills = !values[2].is(Kind::missing) && !values[2].is(Kind::none);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t end = begin + size + (i < longer ? 1 : 0);
      MOTLEY_TRY_VOID(later.step((end - begin) / 8));
      MOTLEY_TRY_VOID(later.reserve(2 * (end - begin + 1), sizeof(Value)));
      std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                              items.begin() + static_cast<std::ptrdiff_t>(end));
      if (fills && i >= longer) part.push_back(values[2]);
      MOTLEY_TRY_VOID(add(later, slices, later.list(std::move(part))));
      begin = end;
    }
    return slices;
  });
}

constexpr Filter filters[] = {
    {"batch", batch},
    {"count", count},
    {"dictsort", sort_dict},
    {"first", first},
    {"groupby", group_by},
    {"items", items_of},
    {"last", last},
    {"length", count},
    {"list", list},
    {"map", map},
    {"max", best<Order::greater>},
    {"min", best<Order::less>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const Filter> sequence_filters() { return filters; }

}  // namespace motley::text::jinja
