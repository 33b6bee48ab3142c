#include "text/jinja/syntax/expression_parser.h"

#include <optional>

#include "base/cat.h"

namespace motley::text::jinja {
namespace {

// CPython's limit of nested parentheses, which Jinja generates for each level.
constexpr int deepest = 200;

std::string_view described(TokenKind kind) {
  switch (kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    case TokenKind::integer:
    case TokenKind::number:
      return "a number";
    case TokenKind::name:
    case TokenKind::symbol:
    case TokenKind::end:
      break;
  }
  return "the end of the template";
}

int deepest_of(const std::vector<ExpressionPtr>& items) {
  int depth = 0;
  for (const auto& item : items) depth = std::max(depth, item->depth);
  return depth;
}

}  // namespace

// ---------------------------------------------------------------------------------------- tokens

const Token& ExpressionParser::token(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

bool ExpressionParser::is_symbol(std::string_view text, std::size_t ahead) const {
  return token(ahead).kind == TokenKind::symbol && token(ahead).text == text;
}

bool ExpressionParser::is_name(std::string_view text, std::size_t ahead) const {
  return token(ahead).kind == TokenKind::name && token(ahead).text == text;
}

bool ExpressionParser::take_symbol(std::string_view text) {
  if (!is_symbol(text)) return false;
  advance();
  return true;
}

bool ExpressionParser::take_name(std::string_view text) {
  if (!is_name(text)) return false;
  advance();
  return true;
}

Result<void> ExpressionParser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) return unexpected(cat("'", text, "'"));
  return {};
}

Result<void> ExpressionParser::expect_name(std::string_view text) {
  if (!take_name(text)) return unexpected(cat("'", text, "'"));
  return {};
}

Result<void> ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (token().kind != kind) return unexpected(what);
  advance();
  return {};
}

Result<std::string> ExpressionParser::expect_any_name() {
  if (token().kind != TokenKind::name) return unexpected("a name");
  std::string name = token().text;
  advance();
  return name;
}

Error ExpressionParser::unexpected(std::string_view expected) const {
  const Token& found = token();
  const bool has_text = found.kind == TokenKind::name || found.kind == TokenKind::symbol;
  return malformed(cat("expected ", expected, ", found ",
                       has_text ? quote(found.text) : std::string(described(found.kind))));
}

Result<Depth> ExpressionParser::deeper() {
  if (depth_ >= deepest) return source_.refused(cat("more than ", deepest, " levels"), token().at);
  return Depth(depth_);
}

Value ExpressionParser::constant(std::string_view text) {
  return heap_.string(MarkedText{.text = std::string(text)});
}

Result<ExpressionPtr> ExpressionParser::make(Position at, int operand_depth,
                                             Expression::Node node) {
  auto made = std::make_unique<Expression>();
  made->at = at;
  made->depth = operand_depth + 1;
  made->node = std::move(node);
  if (made->depth > deepest)
    return source_.refused(cat("an expression of more than ", deepest, " levels"), token().at);
  return made;
}

// ----------------------------------------------------------------------------------- expressions

Result<ExpressionPtr> ExpressionParser::parse_expression(bool with_condition) {
  MOTLEY_TRY(const auto level, deeper());
  return with_condition ? parse_condition() : parse_or();
}

Result<ExpressionPtr> ExpressionParser::parse_tuple(bool with_condition, bool may_be_empty) {
  const Position at = position();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    const TokenKind kind = token().kind;
    if (kind == TokenKind::variable_end || kind == TokenKind::block_end || is_symbol(")")) break;
    MOTLEY_TRY(ExpressionPtr item, parse_expression(with_condition));
    items.push_back(std::move(item));
    if (!take_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (!is_tuple && !may_be_empty) return unexpected("an expression");
  const int depth = deepest_of(items);
  return make(at, depth, TupleLiteral{std::move(items)});
}

Result<ExpressionPtr> ExpressionParser::parse_condition() {
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr yes, parse_or());
  while (take_name("if")) {
    MOTLEY_TRY(ExpressionPtr test, parse_or());
    ExpressionPtr no;
    if (take_name("else")) {
      MOTLEY_TRY(no, parse_expression());
    }
    const int depth = std::max({yes->depth, test->depth, no == nullptr ? 0 : no->depth});
    MOTLEY_TRY(yes, make(at, depth, Conditional{std::move(test), std::move(yes), std::move(no)}));
  }
  return yes;
}

