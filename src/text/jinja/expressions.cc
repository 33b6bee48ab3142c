// Evaluation of expressions.

#include <algorithm>

#include "base/cat.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/builtins/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/represent.h"

namespace motley::text::jinja {
namespace {

Result<bool> holds_between(Runtime& runtime, Comparison::Operator meaning, const Value& left,
                           const Value& right) {
  using Operator = Comparison::Operator;
  switch (meaning) {
    case Operator::equal:
      return equal(runtime, left, right);
    case Operator::not_equal: {
      MOTLEY_TRY(const bool same, equal(runtime, left, right));
      return !same;
    }
    case Operator::less:
      return compare(runtime, Order::less, left, right);
    case Operator::less_equal:
      return compare(runtime, Order::less_equal, left, right);
    case Operator::greater:
      return compare(runtime, Order::greater, left, right);
    case Operator::greater_equal:
      return compare(runtime, Order::greater_equal, left, right);
    case Operator::in:
      return contains(runtime, right, left);
    case Operator::not_in: {
      MOTLEY_TRY(const bool is_in, contains(runtime, right, left));
      return !is_in;
    }
  }
  return false;
}

}  // namespace

Result<Value> Interpreter::evaluate(const Expression& expression, Activation& here) {
  MOTLEY_TRY_VOID(runtime_.step());
  MOTLEY_TRY(const auto level, runtime_.deeper());
  Result<Value> value =
      std::visit([&](const auto& node) { return evaluate(node, here); }, expression.node);
  if (!value.ok()) return located(std::move(value).error(), expression.at);
  return value;
}

Result<bool> Interpreter::holds(const Expression& expression, Activation& here) {
  MOTLEY_TRY(const Value value, evaluate(expression, here));
  return truth(runtime_, value);
}

Result<Value> Interpreter::evaluate_or_missing(const ExpressionPtr& expression, Activation& here) {
  if (expression == nullptr) return Value();
  return evaluate(*expression, here);
}

Result<std::vector<Value>> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& items,
                                                     Activation& here) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const auto& item : items) {
    MOTLEY_TRY(const Value value, evaluate(*item, here));
    values.push_back(value);
  }
  return values;
}

Result<Value> Interpreter::evaluate(const Constant& node, Activation&) { return node.value; }

Result<Value> Interpreter::evaluate(const Name& node, Activation& here) {
  const Value value = here.at(node.variable);
  if (!value.is(Kind::missing)) return value;
  return runtime_.undefined(cat("'", node.name, "' is undefined"));
}

Result<Value> Interpreter::evaluate(const ListLiteral& node, Activation& here) {
  MOTLEY_TRY(std::vector<Value> values, evaluate_all(node.items, here));
  return runtime_.list(std::move(values));
}

Result<Value> Interpreter::evaluate(const TupleLiteral& node, Activation& here) {
  MOTLEY_TRY(std::vector<Value> values, evaluate_all(node.items, here));
  return runtime_.tuple(std::move(values));
}

Result<Value> Interpreter::evaluate(const DictLiteral& node, Activation& here) {
  auto& dict = runtime_.heap().make<Dict>();
  for (const auto& [key_node, value_node] : node.items) {
    MOTLEY_TRY(const Value key, evaluate(*key_node, here));
    MOTLEY_TRY(const Value value, evaluate(*value_node, here));
    MOTLEY_TRY_VOID(dict.set(runtime_, key, value));
  }
  return Value::object(Kind::dict, &dict);
}

Result<Value> Interpreter::evaluate(const Conditional& node, Activation& here) {
  MOTLEY_TRY(const bool chosen, holds(*node.test, here));
  if (chosen) return evaluate(*node.yes, here);
  if (node.no != nullptr) return evaluate(*node.no, here);
  return runtime_.undefined(cat("the inline if-expression on ", source_.where(node.test->at),
                                " evaluated to false and no else section was defined."));
}

