#pragma once

#include <cstdint>

#include "kernels/cpu/instruction_set.h"
#include "kernels/elementary.h"
#include "kernels/recurrence.h"

// The loops of the elementary table that are compiled for each instruction set: each does rows (or
// tasks) [begin, end) of its call. All of them give the same bits: sums run in 16 lanes everywhere
// and nothing is fused.
namespace motley::kernels::cpu {

// Rotates pairs of each head's elements [0, 2 * pairs) in place, in float32, rounded once. Pair i
// is (i, i + pairs), or (2i, 2i + 1) where interleaved.
struct Rope {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t pairs = 0;
  bool interleaved = false;
  void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
  const float* cos_sin = nullptr;  // [rows, 2 * pairs]
};

// Query heads of one key head that one task does together.
inline constexpr std::int64_t heads_a_task = 8;

struct ElementaryLoops {
  void (*rms_norm)(const RmsNorm&, std::int64_t begin, std::int64_t end);
  void (*add)(const Add&, std::int64_t begin, std::int64_t end);
  void (*add_scaled)(const AddScaled&, std::int64_t begin, std::int64_t end);
  void (*round_to)(const RoundTo&, std::int64_t begin, std::int64_t end);
  void (*rope)(const Rope&, std::int64_t begin, std::int64_t end);
  void (*activate_and_multiply)(const ActivateAndMultiply&, std::int64_t begin, std::int64_t end);
  void (*combine)(const Combine&, std::int64_t begin, std::int64_t end);
  void (*log_probabilities)(const LogProbabilities&, std::int64_t begin, std::int64_t end);
  // Query heads [head, head + heads) of one key head, heads <= heads_a_task, for one row.
  void (*attention)(const Attention&, std::int64_t sequence, std::int64_t row, std::int64_t head,
                    std::int64_t heads);
  void (*recur)(const Recur&, std::int64_t sequence, std::int64_t head);
  // Channels [begin, end), from a multiple of 16.
  void (*convolve)(const Convolve&, std::int64_t sequence, std::int64_t begin, std::int64_t end);
};

extern const ElementaryLoops elementary_loops_plain;
extern const ElementaryLoops elementary_loops_avx2;
extern const ElementaryLoops elementary_loops_avx512;

// Those of a set.
const ElementaryLoops& loops(InstructionSet set);

}  // namespace motley::kernels::cpu
