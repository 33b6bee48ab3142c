// Execution of statements.

#include <algorithm>

#include "base/cat.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/represent.h"

namespace motley::text::jinja {

// A macro, or the body of a call block, with its enclosing variables.
struct MacroValue : Callable {
  MacroValue(Interpreter& runs, const Function& what, Activation& where)
      : interpreter(runs), function(what), around(where) {}

  Result<Value> call(Runtime&, Arguments& arguments) override {
    return interpreter.call_function(function, around, arguments);
  }
  std::string name() const override { return cat("<Macro '", function.name, "'>"); }

  Interpreter& interpreter;
  const Function& function;
  Activation& around;
};

// The target of loop(...) in a recursive loop.
struct LoopBody : Callable {
  LoopBody(Interpreter& runs, const For& what, Activation& where, std::int64_t level)
      : interpreter(runs), loop(what), around(where), depth(level) {}

  Result<Value> call(Runtime& runtime, Arguments& arguments) override {
    MOTLEY_TRY(const auto values, arguments.bind<1>("loop", {"iterable"}, 1));
    TextBuilder out(runtime);
    MOTLEY_TRY_VOID(interpreter.run_loop(loop, values[0], around, depth, out));
    return out.finish();
  }
  std::string name() const override { return "<function loop>"; }

  Interpreter& interpreter;
  const For& loop;
  Activation& around;
  std::int64_t depth;
};

// The items of a loop that pass its `if`, tested when they are requested.
struct FilteredItems : Generator {
  FilteredItems(Interpreter& runs, const For& what, Cursor from, Activation& where)
      : interpreter(runs), loop(what), cursor(from), here(where) {}

  Result<Value> next(Runtime& runtime) override {
    if (!std::exchange(has_begun, true))
      MOTLEY_TRY_VOID(interpreter.enter(loop.filter_scope, here));
    while (true) {
      MOTLEY_TRY(const Value item, cursor.next(runtime));
      if (item.is(Kind::missing)) return item;
      MOTLEY_TRY_VOID(interpreter.assign(loop.filter_target, item, here));
      MOTLEY_TRY(const bool passes, interpreter.holds(*loop.filter, here));
      if (passes) return interpreter.assigned(loop.filter_target, here);
    }
  }

