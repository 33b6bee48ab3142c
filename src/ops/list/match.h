#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "ops/list/op_list.h"

// Which ops of a list run together. A pattern is a run of op kinds that one launch replaces;
// matching is a pure function of the list, the patterns and what a step is like.
namespace motley::ops {

// An op as a step has it: an adapter's op may be only a bias, or nothing at all.
struct LiveOp {
  const Op* op = nullptr;
  OpKind kind = OpKind::embed;
};

// One or more kinds, any of which may stand in its place, so many times.
struct PatternElement {
  std::uint32_t kinds = 0;
  int least = 0;
  int most = 0;
};
constexpr PatternElement one(OpKind kind) { return {bit(kind), 1, 1}; }
constexpr PatternElement optional(OpKind kind) { return {bit(kind), 0, 1}; }
constexpr PatternElement some(std::uint32_t kinds, int least, int most) {
  return {.kinds = kinds, .least = least, .most = most};
}

struct Pattern {
  static constexpr std::size_t max_elements = 6;

  std::string_view name;
  std::array<PatternElement, max_elements> elements{};  // those without kinds are not there
  // Whether a value that they write has its numbers behind the launch. Null: all have. A value that
  // has not must not be read later, so a second reader keeps the ops apart.
  bool (*keeps)(const OpList& list, std::span<const LiveOp> ops, ValueId value) = nullptr;
};

struct Launch {
  int pattern = -1;        // of the table; below zero: one op by itself
  std::int32_t first = 0;  // of the live ops
  std::int32_t count = 1;
  const Op* ahead = nullptr;  // a later product, whose weight it may bring nearer
};

// What runs in a step, in order.
struct Schedule {
  std::vector<LiveOp> ops;
  std::vector<Launch> launches;

  std::span<const LiveOp> ops_of(const Launch& launch) const {
    return std::span(ops).subspan(static_cast<std::size_t>(launch.first),
                                  static_cast<std::size_t>(launch.count));
  }
};

// How many ops from the first on the pattern may cover, in any step; 0: it never matches there.
std::size_t longest_match(const Pattern& pattern, std::span<const Op> ops);

// Whether ops of a pattern's kinds take each other's results as its launch does, and whether that
// serves their sizes on the device at hand.
using Fits = FunctionRef<bool(int pattern, std::span<const LiveOp> ops)>;

// Covers schedule.ops from the front: at each op the first pattern of the table that matches and
// fits, else the op alone. Patterns stand in the table longest first. Allocates nothing once the
// schedule was as long.
void match(const OpList& list, std::span<const Pattern> patterns, Fits fits, Schedule& schedule);

}  // namespace motley::ops
