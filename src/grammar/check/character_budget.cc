#include "grammar/check/character_budget.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "base/cat.h"

namespace motley::grammar {
namespace {

constexpr std::string_view quote_literal = R"("\"")";
// The characters that XGrammar allows in strings of bounded length.
constexpr std::string_view character = R"([^\"\\\r\n])";
constexpr std::int64_t least_gain = 4;  // states

// NAME{least, most}
struct Repeat {
  std::string_view name;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

std::optional<std::int64_t> take_number(std::string_view& text, std::string_view behind) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  if (!text.starts_with(behind)) return std::nullopt;
  text.remove_prefix(behind.size());
  return number;
}

// Removes the repeat of a quoted rule from the front of a text, and returns it.
std::optional<Repeat> take_quoted_repeat(std::string_view& text) {
  std::string_view rest = text;
  rest.remove_prefix(quote_literal.size());
  if (!rest.starts_with(' ')) return std::nullopt;
  rest.remove_prefix(1);
  const std::size_t name = rest.find_first_of("{ ()|\n");
  if (name == std::string_view::npos || rest[name] != '{') return std::nullopt;
  Repeat repeat{.name = rest.substr(0, name)};
  rest.remove_prefix(name + 1);
  const auto least = take_number(rest, ", ");
  if (!least) return std::nullopt;
  const auto most = take_number(rest, "} ");
  if (!most || !rest.starts_with(quote_literal)) return std::nullopt;
  rest.remove_prefix(quote_literal.size());
  repeat.least = *least;
  repeat.most = *most;
  text = rest;
  return repeat;
}

bool is_character(std::string_view ebnf, std::string_view rule) {
  const std::string line = cat("\n", rule, " ::= ((", character, "))\n");
  return ebnf.find(line) != std::string_view::npos;
}

}  // namespace

std::string with_character_budgets(const std::string& ebnf) {
  std::string result;
  std::string rules;
  std::set<std::string> known;
  std::string_view rest = ebnf;
  for (;;) {
    const std::size_t at = rest.find(quote_literal);
    result += rest.substr(0, at);
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at);
    std::string_view behind = rest;
    const auto repeat = take_quoted_repeat(behind);
    if (!repeat || repeat->most - repeat->least < least_gain || !is_character(ebnf, repeat->name)) {
      result += rest.substr(0, quote_literal.size());
      rest.remove_prefix(quote_literal.size());
      continue;
    }
    const std::int64_t most = repeat->most - repeat->least;
    const std::string rule = cat(repeat->name, "_most_", most);
    result += cat(quote_literal, " ");
    if (repeat->least > 0)
      result += cat(repeat->name, "{", repeat->least, ", ", repeat->least, "} ");
    result += cat(rule, " ", quote_literal);
    if (known.insert(rule).second)
      rules += cat(rule, "[max_chars=", most, "] ::= ((", character, "*))\n");
    rest = behind;
  }
  if (!rules.empty() && !result.ends_with('\n')) result += '\n';
  return result + rules;
}

}  // namespace motley::grammar