  Interpreter& interpreter;
  const For& loop;
  Cursor cursor;
  Activation& here;
  bool has_begun = false;
};

namespace {

Value as_value(Callable& callable) { return Value::object(Kind::callable, &callable); }

// Each parameter is looked for among the names.
Result<void> count_binding(Runtime& runtime, const Function& function, const Arguments& given) {
  std::size_t cost = given.keyword.size() / 4;
  for (const auto& [name, value] : given.keyword) cost += name.size() / 64;
  MOTLEY_TRY_VOID(runtime.step(cost * (function.parameters.size() + 1)));
  return runtime.reserve(given.positional.size(), sizeof(Value));
}

}  // namespace

Result<MarkedText> Interpreter::run(const Block& block, const Root& root) {
  MOTLEY_TRY(Activation* const activation, Activation::make(runtime_, root.slots, nullptr));
  MOTLEY_TRY_VOID(enter(root.scope, *activation));
  TextBuilder out(runtime_);
  MOTLEY_TRY_VOID(execute(block, *activation, out));
  return out.take();
}

Error Interpreter::located(Error error, Position at) const {
  if (!error.where().empty()) return error;
  return std::move(error).within(source_.where(at));
}

// ----------------------------------------------------------------------------------------- scopes

Result<void> Interpreter::enter(const Scope& scope, Activation& here) {
  // Its slots are cleared when it is left.
  MOTLEY_TRY_VOID(runtime_.step(scope.loads.size() + (scope.slots.size() / 8)));
  for (const Load& load : scope.loads) {
    Value& variable = here.slots[load.slot];
    switch (load.from) {
      case Load::From::nothing:
        variable = Value();
        break;
      case Load::From::context: {
        MOTLEY_TRY_VOID(runtime_.step(load.name.size() / 16));
        const Value* const found = context_.find(load.name);
        variable = found == nullptr ? Value() : *found;
        break;
      }
      case Load::From::variable:
        variable = here.at(load.variable);
        break;
    }
  }
  return {};
}

void Interpreter::leave(const Scope& scope, Activation& here) {
  for (const std::uint32_t slot : scope.slots) here.slots[slot] = Value();
}

Result<void> Interpreter::assign(const Target& target, const Value& value, Activation& here) {
  if (const auto* const name = std::get_if<NameTarget>(&target.node)) {
    here.at(name->variable) = value;
    return {};
  }
  if (const auto* const attribute = std::get_if<AttributeTarget>(&target.node)) {
    if (attribute->attribute.starts_with('_'))
      return located(failure(cat("a namespace takes no attribute that begins with an underscore: ",
                                 quote(attribute->attribute))),
                     target.at);
    Namespace& space = here.at(attribute->variable).name_space();
    return space.attributes.set(runtime_, runtime_.text(attribute->attribute), value);
  }
  const auto& items = std::get<TupleTarget>(target.node).items;
  if (!Cursor::can_walk(value))
    return located(failure(cat("cannot unpack non-iterable ", type_name(value), " object")),
                   target.at);
  MOTLEY_TRY(Cursor cursor, Cursor::over(value));
  std::vector<Value> values;
  while (true) {
    MOTLEY_TRY(const Value item, cursor.next(runtime_));
    if (item.is(Kind::missing)) break;
    if (values.size() == items.size())
      return located(failure(cat("too many values to unpack (expected ", items.size(), ")")),
                     target.at);
    values.push_back(item);
  }
  if (values.size() < items.size())
    return located(failure(cat("not enough values to unpack (expected ", items.size(), ", got ",
                               values.size(), ")")),
                   target.at);
  for (std::size_t i = 0; i < items.size(); ++i) MOTLEY_TRY_VOID(assign(items[i], values[i], here));
  return {};
}

Result<void> Interpreter::check_namespaces(const Target& target, Activation& here) const {
  if (const auto* const attribute = std::get_if<AttributeTarget>(&target.node)) {
    if (!here.at(attribute->variable).is(Kind::name_space))
      return located(failure("cannot assign attribute on non-namespace object"), target.at);
  }
  if (const auto* const tuple = std::get_if<TupleTarget>(&target.node)) {
    for (const Target& item : tuple->items) MOTLEY_TRY_VOID(check_namespaces(item, here));
  }
  return {};
}

Value Interpreter::assigned(const Target& target, Activation& here) {
  if (const auto* const name = std::get_if<NameTarget>(&target.node))
    return here.at(name->variable);
  std::vector<Value> values;
  for (const Target& item : std::get<TupleTarget>(target.node).items)
    values.push_back(assigned(item, here));
  return runtime_.tuple(std::move(values));
}

// ----------------------------------------------------------------------------------------- output

Result<void> Interpreter::print(const MarkedText& text, TextBuilder& out) {
  if (out.size() + text.text.size() > runtime_.limits().output_bytes)
    return Error(
        ErrorCode::too_long, "the chat template writes too much", "",
        cat("a rendering may write ", runtime_.limits().output_bytes, " bytes; send less"));
  return out.append(text);
}

Result<void> Interpreter::print_string(const Value& value, TextBuilder& out) {
  if (!value.is(Kind::string))
    return failure(cat("expected a string to print, not ", type_name(value)));
  return print(value.string().marked, out);
}

// ------------------------------------------------------------------------------------- statements

Result<Interpreter::Flow> Interpreter::execute(const Block& block, Activation& here,
                                               TextBuilder& out) {
  MOTLEY_TRY(const auto level, runtime_.deeper());
  for (const Statement& statement : block) {
    MOTLEY_TRY_VOID(runtime_.step());
    Result<Flow> flow =
        std::visit([&](const auto& node) { return execute(node, here, out); }, statement.node);
    if (!flow.ok()) return located(std::move(flow).error(), statement.at);
    if (*flow != Flow::on) return flow;
  }
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const Data& node, Activation&, TextBuilder& out) {
  MOTLEY_TRY_VOID(print(node.text.string().marked, out));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const Print& node, Activation& here,
                                               TextBuilder& out) {
  MOTLEY_TRY(const Value value, evaluate(*node.value, here));
  if (value.is(Kind::string)) {
    MOTLEY_TRY_VOID(print(value.string().marked, out));
    return Flow::on;
  }
  TextBuilder text(runtime_);
  MOTLEY_TRY_VOID(append_text(text, runtime_, value));
  MOTLEY_TRY_VOID(print(text.text(), out));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const Do& node, Activation& here, TextBuilder&) {
  MOTLEY_TRY_VOID(evaluate(*node.value, here));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const For& node, Activation& here,
                                               TextBuilder& out) {
  MOTLEY_TRY(const Value iterable, evaluate(*node.iterable, here));
  if (!node.recursive) return run_loop(node, iterable, here, 0, out);
  TextBuilder text(runtime_);
  MOTLEY_TRY_VOID(run_loop(node, iterable, here, 0, text));
  MOTLEY_TRY_VOID(print(text.text(), out));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::run_loop(const For& node, const Value& iterable,
                                                Activation& around, std::int64_t depth,
                                                TextBuilder& out) {
  Heap& heap = runtime_.heap();
  Activation* own = &around;
  if (node.recursive) {
    MOTLEY_TRY(own, Activation::make(runtime_, node.slots, &around));
  }
  Activation& here = *own;
  MOTLEY_TRY(Cursor cursor, Cursor::over(iterable));
  Value items = iterable;
  if (node.filter != nullptr) {
    MOTLEY_TRY(Activation* const of_filter, Activation::make(runtime_, node.filter_slots, &around));
    items = Value::object(Kind::generator, static_cast<Generator*>(&heap.make<FilteredItems>(
                                               *this, node, cursor, *of_filter)));
    MOTLEY_TRY(cursor, Cursor::over(items));
  }
  auto& loop = heap.make<Loop>(items, cursor, depth);
  if (node.recursive) loop.recurse = &heap.make<LoopBody>(*this, node, around, depth + 1);
  bool finished_turn = false;  // whether any iteration finished, which decides about `else`
  while (true) {
    MOTLEY_TRY(const bool more, loop.advance(runtime_));
    if (!more) break;
    MOTLEY_TRY_VOID(assign(node.target, loop.current, here));
    if (node.has_loop) here.at(node.loop) = Value::object(Kind::loop, &loop);
    MOTLEY_TRY_VOID(enter(node.scope, here));
    MOTLEY_TRY(const Flow flow, execute(node.body, here, out));
    if (flow == Flow::out_of_loop) break;
    finished_turn = finished_turn || flow == Flow::on;
  }
  leave(node.scope, here);
  if (finished_turn || node.otherwise.empty()) return Flow::on;
  MOTLEY_TRY_VOID(enter(node.otherwise_scope, here));
  MOTLEY_TRY(const Flow flow, execute(node.otherwise, here, out));
  leave(node.otherwise_scope, here);
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute(const If& node, Activation& here, TextBuilder& out) {
  for (const auto& [test, body] : node.branches) {
    MOTLEY_TRY(const bool chosen, holds(*test, here));
    if (chosen) return execute(body, here, out);
  }
  return execute(node.otherwise, here, out);
}

Result<Interpreter::Flow> Interpreter::execute(const Macro& node, Activation& here, TextBuilder&) {
  here.at(node.variable) = as_value(runtime_.heap().make<MacroValue>(*this, node.function, here));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const CallBlock& node, Activation& here,
                                               TextBuilder& out) {
  const Value caller = as_value(runtime_.heap().make<MacroValue>(*this, node.function, here));
  MOTLEY_TRY(const Value value, evaluate_call(std::get<Call>(node.call->node), here, caller));
  MOTLEY_TRY_VOID(print_string(value, out));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const FilterBlock& node, Activation& here,
                                               TextBuilder& out) {
  MOTLEY_TRY_VOID(enter(node.scope, here));
  TextBuilder text(runtime_);
  MOTLEY_TRY(const Flow flow, execute(node.body, here, text));
  if (flow != Flow::on) return flow;
  MOTLEY_TRY(const Value value, filter_output(*node.filter, text.finish(), here));
  MOTLEY_TRY_VOID(print_string(value, out));
  leave(node.scope, here);
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const Set& node, Activation& here, TextBuilder&) {
  MOTLEY_TRY_VOID(check_namespaces(node.target, here));
  MOTLEY_TRY(const Value value, evaluate(*node.value, here));
  MOTLEY_TRY_VOID(assign(node.target, value, here));
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const SetBlock& node, Activation& here,
                                               TextBuilder&) {
  MOTLEY_TRY_VOID(enter(node.scope, here));
  TextBuilder text(runtime_);
  MOTLEY_TRY(const Flow flow, execute(node.body, here, text));
  if (flow != Flow::on) return flow;
  Value value = text.finish();
  if (node.filter != nullptr) {
    MOTLEY_TRY(value, filter_output(*node.filter, value, here));
  }
  MOTLEY_TRY_VOID(check_namespaces(node.target, here));
  MOTLEY_TRY_VOID(assign(node.target, value, here));
  leave(node.scope, here);
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::execute(const With& node, Activation& here,
                                               TextBuilder& out) {
  MOTLEY_TRY_VOID(enter(node.scope, here));
  for (const auto& [target, expression] : node.bindings) {
    MOTLEY_TRY(const Value value, evaluate(*expression, here));
    MOTLEY_TRY_VOID(assign(target, value, here));
  }
  MOTLEY_TRY(const Flow flow, execute(node.body, here, out));
  leave(node.scope, here);
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute(const Generation& node, Activation& here,
                                               TextBuilder& out) {
  Arguments none;
  MOTLEY_TRY(const Value value, call_function(node.function, here, none));
  MOTLEY_TRY_VOID(print_string(value, out));
  return Flow::on;
}

// ----------------------------------------------------------------------------------------- macros

Result<Value> Interpreter::call_function(const Function& function, Activation& around,
                                         Arguments& arguments) {
  MOTLEY_TRY(const auto level, runtime_.deeper());
  MOTLEY_TRY(Activation* const own, Activation::make(runtime_, function.slots, &around));
  Activation& here = *own;
  MOTLEY_TRY_VOID(enter(function.scope, here));
  auto& given = arguments.positional;
  auto& named = arguments.keyword;
  MOTLEY_TRY_VOID(count_binding(runtime_, function, arguments));
  const auto take = [&named](std::string_view name) {
    const auto found =
        std::ranges::find_if(named, [name](const auto& each) { return each.first == name; });
    if (found == named.end()) return Value();
    const Value value = found->second;
    named.erase(found);
    return value;
  };
  const std::size_t count = function.parameters.size();
  for (std::size_t i = 0; i < count; ++i)
    here.at(function.parameter_variables[i]) =
        i < given.size() ? given[i] : take(function.parameters[i].first);
  if (function.has_caller) {
    const Value caller = take("caller");
    const bool has_none = caller.is(Kind::missing) || caller.is(Kind::none);
    here.at(function.caller) = has_none ? runtime_.undefined("No caller defined") : caller;
  }
  if (function.has_keywords) {
    auto& rest = runtime_.heap().make<Dict>();
    for (const auto& [name, value] : named)
      MOTLEY_TRY_VOID(rest.set(runtime_, runtime_.text(name), value));
    here.at(function.keywords) = Value::object(Kind::dict, &rest);
  } else if (!named.empty()) {
    return failure(
        cat("macro '", function.name, "' takes no keyword argument '", named[0].first, "'"));
  }
  if (function.has_positionals) {
    std::vector<Value> rest;
    if (given.size() > count)
      rest.assign(given.begin() + static_cast<std::ptrdiff_t>(count), given.end());
    here.at(function.positionals) = runtime_.tuple(std::move(rest));
  } else if (given.size() > count) {
    return failure(cat("macro '", function.name, "' takes not more than ", count, " argument(s)"));
  }
  for (std::size_t i = 0; i < count; ++i) {
    Value& variable = here.at(function.parameter_variables[i]);
    if (!variable.is(Kind::missing)) continue;
    const auto& [name, otherwise] = function.parameters[i];
    if (otherwise == nullptr) {
      variable = runtime_.undefined(cat("parameter '", name, "' was not provided"));
      continue;
    }
    MOTLEY_TRY(variable, evaluate(*otherwise, here));
  }
  TextBuilder out(runtime_);
  MOTLEY_TRY_VOID(execute(function.body, here, out));
  return out.finish();
}

}  // namespace motley::text::jinja
