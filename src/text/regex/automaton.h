#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/chat/marked_text.h"
#include "text/regex/alphabet.h"
#include "text/regex/states.h"

namespace motley::text::regex {

// A pattern as a DFA table. Finds the same matches as the backtracker.
class Automaton {
 public:
  // Nothing if the table would be large. The alphabet is that of the states' sets.
  static std::optional<Automaton> build(const States& states, const Alphabet& alphabet);

  struct Found {
    std::optional<Span> match = std::nullopt;
    std::size_t steps = 0;  // steps taken; if they exceed the limit, the search was stopped
  };

  // The leftmost match from byte `from` on, within a limited number of steps.
  Found find(const Alphabet& alphabet, std::string_view text, std::size_t from,
             std::size_t max_steps) const;

 private:
  // An entry is the next row (0: none), and whether a match ends before the character.
  static constexpr std::uint32_t match_bit = std::uint32_t{1} << 31;

  std::uint32_t row_length_ = 0;  // classes, and the end of the text
  std::uint32_t start_ = 0;       // index of the start's row in table_
  std::vector<std::uint32_t> table_;
};

}  // namespace motley::text::regex