Result<ExpressionPtr> ExpressionParser::parse_or() {
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr left, parse_and());
  while (take_name("or")) {
    MOTLEY_TRY(ExpressionPtr right, parse_and());
    const int depth = std::max(left->depth, right->depth);
    MOTLEY_TRY(left, make(at, depth, Logical{false, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr left, parse_not());
  while (take_name("and")) {
    MOTLEY_TRY(ExpressionPtr right, parse_not());
    const int depth = std::max(left->depth, right->depth);
    MOTLEY_TRY(left, make(at, depth, Logical{true, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  const Position at = position();
  if (!take_name("not")) return parse_comparison();
  MOTLEY_TRY(const auto level, deeper());
  MOTLEY_TRY(ExpressionPtr operand, parse_not());
  const int depth = operand->depth;
  return make(at, depth, Not{std::move(operand)});
}

Result<ExpressionPtr> ExpressionParser::parse_comparison() {
  using Operator = Comparison::Operator;
  const auto take_operator = [this]() -> std::optional<Operator> {
    constexpr std::pair<std::string_view, Operator> symbols[] = {
        {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
        {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
    for (const auto& [symbol, meaning] : symbols) {
      if (take_symbol(symbol)) return meaning;
    }
    if (take_name("in")) return Operator::in;
    if (!is_name("not") || !is_name("in", 1)) return std::nullopt;
    advance(2);
    return Operator::not_in;
  };
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr first, parse_sum());
  int depth = first->depth;
  Comparison comparison;
  while (const auto meaning = take_operator()) {
    MOTLEY_TRY(ExpressionPtr next, parse_sum());
    depth = std::max(depth, next->depth);
    comparison.rest.emplace_back(*meaning, std::move(next));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return make(at, depth, std::move(comparison));
}

Result<ExpressionPtr> ExpressionParser::parse_sum() {
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr left, parse_concatenation());
  while (is_symbol("+") || is_symbol("-")) {
    const Arithmetic operation = is_symbol("+") ? Arithmetic::add : Arithmetic::subtract;
    advance();
    MOTLEY_TRY(ExpressionPtr right, parse_concatenation());
    const int depth = std::max(left->depth, right->depth);
    MOTLEY_TRY(left, make(at, depth, Binary{operation, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_concatenation() {
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr first, parse_product());
  if (!is_symbol("~")) return first;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  while (take_symbol("~")) {
    MOTLEY_TRY(ExpressionPtr next, parse_product());
    parts.push_back(std::move(next));
  }
  const int depth = deepest_of(parts);
  return make(at, depth, Concatenation{std::move(parts)});
}

Result<ExpressionPtr> ExpressionParser::parse_product() {
  constexpr std::pair<std::string_view, Arithmetic> operations[] = {
      {"*", Arithmetic::multiply},
      {"/", Arithmetic::divide},
      {"//", Arithmetic::floor_divide},
      {"%", Arithmetic::modulo}};
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr left, parse_power());
  while (true) {
    const auto* const found = std::ranges::find_if(
        operations, [this](const auto& each) { return is_symbol(each.first); });
    if (found == std::end(operations)) return left;
    advance();
    MOTLEY_TRY(ExpressionPtr right, parse_power());
    const int depth = std::max(left->depth, right->depth);
    MOTLEY_TRY(left, make(at, depth, Binary{found->second, std::move(left), std::move(right)}));
  }
}

// From left to right and weaker than a sign, unlike Python.
Result<ExpressionPtr> ExpressionParser::parse_power() {
  const Position at = position();
  MOTLEY_TRY(ExpressionPtr left, parse_unary(true));
  while (take_symbol("**")) {
    MOTLEY_TRY(ExpressionPtr right, parse_unary(true));
    const int depth = std::max(left->depth, right->depth);
    MOTLEY_TRY(left, make(at, depth, Binary{Arithmetic::power, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_unary(bool with_filters) {
  const Position at = position();
  ExpressionPtr operand;
  if (is_symbol("-") || is_symbol("+")) {
    const bool minus = is_symbol("-");
    advance();
    MOTLEY_TRY(const auto level, deeper());
    MOTLEY_TRY(operand, parse_unary(false));
    const int depth = operand->depth;
    MOTLEY_TRY(operand, make(at, depth, Sign{minus, std::move(operand)}));
  } else {
    MOTLEY_TRY(operand, parse_primary());
  }
  MOTLEY_TRY(operand, parse_postfix(std::move(operand)));
  if (!with_filters) return operand;
  while (true) {
    if (is_symbol("|")) {
      MOTLEY_TRY(operand, parse_filters(std::move(operand), false));
    } else if (is_name("is")) {
      MOTLEY_TRY(operand, parse_test(std::move(operand)));
    } else if (is_symbol("(")) {
      MOTLEY_TRY(operand, parse_call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  const Position at = position();
  switch (token().kind) {
    case TokenKind::name: {
      const std::string name = token().text;
      advance();
      if (name == "true" || name == "True") return make(at, 0, Constant{Value::boolean(true)});
      if (name == "false" || name == "False") return make(at, 0, Constant{Value::boolean(false)});
      if (name == "none" || name == "None") return make(at, 0, Constant{Value::none()});
      return make(at, 0, Name{name, {}});
    }
    case TokenKind::string: {
      std::string text;
      for (; token().kind == TokenKind::string; advance()) text += token().text;
      return make(at, 0, Constant{constant(text)});
    }
    case TokenKind::integer: {
      const Value value = Value::integer(token().integer);
      advance();
      return make(at, 0, Constant{value});
    }
    case TokenKind::number: {
      const Value value = Value::number(token().number);
      advance();
      return make(at, 0, Constant{value});
    }
    default:
      break;
  }
  if (is_symbol("[")) return parse_list();
  if (is_symbol("{")) return parse_dict();
  if (!take_symbol("(")) return unexpected("an expression");
  MOTLEY_TRY(const auto level, deeper());
  MOTLEY_TRY(ExpressionPtr inner, parse_tuple(true, true));
  MOTLEY_TRY_VOID(expect_symbol(")"));
  return inner;
}

Result<ExpressionPtr> ExpressionParser::parse_list() {
  const Position at = position();
  advance();
  std::vector<ExpressionPtr> items;
  while (!is_symbol("]")) {
    if (!items.empty()) {
      MOTLEY_TRY_VOID(expect_symbol(","));
      if (is_symbol("]")) break;
    }
    MOTLEY_TRY(ExpressionPtr item, parse_expression());
    items.push_back(std::move(item));
  }
  advance();
  const int depth = deepest_of(items);
  return make(at, depth, ListLiteral{std::move(items)});
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  const Position at = position();
  advance();
  DictLiteral dict;
  int depth = 0;
  while (!is_symbol("}")) {
    if (!dict.items.empty()) {
      MOTLEY_TRY_VOID(expect_symbol(","));
      if (is_symbol("}")) break;
    }
    MOTLEY_TRY(ExpressionPtr key, parse_expression());
    MOTLEY_TRY_VOID(expect_symbol(":"));
    MOTLEY_TRY(ExpressionPtr value, parse_expression());
    depth = std::max({depth, key->depth, value->depth});
    dict.items.emplace_back(std::move(key), std::move(value));
  }
  advance();
  return make(at, depth, std::move(dict));
}

// ---------------------------------------------------------------------------- behind an operand

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    if (is_symbol(".") || is_symbol("[")) {
      MOTLEY_TRY(operand, parse_subscript(std::move(operand)));
    } else if (is_symbol("(")) {
      MOTLEY_TRY(operand, parse_call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr operand) {
  const Position at = position();
  const int depth = operand->depth;
  if (take_symbol(".")) {
    if (token().kind == TokenKind::integer) {
      const Value index = Value::integer(token().integer);
      advance();
      MOTLEY_TRY(ExpressionPtr key, make(at, 0, Constant{index}));
      return make(at, depth, Item{std::move(operand), std::move(key)});
    }
    MOTLEY_TRY(std::string name, expect_any_name());
    return make(at, depth, Attribute{std::move(operand), std::move(name)});
  }
  advance();
  std::vector<ExpressionPtr> keys;
  bool is_slice = false;
  Slice slice;
  while (!is_symbol("]")) {
    if (!keys.empty() || is_slice) MOTLEY_TRY_VOID(expect_symbol(","));
    if (is_slice) return source_.refused("a slice beside other indexes", token().at);
    MOTLEY_TRY(ExpressionPtr key, parse_subscript_part(slice, is_slice));
    if (is_slice && !keys.empty())
      return source_.refused("a slice beside other indexes", token().at);
    if (!is_slice) keys.push_back(std::move(key));
  }
  advance();
  if (is_slice) {
    int deep = depth;
    for (const auto* const part : {slice.start.get(), slice.stop.get(), slice.step.get()})
      deep = std::max(deep, part == nullptr ? 0 : part->depth);
    slice.object = std::move(operand);
    return make(at, deep, std::move(slice));
  }
  const int keys_depth = deepest_of(keys);
  ExpressionPtr key;
  if (keys.size() == 1) {
    key = std::move(keys[0]);
  } else {
    MOTLEY_TRY(key, make(at, keys_depth, TupleLiteral{std::move(keys)}));
  }
  return make(at, std::max(depth, keys_depth + 1), Item{std::move(operand), std::move(key)});
}

// An index, or a part of a slice.
Result<ExpressionPtr> ExpressionParser::parse_subscript_part(Slice& slice, bool& is_slice) {
  ExpressionPtr first;
  if (!is_symbol(":")) {
    MOTLEY_TRY(first, parse_expression());
    if (!is_symbol(":")) return first;
  }
  is_slice = true;
  slice.start = std::move(first);
  const auto at_end = [this] { return is_symbol("]") || is_symbol(","); };
  advance();
  if (!is_symbol(":") && !at_end()) {
    MOTLEY_TRY(slice.stop, parse_expression());
  }
  if (take_symbol(":") && !at_end()) {
    MOTLEY_TRY(slice.step, parse_expression());
  }
  return ExpressionPtr();
}

Result<ExpressionPtr> ExpressionParser::parse_call(ExpressionPtr callee) {
  const Position at = position();
  MOTLEY_TRY(auto arguments, parse_arguments());
  const int depth = std::max(callee->depth, arguments.depth);
  return make(at, depth, Call{std::move(callee), std::move(arguments.arguments)});
}

Result<ExpressionParser::ParsedArguments> ExpressionParser::parse_arguments() {
  const Error invalid = malformed("invalid syntax for function call expression");
  MOTLEY_TRY_VOID(expect_symbol("("));
  ParsedArguments parsed;
  CallArguments& arguments = parsed.arguments;
  const auto one = [&]() -> Result<ExpressionPtr> {
    MOTLEY_TRY(ExpressionPtr value, parse_expression());
    parsed.depth = std::max(parsed.depth, value->depth);
    return value;
  };
  for (bool first = true; !is_symbol(")"); first = false) {
    if (!first) {
      MOTLEY_TRY_VOID(expect_symbol(","));
      if (is_symbol(")")) break;
    }
    if (take_symbol("*")) {
      if (arguments.spread != nullptr || arguments.keyword_spread != nullptr) return invalid;
      MOTLEY_TRY(arguments.spread, one());
    } else if (take_symbol("**")) {
      if (arguments.keyword_spread != nullptr) return invalid;
      MOTLEY_TRY(arguments.keyword_spread, one());
    } else if (token().kind == TokenKind::name && is_symbol("=", 1)) {
      if (arguments.keyword_spread != nullptr) return invalid;
      std::string name = token().text;
      advance(2);
      for (const auto& [known, value] : arguments.keyword) {
        if (known == name) return malformed(cat("the argument ", quote(name), " is given twice"));
      }
      MOTLEY_TRY(ExpressionPtr value, one());
      arguments.keyword.emplace_back(std::move(name), std::move(value));
    } else {
      if (arguments.spread != nullptr || arguments.keyword_spread != nullptr ||
          !arguments.keyword.empty())
        return invalid;
      MOTLEY_TRY(ExpressionPtr value, one());
      arguments.positional.push_back(std::move(value));
    }
  }
  advance();
  return parsed;
}

Result<std::string> ExpressionParser::parse_dotted_name() {
  MOTLEY_TRY(std::string name, expect_any_name());
  while (take_symbol(".")) {
    MOTLEY_TRY(const std::string next, expect_any_name());
    name += cat(".", next);
  }
  return name;
}

Result<ExpressionPtr> ExpressionParser::parse_filters(ExpressionPtr operand, bool at_name) {
  while (at_name || take_symbol("|")) {
    at_name = false;
    const Position at = position();
    FilterCall call;
    MOTLEY_TRY(call.name, parse_dotted_name());
    int depth = operand == nullptr ? 0 : operand->depth;
    if (is_symbol("(")) {
      MOTLEY_TRY(auto arguments, parse_arguments());
      depth = std::max(depth, arguments.depth);
      call.arguments = std::move(arguments.arguments);
    }
    call.operand = std::move(operand);
    MOTLEY_TRY(operand, make(at, depth, std::move(call)));
  }
  return operand;
}

Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr operand) {
  advance();  // is
  const bool negated = take_name("not");
  const Position at = position();
  TestCall call;
  MOTLEY_TRY(call.name, parse_dotted_name());
  int depth = operand->depth;
  const TokenKind kind = token().kind;
  if (is_symbol("(")) {
    MOTLEY_TRY(auto arguments, parse_arguments());
    depth = std::max(depth, arguments.depth);
    call.arguments = std::move(arguments.arguments);
  } else if ((kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
             kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::number ||
             is_symbol("[") || is_symbol("{")) {
    if (is_name("is")) return malformed("tests can't be chained with 'is'");
    MOTLEY_TRY(ExpressionPtr argument, parse_primary());
    MOTLEY_TRY(argument, parse_postfix(std::move(argument)));
    depth = std::max(depth, argument->depth);
    call.arguments.positional.push_back(std::move(argument));
  }
  call.operand = std::move(operand);
  MOTLEY_TRY(ExpressionPtr test, make(at, depth, std::move(call)));
  if (!negated) return test;
  return make(at, depth + 1, Not{std::move(test)});
}

}  // namespace motley::text::jinja
