#include "text/regex/class_parser.h"

#include <optional>
#include <string>
#include <utility>

#include "text/regex/escape.h"
#include "text/unicode/property.h"

namespace motley::text::regex {
namespace {

using unicode::CodeSet;

constexpr int deepest_class = 50;

// A member of a class, or an end of a range.
struct Item {
  std::optional<char32_t> character;
  CodeSet set;
};

class ClassParser {
 public:
  explicit ClassParser(PatternCursor& pattern) : pattern_(pattern) {}

  Result<CharacterClass> parse(int depth) {
    if (depth > deepest_class)
      return pattern_.unsupported("nests classes too deeply", "nest them less");
    CharacterClass parsed;
    parsed.negated = pattern_.take_if(U"^");
    std::optional<CodeSet> earlier;  // the intersection of what precedes &&
    CodeSet members;
    bool first = true;
    for (;; first = false) {
      if (pattern_.done())
        return pattern_.malformed("has a class without its ]", "close it, or write \\[");
      if (pattern_.peek() == ']' && !(first && another_end())) {
        pattern_.skip(1);
        if (first) return pattern_.malformed("has an empty class", "put something into it");
        break;
      }
      if (pattern_.take_if(U"&&")) {
        earlier = earlier.has_value() ? earlier->intersection(members) : std::move(members);
        members = {};
        continue;
      }
      MOTLEY_TRY_VOID(read_member(members, depth));
    }
    parsed.members = earlier.has_value() ? earlier->intersection(members) : std::move(members);
    return parsed;
  }

 private:
  // Whether a leading ] is a character, because another one closes the class.
  bool another_end() const {
    for (std::size_t ahead = 1; pattern_.peek(ahead) != ~char32_t{0}; ++ahead) {
      if (pattern_.peek(ahead) == ']') return true;
      if (pattern_.peek(ahead) == '\\') ++ahead;
    }
    return false;
  }

  Result<void> read_member(CodeSet& members, int depth) {
    MOTLEY_TRY(Item item, read_item(depth));
    const bool hyphen_follows = pattern_.peek() == '-' && pattern_.peek(1) != ']';
    if (hyphen_follows && item.character.has_value())
      return read_range(members, *item.character, depth);
    if (hyphen_follows && is_type_)
      return pattern_.malformed("has a range that begins with a class", "escape the hyphen");
    if (item.character.has_value())
      members.add({.first = *item.character, .last = *item.character});
    else
      members.add(item.set);
    return {};
  }

  // Reads the hyphen and the end of a range.
  Result<void> read_range(CodeSet& members, char32_t from, int depth) {
    pattern_.skip(1);
    if (pattern_.peek() == '&' && pattern_.peek(1) == '&') {
      members.add({.first = from, .last = from});
      members.add({.first = '-', .last = '-'});
      return {};
    }
    MOTLEY_TRY(const Item end, read_item(depth));
    if (!end.character.has_value())
      return pattern_.malformed("has a range that ends in a class", "escape the hyphen");
    if (*end.character < from)
      return pattern_.malformed("has a range whose end is before its begin", "swap them");
    members.add({.first = from, .last = *end.character});
    // "a-b-c": the second hyphen is a literal.
    if (pattern_.peek() == '-' && pattern_.peek(1) != ']') {
      pattern_.skip(1);
      members.add({.first = '-', .last = '-'});
    }
    return {};
  }

  Result<Item> read_item(int depth) {
    is_type_ = false;
    if (pattern_.done())
      return pattern_.malformed("has a class without its ]", "close it, or write \\[");
    const char32_t c = pattern_.take();
    if (c == '\\') return read_escaped();
    if (c != '[') return Item{.character = c, .set = {}};
    if (pattern_.peek() == ':') {
      MOTLEY_TRY(std::optional<CodeSet> bracket, read_bracket());
      if (bracket.has_value()) return Item{.character = std::nullopt, .set = *std::move(bracket)};
    }
    MOTLEY_TRY(const CharacterClass inner, parse(depth + 1));
    return Item{.character = std::nullopt, .set = inner.set()};
  }

  Result<Item> read_escaped() {
    if (pattern_.take_if(U"b")) return Item{.character = U'\b', .set = {}};
    for (const char32_t c : {U'R', U'X'}) {
      if (pattern_.peek() == c)
        return pattern_.unsupported("has \\R or \\X in a class", "write the characters");
    }
    MOTLEY_TRY(Escape escape, read_escape(pattern_, EscapePlace::in_class));
    is_type_ = !escape.character.has_value();
    return Item{.character = escape.character, .set = std::move(escape.set)};
  }

  // Reads [:name:] or [:^name:] after the [; nothing if this is a class that begins with a colon.
  Result<std::optional<CodeSet>> read_bracket() {
    constexpr std::size_t longest_name = 20;
    const std::size_t start = pattern_.position();
    pattern_.skip(1);
    const bool negated = pattern_.take_if(U"^");
    std::string name;
    while (!pattern_.done() && pattern_.peek() != ':' && pattern_.peek() != ']' &&
           pattern_.peek() < 0x80 && name.size() < longest_name)
      name += static_cast<char>(pattern_.take());
    if (!pattern_.take_if(U":]")) {
      pattern_.go_back(start);
      return std::optional<CodeSet>();
    }
    for (const std::string_view known :
         {"alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
          "space", "upper", "xdigit", "word"}) {
      if (name != known) continue;
      const bool differs = name == "punct" || name == "word";
      const CodeSet set = known_property(differs ? "[" + name + "]" : name);
      return std::optional(negated ? set.complement() : set);
    }
    return pattern_.malformed("has the bracket [:" + name + ":], which does not exist",
                              "write [:alpha:], [:digit:] or another one of POSIX");
  }

  PatternCursor& pattern_;
  bool is_type_ = false;  // the last item was a type or property, which cannot begin a range
};

}  // namespace

Result<CharacterClass> read_class(PatternCursor& pattern) { return ClassParser(pattern).parse(0); }

}  // namespace motley::text::regex
