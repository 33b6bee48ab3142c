#include "text/jinja/loop.h"

#include "text/jinja/builtins/arguments.h"
#include "text/jinja/operators.h"

namespace motley::text::jinja {
namespace {

struct Cycle : Callable {
  explicit Cycle(const Loop& of) : loop(of) {}

  Result<Value> call(Runtime&, Arguments& arguments) override {
    const auto& items = arguments.positional;
    if (!arguments.keyword.empty()) return failure("loop.cycle() takes no argument by name");
    if (items.empty()) return failure("no items for cycling given");
    return items[static_cast<std::size_t>(loop.index0) % items.size()];
  }
  std::string name() const override { return "<bound method LoopContext.cycle>"; }

  const Loop& loop;
};

struct Changed : Callable {
  explicit Changed(Loop& of) : loop(of) {}

  Result<Value> call(Runtime& runtime, Arguments& arguments) override {
    if (!arguments.keyword.empty()) return failure("loop.changed() takes no argument by name");
    const Value values = runtime.tuple(arguments.positional);
    if (!loop.last_changed.is(Kind::missing)) {
      MOTLEY_TRY(const bool same, equal(runtime, loop.last_changed, values));
      if (same) return Value::boolean(false);
    }
    loop.last_changed = values;
    return Value::boolean(true);
  }
  std::string name() const override { return "<bound method LoopContext.changed>"; }

  Loop& loop;
};

template <class Method>
Value method(Runtime& runtime, Loop& loop) {
  return Value::object(Kind::callable, static_cast<Callable*>(&runtime.heap().make<Method>(loop)));
}

}  // namespace

Result<bool> Loop::advance(Runtime& runtime) {
  MOTLEY_TRY(const Value next, peek(runtime));
  if (next.is(Kind::missing)) return false;
  has_peeked = false;
  after = Value();
  ++index0;
  before = std::exchange(current, next);
  return true;
}

Result<Value> Loop::peek(Runtime& runtime) {
  // At the end it checks again, because the list may have grown.
  if (has_peeked && !after.is(Kind::missing)) return after;
  MOTLEY_TRY(after, cursor.next(runtime));
  has_peeked = true;
  return after;
}

Result<std::size_t> Loop::length(Runtime& runtime) {
  if (known_length >= 0) return static_cast<std::size_t>(known_length);
  if (has_length(iterable)) {
    MOTLEY_TRY(const std::size_t size, jinja::length(runtime, iterable));
    known_length = static_cast<std::int64_t>(size);
    return size;
  }
  std::vector<Value> rest;
  while (true) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) break;
    if (rest.size() == rest.capacity())
      MOTLEY_TRY_VOID(runtime.reserve(1 + (3 * rest.size()), sizeof(Value)));
    rest.push_back(item);
  }
  const bool holds_one = has_peeked && !after.is(Kind::missing);
  known_length = static_cast<std::int64_t>(rest.size()) + index0 + 1 + (holds_one ? 1 : 0);
  MOTLEY_TRY(cursor, Cursor::over(runtime.list(std::move(rest))));
  return static_cast<std::size_t>(known_length);
}

Result<Value> loop_attribute(Runtime& runtime, Loop& loop, std::string_view name) {
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "cycle") return method<Cycle>(runtime, loop);
  if (name == "changed") return method<Changed>(runtime, loop);
  if (name == "last") {
    MOTLEY_TRY(const Value next, loop.peek(runtime));
    return Value::boolean(next.is(Kind::missing));
  }
  if (name == "nextitem") {
    MOTLEY_TRY(const Value next, loop.peek(runtime));
    return next.is(Kind::missing) ? runtime.undefined("there is no next item") : next;
  }
  if (name == "previtem")
    return loop.index0 == 0 ? runtime.undefined("there is no previous item") : loop.before;
  if (name == "length" || name == "revindex" || name == "revindex0") {
    MOTLEY_TRY(const std::size_t length, loop.length(runtime));
    const auto size = static_cast<std::int64_t>(length);
    if (name == "length") return Value::integer(size);
    return Value::integer(size - loop.index0 - (name == "revindex0" ? 1 : 0));
  }
  return Value();
}

}  // namespace motley::text::jinja
