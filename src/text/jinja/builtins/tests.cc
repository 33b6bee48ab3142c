// The tests after `is`.

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "text/jinja/builtins/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/represent.h"

namespace motley::text::jinja {
namespace {

Result<Value> only(const Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("this test", {""}, 1));
  return values[0];
}

using Predicate = bool (*)(const Value&);

template <Predicate holds>
Result<bool> simple(Runtime&, Arguments& arguments) {
  MOTLEY_TRY(const Value value, only(arguments));
  return holds(value);
}

template <Kind... kinds>
bool is_one_of(const Value& value) {
  return (value.is(kinds) || ...);
}

bool is_defined(const Value& value) { return !value.is(Kind::undefined); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.boolean(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.boolean(); }
bool is_iterable(const Value& value) { return Cursor::can_walk(value) || value.is(Kind::loop); }
bool is_markup(const Value& value) { return value.is(Kind::string) && value.string().markup; }

template <std::uint16_t wanted>
Result<bool> has_case(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const Value value, only(arguments));
  MOTLEY_TRY(const Value text, to_string(runtime, value));
  MOTLEY_TRY_VOID(runtime.scan(text.string().text().size()));
  return all_in_case(text.string().text(), wanted);
}

Result<bool> leaves(Runtime& runtime, const Value& value, const Value& divisor, std::int64_t rest) {
  MOTLEY_TRY(const Value found, compute(runtime, Arithmetic::modulo, value, divisor));
  return equal(runtime, found, Value::integer(rest));
}

template <int rest>
Result<bool> parity(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const Value value, only(arguments));
  return leaves(runtime, value, Value::integer(2), rest);
}

Result<bool> divisible(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("divisibleby", {"value", "num"}, 2));
  return leaves(runtime, values[0], values[1], 0);
}

Result<bool> same(Runtime&, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("sameas", {"value", "other"}, 2));
  return values[0].same_as(values[1]);
}

Result<bool> is_in(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("in", {"value", "seq"}, 2));
  return contains(runtime, values[1], values[0]);
}

template <bool wanted>
Result<bool> equality(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("eq", {"", ""}, 2));
  MOTLEY_TRY(const bool are_equal, equal(runtime, values[0], values[1]));
  return are_equal == wanted;
}

template <Order order>
Result<bool> ordering(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("lt", {"", ""}, 2));
  return compare(runtime, order, values[0], values[1]);
}

Result<bool> is_filter(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const Value name, only(arguments));
  MOTLEY_TRY_VOID(require_hashable(runtime, name));
  return name.is(Kind::string) && find_filter(name.string().text()) != nullptr;
}

Result<bool> is_test(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const Value name, only(arguments));
  MOTLEY_TRY_VOID(require_hashable(runtime, name));
  return name.is(Kind::string) && find_test(name.string().text()) != nullptr;
}

constexpr Test tests[] = {
    {"!=", equality<false>},
    {"<", ordering<Order::less>},
    {"<=", ordering<Order::less_equal>},
    {"==", equality<true>},
    {">", ordering<Order::greater>},
    {">=", ordering<Order::greater_equal>},
    {"boolean", simple<is_one_of<Kind::boolean>>},
    {"callable", simple<is_one_of<Kind::callable, Kind::loop, Kind::undefined>>},
    {"defined", simple<is_defined>},
    {"divisibleby", divisible},
    {"eq", equality<true>},
    {"equalto", equality<true>},
    {"escaped", simple<is_markup>},
    {"even", parity<0>},
    {"false", simple<is_false>},
    {"filter", is_filter},
    {"float", simple<is_one_of<Kind::number>>},
    {"ge", ordering<Order::greater_equal>},
    {"greaterthan", ordering<Order::greater>},
    {"gt", ordering<Order::greater>},
    {"in", is_in},
    {"integer", simple<is_one_of<Kind::integer, Kind::big_integer>>},
    {"iterable", simple<is_iterable>},
    {"le", ordering<Order::less_equal>},
    {"lessthan", ordering<Order::less>},
    {"lower", has_case<lower>},
    {"lt", ordering<Order::less>},
    {"mapping", simple<is_one_of<Kind::dict>>},
    {"ne", equality<false>},
    {"none", simple<is_one_of<Kind::none>>},
    {"number", simple<is_numeric>},
    {"odd", parity<1>},
    {"sameas", same},
    {"sequence", simple<is_one_of<Kind::string, Kind::list, Kind::tuple, Kind::dict, Kind::range,
                                  Kind::undefined>>},
    {"string", simple<is_one_of<Kind::string>>},
    {"test", is_test},
    {"true", simple<is_true>},
    {"undefined", simple<is_one_of<Kind::undefined>>},
    {"upper", has_case<upper>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto* const found = std::ranges::find(tests, name, &Test::name);
  return found == std::end(tests) ? nullptr : found;
}

}  // namespace motley::text::jinja
