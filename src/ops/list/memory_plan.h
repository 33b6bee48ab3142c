#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ops/list/match.h"
#include "ops/list/op_list.h"

namespace motley::ops {

// How many rows of each kind a step has at most.
using RowBounds = std::array<std::int64_t, rows_of_count>;

// Where the values of a list lie in one piece of memory: each from its first use to its last, for
// the largest step and for whatever launches the patterns may make of the list. Ops that the
// patterns may run together count as one moment; so do those of a part's alternatives for a value
// that more than one of them uses.
struct MemoryPlan {
  std::vector<std::size_t> value_at;    // of roots that are not external
  std::vector<std::size_t> scratch_at;  // of each op, what it asks for beside its values
  std::size_t bytes = 0;
};

// scratch_bytes: what each op of the list takes while it runs.
MemoryPlan plan_memory(const OpList& list, std::span<const Pattern> patterns,
                       const RowBounds& bounds, std::span<const std::size_t> scratch_bytes);

// Of a root, for so many rows.
std::size_t value_bytes(const Value& value, const RowBounds& bounds);

}  // namespace motley::ops
