#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "text/unicode/code_set.h"

// A parsed regular expression, with classes and case folding resolved to sets.
namespace motley::text::regex {

inline constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();

enum class NodeKind : std::uint8_t {
  set,       // one character of `set`
  sequence,  // the children one after the other; without children: the empty text
  choice,    // the first child that leads to a match
  repeat,    // the child `min` to `max` times
  look,      // the child matches here, or does not; consumes nothing
  atomic,    // the first match of the child only
  anchor,
};

enum class Greed : std::uint8_t { greedy, lazy };

enum class Direction : std::uint8_t { ahead, behind };

enum class Anchor : std::uint8_t {
  text_begin,     // \A
  text_end,       // \z
  last_line_end,  // \Z: the end, or before the line feed that ends the text
  line_begin,     // ^
  line_end,       // $
  search_begin,   // \G
  word_border,    // \b
  no_word_border,
};

struct Node {
  NodeKind kind = NodeKind::sequence;
  unicode::CodeSet set = {};
  std::vector<Node> children = {};
  // For a repeat:
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  Greed greed = Greed::greedy;
  // For a look:
  Direction direction = Direction::ahead;
  bool negated = false;
  Anchor anchor = Anchor::text_begin;
};

// How many characters a node may match; `max` may be unlimited.
struct Width {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};
Width width(const Node& node);

}  // namespace motley::text::regex
