#include "text/jinja/syntax/parser.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "text/jinja/syntax/expression_parser.h"
#include "text/jinja/syntax/lexer.h"

namespace motley::text::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Block> run() {
    MOTLEY_TRY(Block block, parse_block({}));
    return block;
  }

 private:
  // Parses statements up to a tag with one of the names, which becomes the current token. Without
  // names, up to the end of the template.
  Result<Block> parse_block(Names ends) {
    MOTLEY_TRY(const auto level, deeper());
    const std::size_t begin = token().at;
    Block block;
    while (true) {
      const Position at = position();
      switch (token().kind) {
        case TokenKind::data:
          block.push_back({at, Data{constant(token().text)}});
          advance();
          break;
        case TokenKind::variable_begin: {
          advance();
          MOTLEY_TRY(ExpressionPtr value, parse_tuple(true));
          MOTLEY_TRY_VOID(expect(TokenKind::variable_end, "'}}'"));
          block.push_back({at, Print{std::move(value)}});
          break;
        }
        case TokenKind::block_begin:
          advance();
          if (std::ranges::any_of(ends, [this](std::string_view name) { return is_name(name); }))
            return block;
          MOTLEY_TRY_VOID(parse_statement(block, at, ends));
          MOTLEY_TRY_VOID(expect(TokenKind::block_end, "'%}'"));
          break;
        default:
          if (ends.size() == 0) return block;
          return source_.malformed(
              cat("the template ends where '", join(ends, "' or '"), "' is missing"), begin);
      }
    }
  }

  // The body of a statement, from the end of its tag to its closing tag, which is consumed if
  // `closed`.
  Result<Block> parse_body(Names ends, bool closed) {
    take_symbol(":");
    MOTLEY_TRY_VOID(expect(TokenKind::block_end, "'%}'"));
    MOTLEY_TRY(Block body, parse_block(ends));
    if (closed) advance();
    return body;
  }

  Result<void> parse_statement(Block& block, Position at, Names ends) {
    const std::size_t tag = token().at;
    if (token().kind != TokenKind::name) return unexpected("a tag's name");
    const std::string name = token().text;
    advance();
    const auto add = [&block, at](auto node) { block.push_back({at, std::move(node)}); };
    if (name == "set") return parse_set(block, at);
    if (name == "for") return parse_for(block, at);
    if (name == "if") return parse_if(block, at);
    if (name == "macro") return parse_macro(block, at);
    if (name == "call") return parse_call_block(block, at);
    if (name == "filter") return parse_filter_block(block, at);
    if (name == "with") return parse_with(block, at);
    if (name == "generation") return parse_generation(block, at);
    if (name == "print") return parse_print(block);
    if (name == "do") return parse_do(block, at);
    if (name == "break") return add(Break()), Result<void>();
    if (name == "continue") return add(Continue()), Result<void>();
    constexpr std::array<std::string_view, 6> refused = {"autoescape", "block",  "extends",
                                                         "from",       "import", "include"};
    if (std::ranges::find(refused, name) != refused.end())
      return source_.refused(cat("the tag '", name, "', which chat templates have no use for"),
                             tag);
    std::string what = cat("unknown tag ", quote(name));
    if (ends.size() != 0) what += cat(", looking for '", join(ends, "' or '"), "'");
    return source_.malformed(std::move(what), tag);
  }

  // -------------------------------------------------------------------------------------- targets

  static bool is_constant(std::string_view name) {
    constexpr std::array<std::string_view, 6> constants = {"true",  "True", "false",
                                                           "False", "none", "None"};
    return std::ranges::find(constants, name) != constants.end();
  }

  Result<Target> parse_one_target(bool with_namespace) {
    Target target{.at = position(), .node = {}};
    if (take_symbol("(")) {
      MOTLEY_TRY(const auto level, deeper());
      MOTLEY_TRY(target, parse_target(false));
      MOTLEY_TRY_VOID(expect_symbol(")"));
      return target;
    }
    MOTLEY_TRY(std::string name, expect_any_name());
    if (is_constant(name)) return malformed(cat("can't assign to ", quote(name)));
    if (!with_namespace || !take_symbol(".")) {
      target.node = NameTarget{std::move(name), {}};
      return target;
    }
    MOTLEY_TRY(std::string attribute, expect_any_name());
    target.node = AttributeTarget{std::move(name), {}, std::move(attribute)};
    return target;
  }

  // A name, or several separated by commas.
  Result<Target> parse_target(bool with_namespace) {
    Target target{.at = position(), .node = {}};
    TupleTarget tuple;
    bool is_tuple = false;
    while (tuple.items.empty() || (token().kind != TokenKind::block_end && !is_symbol(")"))) {
      MOTLEY_TRY(Target item, parse_one_target(with_namespace));
      tuple.items.push_back(std::move(item));
      if (!take_symbol(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) return std::move(tuple.items[0]);
    target.node = std::move(tuple);
    return target;
  }

  // ----------------------------------------------------------------------------------- statements

  Result<void> parse_set(Block& block, Position at) {
    MOTLEY_TRY(Target target, parse_target(true));
    if (take_symbol("=")) {
      MOTLEY_TRY(ExpressionPtr value, parse_tuple(true));
      block.push_back({at, Set{std::move(target), std::move(value)}});
      return {};
    }
    SetBlock set{.target = std::move(target), .filter = nullptr, .body = {}, .scope = {}};
    MOTLEY_TRY(set.filter, parse_filters(nullptr, false));
    MOTLEY_TRY(set.body, parse_body({"endset"}, true));
    block.push_back({at, std::move(set)});
    return {};
  }

  Result<void> parse_for(Block& block, Position at) {
    For loop;
    MOTLEY_TRY(loop.target, parse_target(false));
    MOTLEY_TRY_VOID(expect_name("in"));
    MOTLEY_TRY(loop.iterable, parse_tuple(false));
    if (take_name("if")) {
      MOTLEY_TRY(loop.filter, parse_expression());
    }
    loop.recursive = take_name("recursive");
    MOTLEY_TRY(loop.body, parse_body({"endfor", "else"}, false));
    if (take_name("else")) {
      MOTLEY_TRY(loop.otherwise, parse_body({"endfor"}, false));
    }
    advance();  // endfor
    block.push_back({at, std::move(loop)});
    return {};
  }

  Result<void> parse_if(Block& block, Position at) {
    If choice;
    do {
      MOTLEY_TRY(ExpressionPtr test, parse_tuple(false));
      MOTLEY_TRY(Block body, parse_body({"elif", "else", "endif"}, false));
      choice.branches.emplace_back(std::move(test), std::move(body));
    } while (take_name("elif"));
    if (take_name("else")) {
      MOTLEY_TRY(choice.otherwise, parse_body({"endif"}, false));
    }
    advance();  // endif
    block.push_back({at, std::move(choice)});
    return {};
  }

  Result<void> parse_parameters(Function& function) {
    MOTLEY_TRY_VOID(expect_symbol("("));
    bool has_defaults = false;
    while (!is_symbol(")")) {
      if (!function.parameters.empty()) MOTLEY_TRY_VOID(expect_symbol(","));
      const bool constant_name = is_constant(token().text);
      MOTLEY_TRY(std::string name, expect_any_name());
      if (constant_name) return malformed(cat("can't assign to ", quote(name)));
      for (const auto& [known, value] : function.parameters) {
        if (known == name) return malformed(cat("two parameters of the name ", quote(name)));
      }
      ExpressionPtr value;
      if (take_symbol("=")) {
        MOTLEY_TRY(value, parse_expression());
        has_defaults = true;
      } else if (has_defaults) {
        return malformed("non-default argument follows default argument");
      }
      function.parameters.emplace_back(std::move(name), std::move(value));
    }
    advance();
    return {};
  }

  Result<void> parse_macro(Block& block, Position at) {
    Macro macro;
    if (is_constant(token().text)) return malformed(cat("can't assign to ", quote(token().text)));
    MOTLEY_TRY(macro.function.name, expect_any_name());
    MOTLEY_TRY_VOID(parse_parameters(macro.function));
    MOTLEY_TRY(macro.function.body, parse_body({"endmacro"}, true));
    block.push_back({at, std::move(macro)});
    return {};
  }

  Result<void> parse_call_block(Block& block, Position at) {
    CallBlock call;
    call.function.name = "caller";
    if (is_symbol("(")) MOTLEY_TRY_VOID(parse_parameters(call.function));
    MOTLEY_TRY(call.call, parse_expression());
    if (!std::holds_alternative<Call>(call.call->node)) return malformed("expected a call");
    MOTLEY_TRY(call.function.body, parse_body({"endcall"}, true));
    block.push_back({at, std::move(call)});
    return {};
  }

  Result<void> parse_filter_block(Block& block, Position at) {
    FilterBlock filter;
    MOTLEY_TRY(filter.filter, parse_filters(nullptr, true));
    MOTLEY_TRY(filter.body, parse_body({"endfilter"}, true));
    block.push_back({at, std::move(filter)});
    return {};
  }

  Result<void> parse_with(Block& block, Position at) {
    With with;
    while (token().kind != TokenKind::block_end) {
      if (!with.bindings.empty()) MOTLEY_TRY_VOID(expect_symbol(","));
      MOTLEY_TRY(Target target, parse_target(false));
      MOTLEY_TRY_VOID(expect_symbol("="));
      MOTLEY_TRY(ExpressionPtr value, parse_expression());
      with.bindings.emplace_back(std::move(target), std::move(value));
    }
    MOTLEY_TRY(with.body, parse_body({"endwith"}, true));
    block.push_back({at, std::move(with)});
    return {};
  }

  Result<void> parse_generation(Block& block, Position at) {
    Generation generation;
    generation.function.name = "generation";
    MOTLEY_TRY(generation.function.body, parse_body({"endgeneration"}, true));
    block.push_back({at, std::move(generation)});
    return {};
  }

  Result<void> parse_print(Block& block) {
    for (bool first = true; token().kind != TokenKind::block_end; first = false) {
      if (!first) MOTLEY_TRY_VOID(expect_symbol(","));
      const Position at = position();
      MOTLEY_TRY(ExpressionPtr value, parse_expression());
      block.push_back({at, Print{std::move(value)}});
    }
    return {};
  }

  Result<void> parse_do(Block& block, Position at) {
    MOTLEY_TRY(ExpressionPtr value, parse_tuple(true));
    block.push_back({at, Do{std::move(value)}});
    return {};
  }
};

}  // namespace

Result<Block> parse(const Source& source, Heap& heap) {
  MOTLEY_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(source, heap, std::move(tokens)).run();
}

}  // namespace motley::text::jinja
