#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/values/value.h"

// A template as a tree. The parser creates it, scopes.h resolves its names, and the interpreter
// runs it.
namespace motley::text::jinja {

struct Filter;
struct Test;
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<Statement>;

// The location of a variable: a slot of the activation `levels` out.
struct Reference {
  std::uint32_t levels = 0;
  std::uint32_t slot = 0;
};

// The action on a variable when its scope is entered.
struct Load {
  enum class From : std::uint8_t { nothing, context, variable };
  From from = From::nothing;
  std::uint32_t slot = 0;
  std::string name;      // of the context
  Reference variable{};  // of an outer scope, whose value is copied
};

// The variables of a scope: of a loop's body, a macro, a block.
struct Scope {
  std::vector<Load> loads;
  std::vector<std::uint32_t> slots;  // its own, reset at the end
};

// ------------------------------------------------------------------------------------ expressions

struct Constant {
  Value value;  // of the template's own heap
};
struct Name {
  std::string name;
  Reference variable;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
};
struct TupleLiteral {
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Conditional {
  ExpressionPtr test;
  ExpressionPtr yes;
  ExpressionPtr no;  // null: undefined
};
struct Binary {
  Arithmetic operation;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Not {
  ExpressionPtr operand;
};
struct Sign {
  bool minus;
  ExpressionPtr operand;
};
struct Comparison {
  enum class Operator : std::uint8_t {
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in,
  };
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct Slice {
  ExpressionPtr object;
  ExpressionPtr start;  // these three may be null
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr spread;          // *args, or null
  ExpressionPtr keyword_spread;  // **kwargs, or null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr operand;  // null: the output of a block
  std::string name;
  const Filter* filter = nullptr;  // null: unknown, an error when it is called
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr operand;
  std::string name;
  const Test* test = nullptr;  // as FilterCall::filter
  CallArguments arguments;
};

struct Expression {
  using Node = std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Conditional,
                            Binary, Logical, Not, Sign, Comparison, Concatenation, Attribute, Item,
                            Slice, Call, FilterCall, TestCall>;
  Position at;
  int depth = 1;  // nesting of expressions, including this one
  Node node;
};

// ------------------------------------------------------------------------------------- statements

struct Target;
struct NameTarget {
  std::string name;
  Reference variable;
};
struct AttributeTarget {  // of a namespace
  std::string name;
  Reference variable;
  std::string attribute;
};
struct TupleTarget {
  std::vector<Target> items;
};
struct Target {
  Position at;
  std::variant<NameTarget, AttributeTarget, TupleTarget> node;
};

// The function of a macro, a call block or a generation block.
struct Function {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, or null
  Block body;
  Scope scope;
  std::vector<Reference> parameter_variables;
  std::uint32_t slots = 0;  // of its activation
  bool has_caller = false;  // the body uses `caller` without declaring it; likewise below
  bool has_keywords = false;
  bool has_positionals = false;
  Reference caller{};
  Reference keywords{};
  Reference positionals{};
};

struct Data {
  Value text;
};
struct Print {
  ExpressionPtr value;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // null: every item
  Block body;
  Block otherwise;
  bool recursive = false;
  Scope scope;
  Scope otherwise_scope;
  bool has_loop = false;  // the body uses `loop`
  Reference loop{};
  // The filter has its own variables, and so has the body of a recursive loop.
  Target filter_target;
  Scope filter_scope;
  std::uint32_t filter_slots = 0;
  std::uint32_t slots = 0;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct Macro {
  Reference variable;
  Function function;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  Function function;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
  Scope scope;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // null: the output is unchanged
  Block body;
  Scope scope;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Block body;
  Scope scope;
};
struct Generation {
  Function function;
};
struct Do {
  ExpressionPtr value;
};
struct Break {};
struct Continue {};

struct Statement {
  using Node = std::variant<Data, Print, For, If, Macro, CallBlock, FilterBlock, Set, SetBlock,
                            With, Generation, Do, Break, Continue>;
  Position at;
  Node node;
};

}  // namespace motley::text::jinja
