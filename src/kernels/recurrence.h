#pragma once

#include <cstdint>

#include "base/number_types.h"
#include "kernels/elementary.h"

// Layers that keep a state of fixed size for each sequence: delta nets, state spaces, short
// convolutions. A state stands at an anchor, a multiple of state_page positions; the rows since are
// a log. A row reads the anchor of its own page and the page's rows before it, in one order, so its
// bits do not depend on how its sequence was cut into steps. To take rows back is to forget the
// end of the log. A row reads nothing of a later one, not even to multiply it by zero.
// docs/design/state.md has the reasons.
namespace motley::kernels {

inline constexpr std::int64_t state_page = 16;
// Of a step's rows so many may be taken back.
inline constexpr std::int64_t max_uncertain_rows = 8;
// The log's rows lie in a ring: position p at p % state_log_rows. It has room for the rows of a
// step of decoding beside those that the step reads, so nothing is overwritten that a head still
// needs.
inline constexpr std::int64_t state_log_rows = 32;
static_assert(state_log_rows >= state_page + 2 * max_uncertain_rows);

// Where a state stands after a step whose first row has position `start` and of whose rows so many
// will not be taken back.
constexpr MOTLEY_HOST_DEVICE std::int64_t anchor_after(std::int64_t start, std::int64_t certain) {
  return (start + certain) / state_page * state_page;
}

// What a step does with the states of its sequences; arrays as in Sequences.
struct StateSteps {
  Sequences rows{};
  const std::int32_t* slots = nullptr;    // [rows.count]
  const std::int32_t* anchors = nullptr;  // before the step; at 0 every state is zero
  const std::int32_t* certain = nullptr;  // all of a sequence's rows but max_uncertain_rows at most
};

struct RecurrenceShape {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_width = 0;
  std::int64_t value_width = 0;
  bool decay_by_key = false;  // a decay for each row of a head's state
  bool corrects = false;      // there is a beta: a delta rule
};
// What a device's kernels keep of layers in a compute mode; the rest is float32.
struct KeptTypes {
  DType keys = DType::f32;    // in the log, or bf16
  bool betas = false;         // are in the log
  DType inputs = DType::f32;  // of convolutions, or bf16
};

// What one layer's recurrence keeps. The log with betas is that of a kernel for some shapes, whose
// anchors have an order of their own and whose `updates` are others. Pointers are to slot 0; slot s
// of each array is 4 * s * slot_stride bytes further on, because a slot has the arrays of all
// layers side by side.
struct RecurrenceMemory {
  float* anchors = nullptr;      // [value_heads, key_width, value_width]
  void* keys = nullptr;          // [state_log_rows, key_heads, key_width]
  DType key_type = DType::f32;   // or bf16: every row reads keys that are rounded to it
  float* updates = nullptr;      // [state_log_rows, value_heads, value_width]
  float* decays = nullptr;       // [state_log_rows, value_heads, 1 or key_width]
  float* betas = nullptr;        // [state_log_rows, value_heads], where the log has them
  std::int64_t slot_stride = 0;  // in float32 numbers
};

inline constexpr std::int64_t max_key_width = 256;

// For each value head, S of [key_width, value_width] from row to row:
//   S = e^g S;  u = beta (v - S^T k), or v without beta;  S = S + k u^T;  out = S^T q.
// Value head h uses key head h / (value_heads / key_heads). Everything is float32, but for the
// log's keys; the heads of a row lie side by side.
struct Recur {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_width = 0;  // max_key_width at most
  std::int64_t value_width = 0;
  bool decay_by_key = false;  // g has a number for each row of S
  const float* q = nullptr;
  std::int64_t q_stride = 0;
  const float* k = nullptr;
  std::int64_t k_stride = 0;
  const float* v = nullptr;
  std::int64_t v_stride = 0;
  const float* g = nullptr;  // not positive
  std::int64_t g_stride = 0;
  const float* beta = nullptr;  // [rows, value_heads]; null: none
  std::int64_t beta_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  StateSteps steps{};
  RecurrenceMemory memory{};
  bool exact = true;  // as in GemmTile
};

inline constexpr std::int64_t max_taps = 8;
// A ring like the others': of the inputs that the next row reads, and of rows that may be taken
// back. What stands before the anchor is kept next to it, so that the sequence can go on from
// there.
inline constexpr std::int64_t convolution_log_rows = 16;
static_assert(convolution_log_rows >= max_taps - 1 + max_uncertain_rows);
static_assert(state_page >= max_taps - 1);

// What one layer's convolution keeps, as RecurrenceMemory.
struct ConvolutionMemory {
  void* inputs = nullptr;   // the log: [convolution_log_rows, channels]
  void* history = nullptr;  // [taps - 1, channels]: the rows before the anchor
  // Of both, or bf16: every row reads inputs that are rounded to it, also its own.
  DType type = DType::f32;
  std::int64_t slot_stride = 0;
};

// out[c] = the sum over i < taps of weight[c][i] x[c] at position p - (taps - 1) + i, + bias, i
// ascending; x before position 0 is zero.
struct Convolve {
  std::int64_t channels = 0;
  std::int64_t taps = 0;          // max_taps at most
  const float* weight = nullptr;  // [channels, taps]
  const float* bias = nullptr;    // [channels], or null
  bool silu = false;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  StateSteps steps{};
  ConvolutionMemory memory{};
};

// What a gated delta net makes of two projections, for each row and value head:
//   g = decay * log(1 + e^(a + bias));  beta = 1 / (1 + e^-b).
struct DeltaGates {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  const float* decay = nullptr;  // [heads], not positive: -e^A_log
  const float* bias = nullptr;   // [heads]
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  float* g = nullptr;
  std::int64_t g_stride = 0;
  float* beta = nullptr;
  std::int64_t beta_stride = 0;
};

// What the recurrence of a gated delta net reads: convolved queries, keys and values, of which the
// heads of queries and keys are normed in place, and the gates. The bits are those of a call for
// each.
struct DeltaInputs {
  Convolve convolution{};
  RmsNorm queries{};
  RmsNorm keys{};
  DeltaGates gates{};
};

struct RecurrenceTable {
  KeptTypes (*kept_types)(const RecurrenceShape&, bool exact) = nullptr;
  void (*recur)(const Recur&, StreamHandle) = nullptr;
  void (*convolve)(const Convolve&, StreamHandle) = nullptr;
  void (*gates)(const DeltaGates&, StreamHandle) = nullptr;
  // Whether delta_inputs() serves the call; null: a device that has no such launch.
  bool (*takes_delta_inputs)(const DeltaInputs&) = nullptr;
  void (*delta_inputs)(const DeltaInputs&, StreamHandle) = nullptr;
};

}  // namespace motley::kernels
