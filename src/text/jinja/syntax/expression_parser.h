#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/syntax/depth.h"
#include "text/jinja/syntax/lexer.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/syntax/syntax.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// Parses expressions from tokens.
class ExpressionParser {
 public:
  ExpressionParser(const Source& source, Heap& heap, std::vector<Token> tokens)
      : source_(source), heap_(heap), tokens_(std::move(tokens)) {}

 protected:
  using Parsed = Result<ExpressionPtr>;

  const Token& token(std::size_t ahead = 0) const;
  void advance(std::size_t count = 1) { at_ = std::min(at_ + count, tokens_.size() - 1); }
  bool is_symbol(std::string_view text, std::size_t ahead = 0) const;
  bool is_name(std::string_view text, std::size_t ahead = 0) const;
  bool take_symbol(std::string_view text);
  bool take_name(std::string_view text);
  Result<void> expect_symbol(std::string_view text);
  Result<void> expect_name(std::string_view text);
  Result<void> expect(TokenKind kind, std::string_view what);
  Result<std::string> expect_any_name();
  Position position() const { return source_.position(token().at); }
  Error unexpected(std::string_view expected) const;
  Error malformed(std::string what) const { return source_.malformed(std::move(what), token().at); }

  // An expression, with `a if b else c` or without.
  Parsed parse_expression(bool with_condition = true);
  // The same, or a tuple without parentheses.
  Parsed parse_tuple(bool with_condition, bool may_be_empty = false);
  // Filters of an operand; the operand is null for those of blocks.
  Parsed parse_filters(ExpressionPtr operand, bool at_name);

  // One level deeper into the template, as long as the result exists.
  Result<Depth> deeper();

  // A node one level above operands of that depth.
  Parsed make(Position at, int operand_depth, Expression::Node node);
  Value constant(std::string_view text);

  const Source& source_;
  Heap& heap_;

 private:
  Parsed parse_condition();
  Parsed parse_or();
  Parsed parse_and();
  Parsed parse_not();
  Parsed parse_comparison();
  Parsed parse_sum();
  Parsed parse_concatenation();
  Parsed parse_product();
  Parsed parse_power();
  Parsed parse_unary(bool with_filters);
  Parsed parse_primary();
  Parsed parse_list();
  Parsed parse_dict();
  Parsed parse_postfix(ExpressionPtr operand);
  Parsed parse_subscript(ExpressionPtr operand);
  Parsed parse_subscript_part(Slice& slice, bool& is_slice);
  Parsed parse_call(ExpressionPtr callee);
  Parsed parse_test(ExpressionPtr operand);
  struct ParsedArguments {
    CallArguments arguments;
    int depth = 0;  // of the deepest
  };
  Result<ParsedArguments> parse_arguments();
  Result<std::string> parse_dotted_name();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace motley::text::jinja
