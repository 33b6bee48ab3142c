#pragma once

#include <cstdint>
#include <string>

namespace motley::grammar {

// The required form of a request's output.
struct Spec {
  enum class Kind : std::uint8_t {
    json_object,     // any JSON object; no text
    json_schema,     // text is the schema
    regex,           // text is the pattern, matched against the whole output
    ebnf,            // text is a grammar whose root rule is `root`
    structural_tag,  // text is XGrammar's JSON of that name: schemas between given tags
  };

  Kind kind = Kind::json_object;
  std::string text;
  // For JSON: allows line breaks and blanks between tokens, within bounds; otherwise one line as
  // Python writes it, with ", " and ": ".
  bool any_whitespace = true;
  // check() has accepted the text. Checking takes milliseconds for a large one, so a server
  // does it once for all choices and prompts of a request, where it blocks no other.
  bool checked = false;

  friend bool operator==(const Spec&, const Spec&) = default;
};

}  // namespace motley::grammar
