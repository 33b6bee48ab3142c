#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/regex/alphabet.h"
#include "text/regex/syntax_tree.h"

namespace motley::text::regex {

enum class StateKind : std::uint8_t { match, set, peek, split };

// A state of a pattern read as a machine that tries choices in order.
struct State {
  StateKind kind = StateKind::match;
  bool negated = false;   // of a peek
  bool at_end = false;    // of a peek: whether it holds at the end of the text
  std::uint32_t set = 0;  // of a set or a peek
  std::vector<std::uint32_t> next = {};
};

// The states of a pattern; the first is the match.
struct States {
  std::vector<State> list;
  std::uint32_t start = 0;
};

// Nothing if the pattern asks for more than states can do: it may look at most one character ahead,
// not behind, and commit to nothing but runs of one set. Adds the sets that it tests to `sets`.
std::optional<States> states_of(const Node& tree, SetList& sets);

}  // namespace motley::text::regex
