#include "grammar/schema/pattern.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <vector>

#include "base/cat.h"
#include "base/utf8.h"
#include "grammar/check/check.h"

namespace motley::grammar {
namespace {

// Characters that a backslash may precede: classes, and literal characters.
constexpr std::string_view escaped_classes = "dDwWsS";
constexpr std::string_view escaped_characters = "^$.*+?()[]{}|/-_ ~!@#%&=:;,<>'`";

constexpr std::string_view any_text = ".*";

// A top-level alternative of a pattern.
struct Alternative {
  std::string text;     // without ^ and $, in ASCII
  std::string literal;  // its characters, as long as it has only those
  bool is_literal = true;
  bool at_begin = false;
  bool at_end = false;
  int items = 0;         // characters, classes and groups
  std::string repeated;  // the last character or class
  char repeat = 0;       // behind it
};

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  // False if the compiler cannot follow it.
  bool run() {
    while (!rest_.empty()) {
      if (!step()) return false;
    }
    return depth_ == 0;
  }

  std::vector<Alternative> alternatives = std::vector<Alternative>(1);

 private:
  Alternative& current() { return alternatives.back(); }
  void keep(std::size_t bytes) {
    current().text += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }
  void item(std::string_view text) {
    current().text += text;
    current().repeated = depth_ == 0 ? text : std::string_view();
    ++current().items;
    current().repeat = 0;
  }
  void not_literal() { current().is_literal = false; }

  bool step() {
    // Nothing may follow the end of an alternative.
    if (current().at_end && rest_.front() != '|') return false;
    switch (rest_.front()) {
      case '^':
        if (depth_ > 0 || !current().text.empty() || current().at_begin) return false;
        current().at_begin = true;
        rest_.remove_prefix(1);
        return true;
      case '$':
        if (depth_ > 0) return false;
        current().at_end = true;
        rest_.remove_prefix(1);
        return true;
      case '|':
        if (depth_ == 0) {
          alternatives.emplace_back();
          rest_.remove_prefix(1);
        } else {
          keep(1);
        }
        return true;
      case '(':
        return open();
      case ')':
        if (--depth_ < 0) return false;
        keep(1);
        current().repeat = 0;  // belongs to the last item, not to the group
        return true;
      case '[':
        return read_class();
      case '*':
      case '+':
      case '?':
      case '{':
        return repeat();
      case '.':
        not_literal();
        item(".");
        rest_.remove_prefix(1);
        return true;
      case '\\':
        return escape();
      default:
        return character();
    }
  }

  bool open() {
    not_literal();
    item("");
    if (rest_.starts_with("(?")) {
      if (!rest_.starts_with("(?:")) return false;
      keep(3);
    } else {
      keep(1);
    }
    ++depth_;
    return true;
  }

  bool repeat() {
    not_literal();
    if (current().text.empty() || current().text.back() == '(' || current().repeat != 0)
      return false;
    current().repeat = rest_.front();
    if (rest_.front() == '{') {
      const std::size_t end = rest_.find('}');
      if (end == std::string_view::npos || end < 2) return false;
      const std::string_view inner = rest_.substr(1, end - 1);
      const std::size_t comma = inner.find(',');
      if (comma == 0 || inner.find_first_not_of("0123456789,") != std::string_view::npos ||
          inner.find(',', comma == std::string_view::npos ? comma : comma + 1) !=
              std::string_view::npos)
        return false;
      keep(end + 1);
    } else if (rest_.front() == '?' && current().text.ends_with(')') &&
               !current().text.ends_with("\\)")) {
      // The compiler takes (-a+)? to match "a" as well.
      current().text += "{0,1}";
      rest_.remove_prefix(1);
    } else {
      keep(1);
    }
    // A lazy quantifier matches the same texts.
    if (rest_.starts_with('?')) rest_.remove_prefix(1);
    return true;
  }

  // The next character as \u{...} if it is not ASCII; empty if it is invalid.
  std::string take_character() {
    const auto first = static_cast<unsigned char>(rest_.front());
    if (first < 0x80) {
      const std::string text(1, rest_.front());
      rest_.remove_prefix(1);
      return first < 0x20 || first == 0x7F ? std::string() : text;
    }
    const utf8::Decoded decoded = utf8::decode(rest_);
    rest_.remove_prefix(decoded.length);
    constexpr std::string_view digits = "0123456789abcdef";
    std::string hex;
    for (char32_t left = decoded.code_point; left > 0; left >>= 4)
      hex.insert(hex.begin(), digits[static_cast<std::size_t>(left) & 15U]);
    return cat("\\u{", hex, "}");
  }

  // A character by its code, \x41, \u0041 or \u{41}, in the last of these forms; empty if it is
  // invalid.
  std::string take_number() {
    std::size_t begin = 2;
    std::size_t length = rest_[1] == 'x' ? 2 : 4;
    if (rest_.starts_with("\\u{")) {
      begin = 3;
      const std::size_t end = rest_.find('}');
      if (end == std::string_view::npos || end - begin > 6) return {};
      length = end - begin;
    }
    if (rest_.size() < begin + length) return {};
    const std::string_view digits = rest_.substr(begin, length);
    std::uint32_t number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
    if (read.ptr != digits.data() + digits.size() || length == 0) return {};
    const bool is_surrogate = number >= 0xD800 && number < 0xE000;
    if (number < 0x20 || number == 0x7F || number == '"' || number == '\\' || is_surrogate ||
        number > 0x10FFFF)
      return {};
    rest_.remove_prefix(begin + length + (begin == 3 ? 1 : 0));
    number_ = number;
    return cat("\\u{", digits, "}");
  }