Result<Value> Interpreter::evaluate(const Binary& node, Activation& here) {
  MOTLEY_TRY(const Value left, evaluate(*node.left, here));
  MOTLEY_TRY(const Value right, evaluate(*node.right, here));
  return compute(runtime_, node.operation, left, right);
}

Result<Value> Interpreter::evaluate(const Logical& node, Activation& here) {
  MOTLEY_TRY(const Value left, evaluate(*node.left, here));
  MOTLEY_TRY(const bool is_true, truth(runtime_, left));
  if (is_true != node.is_and) return left;
  return evaluate(*node.right, here);
}

Result<Value> Interpreter::evaluate(const Not& node, Activation& here) {
  MOTLEY_TRY(const bool is_true, holds(*node.operand, here));
  return Value::boolean(!is_true);
}

Result<Value> Interpreter::evaluate(const Sign& node, Activation& here) {
  MOTLEY_TRY(const Value operand, evaluate(*node.operand, here));
  return node.minus ? negate(runtime_, operand) : unary_plus(operand);
}

Result<Value> Interpreter::evaluate(const Comparison& node, Activation& here) {
  MOTLEY_TRY(Value left, evaluate(*node.first, here));
  for (const auto& [meaning, next] : node.rest) {
    MOTLEY_TRY(const Value right, evaluate(*next, here));
    MOTLEY_TRY(const bool is_true, holds_between(runtime_, meaning, left, right));
    if (!is_true) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate(const Concatenation& node, Activation& here) {
  MOTLEY_TRY(const std::vector<Value> values, evaluate_all(node.parts, here));
  TextBuilder result(runtime_);
  for (const Value& value : values) MOTLEY_TRY_VOID(append_text(result, runtime_, value));
  return result.finish();
}

Result<Value> Interpreter::evaluate(const Attribute& node, Activation& here) {
  MOTLEY_TRY(const Value object, evaluate(*node.object, here));
  return get_attribute(runtime_, object, node.name);
}

Result<Value> Interpreter::evaluate(const Item& node, Activation& here) {
  MOTLEY_TRY(const Value object, evaluate(*node.object, here));
  MOTLEY_TRY(const Value key, evaluate(*node.key, here));
  return get_item(runtime_, object, key);
}

Result<Value> Interpreter::evaluate(const Slice& node, Activation& here) {
  MOTLEY_TRY(const Value object, evaluate(*node.object, here));
  MOTLEY_TRY(const Value start, evaluate_or_missing(node.start, here));
  MOTLEY_TRY(const Value stop, evaluate_or_missing(node.stop, here));
  MOTLEY_TRY(const Value step, evaluate_or_missing(node.step, here));
  return get_slice(runtime_, object, start, stop, step);
}

// ------------------------------------------------------------------------------------------ calls

Result<void> Interpreter::collect(const CallArguments& given, Arguments& arguments,
                                  Activation& here) {
  for (const auto& each : given.positional) {
    MOTLEY_TRY(const Value value, evaluate(*each, here));
    arguments.positional.push_back(value);
  }
  if (given.spread != nullptr) {
    MOTLEY_TRY(const Value spread, evaluate(*given.spread, here));
    MOTLEY_TRY(const std::vector<Value> values, to_vector(runtime_, spread));
    MOTLEY_TRY_VOID(runtime_.step(values.size() / 8));
    MOTLEY_TRY_VOID(runtime_.reserve(arguments.positional.size() + values.size(), sizeof(Value)));
    runtime_.heap().count((arguments.positional.size() + values.size()) * sizeof(Value));
    arguments.positional.insert(arguments.positional.end(), values.begin(), values.end());
  }
  for (const auto& [name, each] : given.keyword) {
    MOTLEY_TRY(const Value value, evaluate(*each, here));
    arguments.keyword.emplace_back(name, value);
  }
  if (given.keyword_spread == nullptr) return {};
  MOTLEY_TRY(const Value spread, evaluate(*given.keyword_spread, here));
  if (!spread.is(Kind::dict))
    return failure(cat("argument after ** must be a mapping, not ", type_name(spread)));
  return add_keywords(spread.dict(), arguments);
}

// The names of a dict are different, so they are only compared with those that the call spells out.
Result<void> Interpreter::add_keywords(const Dict& dict, Arguments& arguments) {
  const std::size_t spelled = arguments.keyword.size();
  MOTLEY_TRY_VOID(runtime_.reserve(dict.size(), 2 * sizeof(arguments.keyword[0])));
  runtime_.heap().count(dict.size() * 2 * sizeof(arguments.keyword[0]));
  for (const auto& [key, value] : dict.entries()) {
    if (!key.is(Kind::string)) return failure("keywords must be strings");
    const std::string_view name = key.string().text();
    MOTLEY_TRY_VOID(runtime_.step(1 + spelled));
    for (std::size_t i = 0; i < spelled; ++i) {
      if (arguments.keyword[i].first.size() == name.size())
        MOTLEY_TRY_VOID(runtime_.scan(name.size()));
      if (arguments.keyword[i].first == name)
        return failure(cat("got multiple values for keyword argument ", quote(shortened(name))));
    }
    arguments.keyword.emplace_back(name, value);
  }
  return {};
}

Result<Value> Interpreter::evaluate(const Call& node, Activation& here) {
  return evaluate_call(node, here, Value());
}

Result<Value> Interpreter::evaluate_call(const Call& node, Activation& here, const Value& caller) {
  MOTLEY_TRY(const Value callee, evaluate(*node.callee, here));
  Arguments arguments;
  MOTLEY_TRY_VOID(collect(node.arguments, arguments, here));
  if (!caller.is(Kind::missing)) arguments.keyword.emplace_back("caller", caller);
  if (callee.is(Kind::callable)) return callee.callable().call(runtime_, arguments);
  if (callee.is(Kind::undefined)) return failure(callee.undefined().message);
  if (!callee.is(Kind::loop))
    return failure(cat("'", type_name(callee), "' object is not callable"));
  Callable* const recurse = callee.loop().recurse;
  if (recurse == nullptr)
    return failure("The loop must have the 'recursive' marker to be called recursively.");
  return recurse->call(runtime_, arguments);
}

Result<Value> Interpreter::apply(const FilterCall& node, const Value& operand, Activation& here) {
  if (node.filter == nullptr) return failure(cat("no filter named ", quote(node.name)));
  Arguments arguments;
  arguments.positional.push_back(operand);
  MOTLEY_TRY_VOID(collect(node.arguments, arguments, here));
  return node.filter->call(runtime_, arguments);
}

Result<Value> Interpreter::evaluate(const FilterCall& node, Activation& here) {
  MOTLEY_TRY(const Value operand, evaluate(*node.operand, here));
  return apply(node, operand, here);
}

Result<Value> Interpreter::filter_output(const Expression& filter, const Value& output,
                                         Activation& here) {
  const auto& node = std::get<FilterCall>(filter.node);
  Value operand = output;
  if (node.operand != nullptr) {
    MOTLEY_TRY(operand, filter_output(*node.operand, output, here));
  }
  Result<Value> value = apply(node, operand, here);
  if (!value.ok()) return located(std::move(value).error(), filter.at);
  return value;
}

Result<Value> Interpreter::evaluate(const TestCall& node, Activation& here) {
  if (node.test == nullptr) return failure(cat("no test named ", quote(node.name)));
  MOTLEY_TRY(const Value operand, evaluate(*node.operand, here));
  Arguments arguments;
  arguments.positional.push_back(operand);
  MOTLEY_TRY_VOID(collect(node.arguments, arguments, here));
  MOTLEY_TRY(const bool holds, node.test->call(runtime_, arguments));
  return Value::boolean(holds);
}

}  // namespace motley::text::jinja
