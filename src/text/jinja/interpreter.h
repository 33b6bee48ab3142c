#pragma once

#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/jinja/runtime.h"
#include "text/jinja/scopes.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/syntax/syntax.h"
#include "text/jinja/values/text_builder.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// The variables of a running template, macro or loop filter. Macros keep the activation alive in
// which they were defined.
struct Activation : Object {
  Activation(std::size_t size, Activation* around) : slots(size), outer(around) {}

  static Result<Activation*> make(Runtime& runtime, std::size_t size, Activation* around) {
    MOTLEY_TRY_VOID(runtime.reserve(size, sizeof(Value)));
    runtime.heap().count(size * sizeof(Value));
    return &runtime.heap().make<Activation>(size, around);
  }

  Value& at(const Reference& variable) {
    Activation* activation = this;
    for (std::uint32_t i = 0; i < variable.levels; ++i) activation = activation->outer;
    return activation->slots[variable.slot];
  }

  std::vector<Value> slots;
  Activation* outer;
};

// Runs a template once.
class Interpreter {
 public:
  // `context` has the template's inputs, and the functions that every template has.
  Interpreter(const Source& source, Runtime& runtime, const Dict& context)
      : source_(source), runtime_(runtime), context_(context) {}

  Result<MarkedText> run(const Block& block, const Root& root);

 private:
  friend struct MacroValue;
  friend struct LoopBody;
  friend struct FilteredItems;

  enum class Flow : std::uint8_t { on, next_turn, out_of_loop };

  // Executes statements, and appends what they print to `out`.
  Result<Flow> execute(const Block& block, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Data& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Print& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const For& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const If& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Macro& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const CallBlock& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const FilterBlock& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Set& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const SetBlock& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const With& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Generation& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Do& node, Activation& here, TextBuilder& out);
  Result<Flow> execute(const Break&, Activation&, TextBuilder&) { return Flow::out_of_loop; }
  Result<Flow> execute(const Continue&, Activation&, TextBuilder&) { return Flow::next_turn; }

  Result<Flow> run_loop(const For& node, const Value& iterable, Activation& around,
                        std::int64_t depth, TextBuilder& out);
  // Appends the result of a call or filter, which must be a string.
  Result<void> print_string(const Value& value, TextBuilder& out);
  Result<void> print(const MarkedText& text, TextBuilder& out);

  Result<void> enter(const Scope& scope, Activation& here);
  static void leave(const Scope& scope, Activation& here);
  Result<void> assign(const Target& target, const Value& value, Activation& here);
  Result<void> check_namespaces(const Target& target, Activation& here) const;
  // The value that was assigned to a target, reassembled.
  Value assigned(const Target& target, Activation& here);
  Result<Value> call_function(const Function& function, Activation& around, Arguments& arguments);

  // Expressions.
  Result<Value> evaluate(const Expression& expression, Activation& here);
  Result<Value> evaluate(const Constant& node, Activation& here);
  Result<Value> evaluate(const Name& node, Activation& here);
  Result<Value> evaluate(const ListLiteral& node, Activation& here);
  Result<Value> evaluate(const TupleLiteral& node, Activation& here);
  Result<Value> evaluate(const DictLiteral& node, Activation& here);
  Result<Value> evaluate(const Conditional& node, Activation& here);
  Result<Value> evaluate(const Binary& node, Activation& here);
  Result<Value> evaluate(const Logical& node, Activation& here);
  Result<Value> evaluate(const Not& node, Activation& here);
  Result<Value> evaluate(const Sign& node, Activation& here);
  Result<Value> evaluate(const Comparison& node, Activation& here);
  Result<Value> evaluate(const Concatenation& node, Activation& here);
  Result<Value> evaluate(const Attribute& node, Activation& here);
  Result<Value> evaluate(const Item& node, Activation& here);
  Result<Value> evaluate(const Slice& node, Activation& here);
  Result<Value> evaluate(const Call& node, Activation& here);
  Result<Value> evaluate(const FilterCall& node, Activation& here);
  Result<Value> evaluate(const TestCall& node, Activation& here);

  Result<std::vector<Value>> evaluate_all(const std::vector<ExpressionPtr>& items,
                                          Activation& here);
  Result<bool> holds(const Expression& expression, Activation& here);
  Result<Value> evaluate_or_missing(const ExpressionPtr& expression, Activation& here);
  Result<Value> evaluate_call(const Call& node, Activation& here, const Value& caller);
  // Applies the filters of a block to its output.
  Result<Value> filter_output(const Expression& filter, const Value& output, Activation& here);
  Result<Value> apply(const FilterCall& node, const Value& operand, Activation& here);
  Result<void> collect(const CallArguments& given, Arguments& arguments, Activation& here);
  Result<void> add_keywords(const Dict& dict, Arguments& arguments);

  Error located(Error error, Position at) const;

  const Source& source_;
  Runtime& runtime_;
  const Dict& context_;
};

}  // namespace motley::text::jinja
