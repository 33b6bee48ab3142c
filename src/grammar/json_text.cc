#include "grammar/json_text.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::grammar {
namespace {

constexpr std::string_view gap_rule = "json_gap";
constexpr std::string_view blank_rule = "json_blank";
constexpr std::string_view digit_rule = "json_digit";
constexpr std::string_view rules =
    "json_gap ::= (\"\" | (\" \") | (json_break [ \\t]{0, 20}))\n"
    "json_break ::= ((\"\\r\"? \"\\n\") | (\"\\r\"? \"\\n\" \"\\r\"? \"\\n\"))\n"
    "json_blank ::= (\"\" | (\" \"))\n"
    "json_digit ::= (([0-9]))\n";

constexpr std::string_view max_digits = "24";
constexpr std::string_view max_exponent_digits = "3";

// The characters that XGrammar allows in strings of bounded length, and those that JSON allows.
constexpr std::string_view loose_character = R"([^\"\\\r\n])";
constexpr std::string_view character = R"([^\"\\\0-\x1f])";

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

// The length of the string, class, count or name at the front of a text, or of one other character.
std::size_t token_length(std::string_view text) {
  const auto closed_by = [&](char end, std::size_t at) {
    for (; at < text.size() && text[at] != end; ++at) at += text[at] == '\\' ? 1 : 0;
    return std::min(at + 1, text.size());
  };
  switch (text.front()) {
    case '"':
      return closed_by('"', 1);
    case '[':
      return closed_by(']', 1);
    case '{':
      return closed_by('}', 1);
    default:
      break;
  }
  std::size_t length = 0;
  while (length < text.size() && is_name(text[length])) ++length;
  return length == 0 ? 1 : length;
}

// Splits into strings, classes, counts, names and other characters, blanks included.
std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  while (!text.empty()) {
    tokens.push_back(text.substr(0, token_length(text)));
    text.remove_prefix(tokens.back().size());
  }
  return tokens;
}

// Names of rules whose body is a digit, or one or more digits.
struct DigitRules {
  std::unordered_set<std::string_view> one;
  std::unordered_set<std::string_view> some;
};

DigitRules digit_rules(std::string_view ebnf) {
  DigitRules found;
  while (!ebnf.empty()) {
    const std::string_view line = ebnf.substr(0, ebnf.find('\n'));
    ebnf.remove_prefix(std::min(line.size() + 1, ebnf.size()));
    constexpr std::string_view is = " ::= ";
    const std::size_t at = line.find(is);
    if (at == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, at);
    const std::string_view body = line.substr(at + is.size());
    if (body == "(([0-9]))") found.one.insert(name);
    if (body == cat("(([0-9] ", name, ") | ([0-9]))")) found.some.insert(name);
  }
  return found;
}

// XGrammar writes a schema's 0.1 as 0.10000000000000001; returns the shortest form of such a
// literal.
std::optional<std::string> shortest_number(std::string_view literal) {
  constexpr std::size_t long_form = 17;
  if (literal.size() < long_form + 2 || literal.front() != '"') return std::nullopt;
  const std::string_view digits = literal.substr(1, literal.size() - 2);
  if (digits.find('.') == std::string_view::npos) return std::nullopt;
  double number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  std::string text = "\"";
  json::append_number(text, number);
  return text + '"';
}

bool is_white_space(std::string_view name, std::string_view count) {
  return name.starts_with("whitespace") && count == cat("{0, ", whitespace_mark, "}");
}

}  // namespace

std::string with_bounded_json(std::string_view ebnf) {
  const DigitRules digits = digit_rules(ebnf);
  const std::vector<std::string_view> tokens = tokens_of(ebnf);
  const auto token = [&](std::size_t at) {
    return at < tokens.size() ? tokens[at] : std::string_view();
  };
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view each = tokens[i];
    const std::string_view count = token(i + 1);
    if (is_white_space(each, count)) {
      const std::string_view next = token(i + 3);
      text += next == "\",\"" || next == "\":\"" ? blank_rule : gap_rule;
      ++i;
    } else if (each == "[0-9]" && count == "*") {
      text += cat(digit_rule, "{0, ", max_digits, "}");
      ++i;
    } else if ((count == "{0, -1}" || count == "{1, -1}") && digits.one.contains(each)) {
      const bool in_exponent = i >= 4 && tokens[i - 4] == "[eE]";
      text += cat(each, count.substr(0, 4), in_exponent ? max_exponent_digits : max_digits, "}");
      ++i;
    } else if (digits.some.contains(each) && token(i + 2) != ":") {
      text += cat(digit_rule, "{1, ", max_digits, "}");
    } else if (const auto number = shortest_number(each)) {
      text += *number;
    } else {
      text += each == loose_character ? character : each;
    }
  }
  if (!text.ends_with('\n')) text += '\n';
  return text + std::string(rules);
}

}  // namespace motley::grammar
