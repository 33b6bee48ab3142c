// What the kernels of states know about a sequence of a step.
#pragma once

#include <cstdint>

#include "kernels/recurrence.h"

namespace motley::kernels::cuda {

inline constexpr int page_rows = static_cast<int>(state_page);
inline constexpr int log_rows = static_cast<int>(state_log_rows);

// Positions fit in 32 bits.
struct SequenceStep {
  std::int64_t row;  // the first of the step
  int count;         // rows; nothing else is known of a sequence without rows
  int start;         // position of the first
  int anchor;        // before the step
  int next_anchor;   // after it
  std::int64_t slot;

  __device__ int end() const { return start + count; }
  // From here on rows stay in the log.
  __device__ int kept_from() const { return max(start, next_anchor); }
};

__device__ inline SequenceStep sequence_step(const StateSteps& steps, int sequence) {
  const int row = steps.rows.seq_begin[sequence];
  SequenceStep s{.row = row, .count = steps.rows.seq_begin[sequence + 1] - row};
  if (s.count <= 0) return s;
  s.start = steps.rows.positions[row];
  s.anchor = steps.anchors[sequence];
  s.next_anchor = static_cast<int>(anchor_after(s.start, steps.certain[sequence]));
  s.slot = steps.slots[sequence];
  return s;
}

// A step may leave so many rows in the log: on the page of the last certain row, and uncertain
// ones.
inline constexpr std::int64_t most_kept_rows = state_page - 1 + max_uncertain_rows;
// So many rows of a step fit in the log next to those that it holds already: then a head may write
// its rows while others still read.
inline constexpr std::int64_t most_short_rows = state_log_rows - most_kept_rows;

// A bound of a sequence's rows.
inline std::int64_t most_rows(const StateSteps& steps) {
  return steps.rows.max_rows > 0 ? steps.rows.max_rows : steps.rows.rows;
}
// Whether every sequence's rows fit.
inline bool log_has_room(const StateSteps& steps) { return most_rows(steps) <= most_short_rows; }

}  // namespace motley::kernels::cuda
