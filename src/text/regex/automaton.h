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

// A pattern as a table that is followed a character at a time. It finds what the backtracker finds.
class Automaton {
 public:
  // Nothing if the table would be large. The alphabet is that of the sets of the states.
  static std::optional<Automaton> build(const States& states, const Alphabet& alphabet);

  struct Found {
    std::optional<Span> match = std::nullopt;
    std::size_t steps = 0;  // that it took; more than it may: nothing was found by then
  };

  // The leftmost match from byte `from` on, unless that takes more than so many steps.
  Found find(const Alphabet& alphabet, std::string_view text, std::size_t from,
             std::size_t max_steps) const;

 private:
  // An entry says in which row to go on (0: nowhere), and whether a match ends before the
  // character.
  static constexpr std::uint32_t match_bit = std::uint32_t{1} << 31;

  std::uint32_t row_length_ = 0;  // classes, and one for the end of the text
  std::uint32_t start_ = 0;       // where in table_ the row of the start begins
  std::vector<std::uint32_t> table_;
};

}  // namespace motley::text::regex
