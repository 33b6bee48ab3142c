#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/regex/regex.h"
#include "text/tokenizer/component.h"

// The patterns of Split and Replace, and the resulting pieces.
namespace motley::text {

// A string, or a regular expression.
class Pattern {
 public:
  // From a field {"String": ...} or {"Regex": ...}.
  static Result<Pattern> parse(const Component& component, std::string_view field);
  static Result<Pattern> regex(std::string_view expression, std::string_view where);
  static Pattern of(std::string literal) { return Pattern(std::move(literal)); }

  // The string, or null if it is a regular expression.
  const std::string* literal() const { return std::get_if<std::string>(&pattern_); }

  // Calls `on_match` for every match from left to right, until it returns an error. Matches do not
  // overlap; an empty one does not directly follow another.
  template <class OnMatch>
  Result<void> each_match(std::string_view text, OnMatch on_match) const;

 private:
  explicit Pattern(std::variant<std::string, Regex> pattern) : pattern_(std::move(pattern)) {}

  // The first match from a byte on, which is at most the size of the text. See Regex::find.
  Result<std::optional<Span>> find(std::string_view text, std::size_t from,
                                   std::size_t& spent) const;

  std::variant<std::string, Regex> pattern_;
};

// A part of a text: a match, or text between two matches.
struct Stretch {
  Span span;
  bool matched = false;
};

// How a text is split at matches.
enum class SplitBehavior : std::uint8_t {
  removed,               // matches are removed
  isolated,              // each match is a piece
  merged_with_previous,  // a match belongs to the preceding piece
  merged_with_next,      // a match belongs to the following piece
  contiguous,            // adjacent matches are one piece
};

// From a component's field "behavior".
Result<SplitBehavior> parse_split_behavior(const Component& component);

// Appends non-empty pieces. The stretches cover a text, in order; some may be empty.
void append_pieces(std::vector<Span>& pieces, const std::vector<Stretch>& stretches,
                   SplitBehavior behavior);

template <class OnMatch>
Result<void> Pattern::each_match(std::string_view text, OnMatch on_match) const {
  std::size_t from = 0;
  std::size_t spent = 0;
  std::optional<std::size_t> last_end;
  while (from <= text.size()) {
    MOTLEY_TRY(const std::optional<Span> match, find(text, from, spent));
    if (!match) break;
    if (match->begin == match->end && match->end == last_end) {
      // Continues after the next character.
      do ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
      continue;
    }
    MOTLEY_TRY_VOID(on_match(*match));
    from = match->end;
    last_end = match->end;
  }
  return {};
}

}  // namespace motley::text