  bool character() {
    if (rest_.front() == '"' || rest_.front() == ']' || rest_.front() == '}') return false;
    const std::string_view before = rest_;
    const std::string text = take_character();
    if (text.empty()) return false;
    if (depth_ == 0) current().literal += before.substr(0, before.size() - rest_.size());
    item(text);
    return true;
  }

  bool escape() {
    if (rest_.size() < 2) return false;
    const char next = rest_[1];
    if (next == 'u' || next == 'x') {
      const std::string text = take_number();
      if (text.empty()) return false;
      if (depth_ == 0) utf8::append(current().literal, number_);
      item(text);
      return true;
    }
    if (escaped_classes.find(next) != std::string_view::npos) {
      not_literal();
    } else if (escaped_characters.find(next) != std::string_view::npos) {
      if (depth_ == 0) current().literal += next;
    } else {
      return false;
    }
    // Few of them need a backslash, and the compiler accepts no other escapes.
    constexpr std::string_view syntax = "^$.*+?()[]{}|/-";
    const bool keeps = escaped_classes.find(next) != std::string_view::npos ||
                       syntax.find(next) != std::string_view::npos;
    item(keeps ? rest_.substr(0, 2) : rest_.substr(1, 1));
    rest_.remove_prefix(2);
    return true;
  }

  bool read_class() {
    not_literal();
    std::string text = "[";
    rest_.remove_prefix(1);
    if (rest_.starts_with('^')) {
      text += '^';
      rest_.remove_prefix(1);
    }
    if (rest_.starts_with(']')) return false;
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() != '\\') {
        // A bracket inside a class: a POSIX class or a set operation, depending on the dialect.
        if (rest_.front() == '[') return false;
        const std::string each = take_character();
        if (each.empty()) return false;
        text += each;
        continue;
      }
      if (rest_.size() < 2) return false;
      if (rest_[1] == 'u' || rest_[1] == 'x') {
        const std::string each = take_number();
        if (each.empty()) return false;
        text += each;
        continue;
      }
      constexpr std::string_view known = "nrtfv\\\"";
      if (known.find(rest_[1]) == std::string_view::npos &&
          escaped_classes.find(rest_[1]) == std::string_view::npos &&
          escaped_characters.find(rest_[1]) == std::string_view::npos)
        return false;
      constexpr std::string_view syntax = "^$.*+?()[]{}|/-nrtfv\\";
      const bool keeps = escaped_classes.find(rest_[1]) != std::string_view::npos ||
                         syntax.find(rest_[1]) != std::string_view::npos;
      text += keeps ? rest_.substr(0, 2) : rest_.substr(1, 1);
      rest_.remove_prefix(2);
    }
    if (rest_.empty()) return false;
    rest_.remove_prefix(1);
    item(text + "]");
    return true;
  }

  std::string_view rest_;
  int depth_ = 0;
  char32_t number_ = 0;
};

}  // namespace

std::optional<SchemaPattern> SchemaPattern::read(std::string_view text, bool to_the_letter) {
  if (!utf8::valid(text)) return std::nullopt;
  Reader reader(text);
  if (!reader.run()) return std::nullopt;
  const std::vector<Alternative>& all = reader.alternatives;
  const bool anchored = std::ranges::any_of(
      all, [](const Alternative& each) { return each.at_begin || each.at_end; });
  SchemaPattern pattern;
  for (const Alternative& each : all) {
    if (!pattern.whole_.empty()) pattern.whole_ += '|';
    const bool anywhere = anchored || to_the_letter || text.empty();
    std::string whole = each.text;
    if (anywhere && !each.at_begin) whole.insert(0, any_text);
    if (anywhere && !each.at_end) whole += any_text;
    if (whole.empty() && all.size() > 1) whole = "()";
    pattern.whole_ += whole;
  }
  if (all.size() > 1) return pattern;
  const Alternative& only = all.front();
  pattern.is_literal_ = only.is_literal;
  pattern.literal_ = only.literal;
  pattern.at_begin_ = only.at_begin;
  pattern.at_end_ = only.at_end;
  const bool is_whole = only.at_begin && only.at_end;
  const bool as_whole = !anchored && !to_the_letter;
  if (only.items == 1 && !only.repeated.empty() && (is_whole || as_whole) &&
      (only.repeat == '*' || only.repeat == '+')) {
    pattern.repeated_ = only.repeated;
    pattern.may_be_empty_ = only.repeat == '*';
  }
  return pattern;
}

std::optional<bool> SchemaPattern::found_in(std::string_view text) const {
  if (!is_literal_) return std::nullopt;
  if (at_begin_ && at_end_) return text == literal_;
  if (at_begin_) return text.starts_with(literal_);
  if (at_end_) return text.ends_with(literal_);
  return text.find(literal_) != std::string_view::npos;
}

std::optional<std::string> SchemaPattern::with_length(std::int64_t least,
                                                      std::optional<std::int64_t> most) const {
  if (repeated_.empty()) return std::nullopt;
  least = std::max<std::int64_t>(least, may_be_empty_ ? 0 : 1);
  // Each repetition is a state of the grammar.
  if (most.value_or(least) > grammar_limits::class_characters || most.value_or(least) < least)
    return std::nullopt;
  return cat(repeated_, "{", least, ",", most ? cat(*most) : "", "}");
}

}  // namespace motley::grammar
