#include "text/regex/escape.h"

#include "base/check.h"
#include "text/unicode/property.h"

namespace motley::text::regex {
namespace {

using unicode::CodeSet;

Escape one(char32_t character) { return {.character = character, .set = {}}; }

Escape many(CodeSet set, bool negated) {
  return {.character = std::nullopt, .set = negated ? set.complement() : std::move(set)};
}

bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// \p{Name}, \p{^Name}, \P{Name}; the brace follows.
Result<Escape> read_property(PatternCursor& pattern, EscapePlace place, bool negated) {
  pattern.skip(1);
  if (pattern.peek() == '^') {
    pattern.skip(1);
    negated = !negated;
  }
  const std::optional<std::string> name = pattern.take_until('}');
  if (!name.has_value()) return pattern.malformed("has a \\p{ without its }", "close it");
  std::optional<CodeSet> set = unicode::property(*name);
  if (!set.has_value() || name->find('[') != std::string::npos) {
    return pattern.unsupported("asks for the property '" + *name + "', which is not known",
                               "use a general category, a script or a class of characters");
  }
  if (place == EscapePlace::in_class && *set == known_property("word"))
    set = known_property("[word]");
  return many(*std::move(set), negated);
}

// The digits after \x, \u, \o or a zero.
Result<Escape> read_code_point(PatternCursor& pattern, char32_t kind) {
  std::optional<char32_t> value;
  if (kind == 'u') {
    const std::size_t start = pattern.position();
    value = pattern.take_number(16, 4);
    if (pattern.position() != start + 4) value.reset();
  } else if (pattern.peek() == '{') {
    pattern.skip(1);
    value = pattern.take_number(kind == 'x' ? 16 : 8, 11);
    if (!pattern.take_if(U"}")) value.reset();
  } else if (kind == 'x') {
    value = pattern.take_number(16, 2).value_or(0);
    if (*value >= 0x80) {
      return pattern.unsupported("writes a byte of UTF-8 as \\x..",
                                 "write the character, or its code point as \\x{....}");
    }
  }
  if (!value.has_value() || is_surrogate(*value)) {
    return pattern.malformed("has an escape that is no code point",
                             "write \\x{....} with up to six hexadecimal digits");
  }
  return one(*value);
}

}  // namespace

CodeSet known_property(std::string_view name) {
  std::optional<CodeSet> set = unicode::property(name);
  MOTLEY_CHECK(set.has_value(), "a property that is missing from the tables");
  return *std::move(set);
}

Result<Escape> read_escape(PatternCursor& pattern, EscapePlace place) {
  if (pattern.done())
    return pattern.malformed("ends in a backslash", "write two for a backslash itself");
  const char32_t kind = pattern.take();
  const bool in_class = place == EscapePlace::in_class;
  switch (kind) {
    case 't':
      return one('\t');
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case 'a':
      return one('\a');
    case 'e':
      return one(0x1B);
    case 'w':
    case 'W':
      return many(known_property(in_class ? "[word]" : "word"), kind == 'W');
    case 's':
    case 'S':
      return many(known_property("space"), kind == 'S');
    case 'd':
    case 'D':
      return many(known_property("digit"), kind == 'D');
    case 'h':
    case 'H':
      return many(known_property("xdigit"), kind == 'H');
    case 'p':
    case 'P':
      if (pattern.peek() != '{') return one(kind);
      return read_property(pattern, place, kind == 'P');
    case 'x':
    case 'u':
      return read_code_point(pattern, kind);
    case 'o':
      if (pattern.peek() != '{') return one(kind);
      return read_code_point(pattern, kind);
    case '0':
      return one(pattern.take_number(8, 2).value_or(0));
    case 'c':
    case 'C':
    case 'M':
      return pattern.unsupported("has a control or meta escape", "write \\x{..} instead");
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
      return pattern.unsupported("has a back-reference or an octal escape",
                                 "write octal characters as \\x{..}; a splitting rule can't refer "
                                 "to groups");
    default:
      return one(kind);
  }
}

}  // namespace motley::text::regex
