#include "text/jinja/scopes.h"

#include <algorithm>

#include "base/cat.h"
#include "base/overloaded.h"
#include "text/jinja/builtins/filters.h"
#include "text/jinja/operands.h"
#include "text/jinja/syntax/symbols.h"
#include "text/jinja/syntax/undeclared.h"

namespace motley::text::jinja {
namespace {

// ------------------------------------------------------- what a scope's text says of its names

void note(const Expression& expression, Symbols& symbols) {
  if (const auto* const name = std::get_if<Name>(&expression.node)) symbols.load(name->name);
  for_each_operand(expression, [&](const Expression& each) { note(each, symbols); });
}

void note(const ExpressionPtr& expression, Symbols& symbols) {
  if (expression != nullptr) note(*expression, symbols);
}

void note_parameters(const Target& target, Symbols& symbols) {
  for_each_name(target, [&](const std::string& name) { symbols.declare_parameter(name); });
}

void note_target(const Target& target, Symbols& symbols) {
  if (const auto* const name = std::get_if<NameTarget>(&target.node)) symbols.store(name->name);
  if (const auto* const attribute = std::get_if<AttributeTarget>(&target.node))
    symbols.load(attribute->name);
  if (const auto* const tuple = std::get_if<TupleTarget>(&target.node)) {
    for (const Target& item : tuple->items) note_target(item, symbols);
  }
}

void note(const Block& block, Symbols& symbols);

void note(const If& choice, Symbols& symbols) {
  note(choice.branches[0].first, symbols);
  Symbols first = symbols;
  note(choice.branches[0].second, first);
  Symbols middle = symbols;
  for (std::size_t i = 1; i < choice.branches.size(); ++i) {
    note(choice.branches[i].first, middle);
    Symbols body = middle;
    note(choice.branches[i].second, body);
    middle.merge({body});
  }
  Symbols last = symbols;
  note(choice.otherwise, last);
  symbols.merge({first, middle, last});
}

// Bodies of loops, macros and blocks are separate scopes, and not examined.
void note(const Statement& statement, Symbols& symbols) {
  std::visit(Overloaded{
                 [](const Data&) {},
                 [&](const Print& node) { note(node.value, symbols); },
                 [&](const For& node) { note(node.iterable, symbols); },
                 [&](const If& node) { note(node, symbols); },
                 [&](const Macro& node) { symbols.store(node.function.name); },
                 [&](const CallBlock& node) { note(node.call, symbols); },
                 [&](const FilterBlock& node) { note(node.filter, symbols); },
                 [&](const Set& node) {
                   note(node.value, symbols);
                   note_target(node.target, symbols);
                 },
                 [&](const SetBlock& node) { note_target(node.target, symbols); },
                 [&](const With& node) {
                   for (const auto& [target, value] : node.bindings) note(value, symbols);
                 },
                 [](const Generation&) {},
                 [&](const Do& node) { note(node.value, symbols); },
                 [](const Break&) {},
                 [](const Continue&) {},
             },
             statement.node);
}

void note(const Block& block, Symbols& symbols) {
  for (const Statement& statement : block) note(statement, symbols);
}

void note(const Function& function, Symbols& symbols) {
  for (const auto& [name, value] : function.parameters) symbols.declare_parameter(name);
  for (const auto& [name, value] : function.parameters) note(value, symbols);
  note(function.body, symbols);
}

// ------------------------------------------------------------------------------ the names' places

// The context of statements.
struct Frame {
  Symbols* symbols;
  ActivationLayout* layout;
  bool lenient = false;  // inside `if`: unknown filters and tests only fail when they are called
  bool in_loop = false;  // break and continue have a loop
};

class Resolver {
 public:
  explicit Resolver(const Source& source) : source_(source) {}

  Result<Root> run(Block& block) {
    ActivationLayout layout;
    Symbols symbols(nullptr, layout);
    note(block, symbols);
    Root root{.scope = symbols.scope()};
    MOTLEY_TRY_VOID(resolve(block, {.symbols = &symbols, .layout = &layout}));
    root.slots = static_cast<std::uint32_t>(layout.slots.size());
    return root;
  }

 private:
  Error malformed(std::string what, Position at) const {
    return Error(ErrorCode::bad_file, std::move(what), source_.where(at), "mend the chat template");
  }

  Result<void> check_known(bool known, std::string_view kind, const std::string& name, Position at,
                           const Frame& frame) const {
    if (kind == "filter" && is_refused_filter(name))
      return Error(ErrorCode::unsupported,
                   cat("the filter '", name, "', which chat templates have no use for"),
                   source_.where(at), "mend the chat template");
    if (known || frame.lenient) return {};
    return malformed(cat("no ", kind, " named ", quote(name)), at);
  }

  // ---------------------------------------------------------------------------------- expressions

