#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/regex/alphabet.h"
#include "text/regex/syntax_tree.h"

namespace motley::text::regex {

enum class StateKind : std::uint8_t { match, set, peek, split };

// A state of a nondeterministic automaton with ordered choices.
struct State {
  StateKind kind = StateKind::match;
  bool negated = false;   // of a peek
  bool at_end = false;    // for a peek: whether it succeeds at the end of the text
  std::uint32_t set = 0;  // of a set or a peek
  std::vector<std::uint32_t> next = {};
};

// The states of a pattern; the first is the match.
struct States {
  std::vector<State> list;
  std::uint32_t start = 0;
};

// Nothing if states cannot express the pattern: it may look ahead by at most one character, not
// behind, and be possessive only for runs of one set. Adds its sets to `sets`.
std::optional<States> states_of(const Node& tree, SetList& sets);

}  // namespace motley::text::regex
