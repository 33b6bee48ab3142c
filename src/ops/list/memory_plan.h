#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ops/list/match.h"
#include "ops/list/op_list.h"

namespace motley::ops {

// The most rows of each kind in a step.
using RowBounds = std::array<std::int64_t, rows_of_count>;

// The offsets of a list's values in one block of memory. A value occupies memory from its first use
// to its last, for the largest step and for any launches that the patterns may make. Ops that may
// run in one launch count as simultaneous; so do those of a block's forms, for values that several
// of them use.
struct MemoryPlan {
  std::vector<std::size_t> value_at;    // of roots that are not external
  std::vector<std::size_t> scratch_at;  // by op, for its scratch
  std::size_t bytes = 0;
};

// scratch_bytes: the scratch of each op of the list while it runs.
MemoryPlan plan_memory(const OpList& list, std::span<const Pattern> patterns,
                       const RowBounds& bounds, std::span<const std::size_t> scratch_bytes);

// The bytes of a root value for this many rows.
std::size_t value_bytes(const Value& value, const RowBounds& bounds);

}  // namespace motley::ops