  Result<void> resolve(Expression& expression, Frame frame) {
    if (auto* const name = std::get_if<Name>(&expression.node))
      name->variable = frame.symbols->reference(name->name, *frame.layout);
    if (std::holds_alternative<Conditional>(expression.node)) frame.lenient = true;
    if (auto* const call = std::get_if<FilterCall>(&expression.node)) {
      call->filter = find_filter(call->name);
      MOTLEY_TRY_VOID(
          check_known(call->filter != nullptr, "filter", call->name, expression.at, frame));
    }
    if (auto* const call = std::get_if<TestCall>(&expression.node)) {
      call->test = find_test(call->name);
      MOTLEY_TRY_VOID(check_known(call->test != nullptr, "test", call->name, expression.at, frame));
    }
    Result<void> result;
    for_each_operand(expression, [&](const Expression& each) {
      if (result.ok()) result = resolve(const_cast<Expression&>(each), frame);
    });
    return result;
  }

  Result<void> resolve(const ExpressionPtr& expression, const Frame& frame) {
    if (expression == nullptr) return {};
    return resolve(*expression, frame);
  }

  Result<void> resolve(Target& target, const Frame& frame) {
    if (auto* const name = std::get_if<NameTarget>(&target.node)) {
      if (loops_ > 0 && name->name == "loop")
        return malformed("can't assign to the special variable 'loop' inside a loop", target.at);
      name->variable = frame.symbols->reference(name->name, *frame.layout);
    } else if (auto* const attribute = std::get_if<AttributeTarget>(&target.node)) {
      attribute->variable = frame.symbols->reference(attribute->name, *frame.layout);
    } else if (auto* const tuple = std::get_if<TupleTarget>(&target.node)) {
      for (Target& item : tuple->items) MOTLEY_TRY_VOID(resolve(item, frame));
    }
    return {};
  }

  // ----------------------------------------------------------------------------------- statements

  Result<void> resolve(Block& block, const Frame& frame) {
    for (Statement& statement : block) {
      MOTLEY_TRY_VOID(std::visit([&](auto& node) { return resolve(node, frame, statement.at); },
                                 statement.node));
    }
    return {};
  }

  Result<void> resolve(Data&, const Frame&, Position) { return {}; }
  Result<void> resolve(Print& print, const Frame& frame, Position) {
    return resolve(print.value, frame);
  }
  Result<void> resolve(Do& statement, const Frame& frame, Position) {
    return resolve(statement.value, frame);
  }

  Result<void> resolve(Break&, const Frame& frame, Position at) {
    if (!frame.in_loop) return malformed("'break' outside of a loop", at);
    return {};
  }
  Result<void> resolve(Continue&, const Frame& frame, Position at) {
    if (!frame.in_loop) return malformed("'continue' outside of a loop", at);
    return {};
  }

  Result<void> resolve(If& choice, Frame frame, Position) {
    frame.lenient = true;
    for (auto& [test, body] : choice.branches) {
      MOTLEY_TRY_VOID(resolve(test, frame));
      MOTLEY_TRY_VOID(resolve(body, frame));
    }
    return resolve(choice.otherwise, frame);
  }

  Result<void> resolve(Set& set, const Frame& frame, Position) {
    MOTLEY_TRY_VOID(resolve(set.value, frame));
    return resolve(set.target, frame);
  }

  Result<void> resolve(SetBlock& set, const Frame& frame, Position) {
    Symbols symbols(frame.symbols, *frame.layout);
    note(set.body, symbols);
    note(set.filter, symbols);
    set.scope = symbols.scope();
    const Frame inner{.symbols = &symbols, .layout = frame.layout, .in_loop = frame.in_loop};
    MOTLEY_TRY_VOID(resolve(set.body, inner));
    MOTLEY_TRY_VOID(resolve(set.filter, inner));
    return resolve(set.target, frame);
  }

  Result<void> resolve(FilterBlock& block, const Frame& frame, Position) {
    Symbols symbols(frame.symbols, *frame.layout);
    note(block.body, symbols);
    note(block.filter, symbols);
    block.scope = symbols.scope();
    const Frame inner{.symbols = &symbols, .layout = frame.layout, .in_loop = frame.in_loop};
    MOTLEY_TRY_VOID(resolve(block.body, inner));
    return resolve(block.filter, inner);
  }

  Result<void> resolve(With& with, const Frame& frame, Position) {
    Symbols symbols(frame.symbols, *frame.layout);
    for (const auto& [target, value] : with.bindings) note_parameters(target, symbols);
    note(with.body, symbols);
    with.scope = symbols.scope();
    const Frame inner{.symbols = &symbols, .layout = frame.layout, .in_loop = frame.in_loop};
    for (auto& [target, value] : with.bindings) {
      MOTLEY_TRY_VOID(resolve(value, frame));
      MOTLEY_TRY_VOID(resolve(target, inner));
    }
    return resolve(with.body, inner);
  }

