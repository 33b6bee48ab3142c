#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex/alphabet.h"
#include "text/regex/syntax_tree.h"

// A pattern as instructions for the backtracker.
namespace motley::text::regex {

enum class Op : std::uint8_t {
  match,
  set,           // one character of `set`
  repeat_set,    // min to max characters of `set`
  jump,          // to `to`
  split,         // the next instruction, else `to`
  split_last,    // `to`, else the next instruction
  loop_begin,    // counts from 0 in `slot`; the place of an iteration's begin is in slot + 1
  loop_check,    // the next instruction (loop_enter), or past the loop at `to`
  loop_enter,    // begins an iteration
  loop_end,      // to loop_check at `to`; past the loop, at `min`, if the iteration took nothing
  atomic_begin,  // keeps in `slot` how many choices are open
  atomic_end,    // closes those opened since
  look_begin,    // as atomic_begin, and the place in slot + 1; `to` is past the look
  look_end,      // closes choices and goes back to the place, or fails if negated
  behind_begin,  // as look_begin, and goes back min to max characters
  behind_end,    // as look_end, if the place is where the look began
  peek,          // whether the next character is in `set`
  peek_behind,   // whether the character before is
  anchor,
};

inline constexpr std::uint32_t no_row = ~std::uint32_t{0};

struct Instruction {
  Op op = Op::match;
  Greed greed = Greed::greedy;
  bool possessive = false;
  bool negated = false;
  bool bounded = false;  // for loops: empty iterations count
  Anchor anchor = Anchor::text_begin;
  std::uint32_t set = 0;
  std::uint32_t to = 0;
  std::uint32_t slot = 0;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  // Sets of the characters with which the continuation (or that at `to`) may begin; no_row if it
  // may match the empty text.
  std::uint32_t first_next = no_row;
  std::uint32_t first_to = no_row;
};

struct Program {
  std::vector<Instruction> code;
  std::uint32_t slots = 0;
  std::uint32_t first = no_row;  // characters with which a match may begin
};

// Compiles a tree, and adds its sets to `sets`. `where` names it in errors.
Result<Program> compile_program(const Node& tree, SetList& sets, std::string_view where);

}  // namespace motley::text::regex
