#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "ops/list/op_list.h"

// Selects which ops of a list run together. A pattern is a sequence of op kinds that one launch
// replaces. Matching is a pure function of the list, the patterns and the properties of a step.
namespace motley::ops {

// An op as it is in a step: an adapter's op may reduce to a bias, or be absent.
struct LiveOp {
  const Op* op = nullptr;
  OpKind kind = OpKind::embed;
};

// Repetitions of an op of any of these kinds. `of_one`: each reads the first's first value.
struct PatternElement {
  OpKinds kinds = 0;
  int least = 0;
  int most = 0;
  bool of_one = false;
};
constexpr PatternElement one(OpKind kind) { return {bit(kind), 1, 1}; }
constexpr PatternElement optional(OpKind kind) { return {bit(kind), 0, 1}; }
constexpr PatternElement some(OpKinds kinds, int least, int most) {
  return {.kinds = kinds, .least = least, .most = most};
}
constexpr PatternElement some_of_one(OpKinds kinds, int least, int most) {
  return {.kinds = kinds, .least = least, .most = most, .of_one = true};
}

struct Pattern {
  static constexpr std::size_t max_elements = 6;

  std::string_view name;
  std::array<PatternElement, max_elements> elements{};  // unused ones have no kinds
  // Whether the launch writes a value of its ops. Null: it writes all. A value that it does not
  // write must not be read later, so a second reader prevents the fusion.
  bool (*keeps)(const OpList& list, std::span<const LiveOp> ops, ValueId value) = nullptr;
};

struct Launch {
  int pattern = -1;        // index in the table; negative: one op by itself
  std::int32_t first = 0;  // of the live ops
  std::int32_t count = 1;
  const Op* ahead = nullptr;  // a later product, whose weights it may prefetch
};

// The launches of a step, in order.
struct Schedule {
  std::vector<LiveOp> ops;
  std::vector<Launch> launches;

  std::span<const LiveOp> ops_of(const Launch& launch) const {
    return std::span(ops).subspan(static_cast<std::size_t>(launch.first),
                                  static_cast<std::size_t>(launch.count));
  }
};

// The most leading ops that the pattern may cover, in any step; 0: it never matches there.
std::size_t longest_match(const Pattern& pattern, std::span<const Op> ops);

// Whether ops of a pattern's kinds use each other's results as its launch does, and whether the
// launch supports their sizes on the current device.
using Fits = FunctionRef<bool(int pattern, std::span<const LiveOp> ops)>;

// Covers schedule.ops from the front: at each op with the first pattern of the table that matches
// and fits, else with the op alone. The table is sorted by falling length of patterns. Allocates
// nothing once the schedule has been as long.
void match(const OpList& list, std::span<const Pattern> patterns, Fits fits, Schedule& schedule);

}  // namespace motley::ops