  Result<void> resolve(For& loop, const Frame& frame, Position) {
    MOTLEY_TRY_VOID(resolve(loop.iterable, frame));
    ++loops_;
    MOTLEY_TRY_VOID(resolve_filter(loop, frame));
    ActivationLayout own{.outer = frame.layout, .slots = {}};
    ActivationLayout& layout = loop.recursive ? own : *frame.layout;
    Symbols symbols(frame.symbols, layout);
    loop.has_loop = loop.recursive || undeclared(loop.body, {"loop"}).contains("loop");
    if (loop.has_loop) symbols.declare_parameter("loop");
    note_parameters(loop.target, symbols);
    note(loop.body, symbols);
    const Frame inner{.symbols = &symbols, .layout = &layout, .in_loop = true};
    if (loop.has_loop) loop.loop = symbols.reference("loop", layout);
    loop.scope = symbols.scope();
    MOTLEY_TRY_VOID(resolve(loop.target, inner));
    MOTLEY_TRY_VOID(resolve(loop.body, inner));

    Symbols otherwise(frame.symbols, layout);
    note(loop.otherwise, otherwise);
    loop.otherwise_scope = otherwise.scope();
    MOTLEY_TRY_VOID(resolve(
        loop.otherwise,
        {.symbols = &otherwise, .layout = &layout, .in_loop = frame.in_loop && !loop.recursive}));
    loop.slots = static_cast<std::uint32_t>(own.slots.size());
    --loops_;
    return {};
  }

  // The filter runs in its own activation, because Jinja compiles it to a generator.
  Result<void> resolve_filter(For& loop, const Frame& frame) {
    if (loop.filter == nullptr) return {};
    ActivationLayout layout{.outer = frame.layout, .slots = {}};
    Symbols symbols(frame.symbols, layout);
    note_parameters(loop.target, symbols);
    note(loop.filter, symbols);
    loop.filter_scope = symbols.scope();
    loop.filter_target = loop.target;
    const Frame inner{.symbols = &symbols, .layout = &layout};
    MOTLEY_TRY_VOID(resolve(loop.filter_target, inner));
    MOTLEY_TRY_VOID(resolve(loop.filter, inner));
    loop.filter_slots = static_cast<std::uint32_t>(layout.slots.size());
    return {};
  }

  // ------------------------------------------------------------------------------------ functions

  Result<void> resolve(Function& function, const Frame& frame, Position at) {
    ActivationLayout layout{.outer = frame.layout, .slots = {}};
    Symbols symbols(frame.symbols, layout);
    note(function, symbols);
    const auto has_parameter = [&](std::string_view name) {
      return std::ranges::any_of(function.parameters,
                                 [&](const auto& each) { return each.first == name; });
    };
    const auto asked = undeclared(function.body, {"caller", "kwargs", "varargs"});
    const auto declare = [&](const std::string& name, bool& has, Reference& variable) {
      has = asked.contains(name) && !has_parameter(name);
      if (!has) return;
      symbols.declare_parameter(name);
      variable = symbols.reference(name, layout);
    };
    if (asked.contains("caller")) {
      for (const auto& [name, value] : function.parameters) {
        if (name == "caller" && value == nullptr)
          return malformed("the parameter 'caller' needs a default, or must be left out", at);
      }
    }
    declare("caller", function.has_caller, function.caller);
    declare("kwargs", function.has_keywords, function.keywords);
    declare("varargs", function.has_positionals, function.positionals);
    function.scope = symbols.scope();
    const Frame inner{.symbols = &symbols, .layout = &layout};
    for (auto& [name, value] : function.parameters) {
      function.parameter_variables.push_back(symbols.reference(name, layout));
      MOTLEY_TRY_VOID(resolve(value, inner));
    }
    MOTLEY_TRY_VOID(resolve(function.body, inner));
    function.slots = static_cast<std::uint32_t>(layout.slots.size());
    return {};
  }

  Result<void> resolve(Macro& macro, const Frame& frame, Position at) {
    macro.variable = frame.symbols->reference(macro.function.name, *frame.layout);
    return resolve(macro.function, frame, at);
  }
  Result<void> resolve(CallBlock& call, const Frame& frame, Position at) {
    MOTLEY_TRY_VOID(resolve(call.call, frame));
    return resolve(call.function, frame, at);
  }
  Result<void> resolve(Generation& generation, const Frame& frame, Position at) {
    return resolve(generation.function, frame, at);
  }

  const Source& source_;
  int loops_ = 0;  // loops around what is resolved, even across macros
};

}  // namespace

Result<Root> resolve(const Source& source, Block& block) { return Resolver(source).run(block); }

}  // namespace motley::text::jinja
