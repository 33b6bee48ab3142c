#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/stream_handle.h"
#include "kernels/weight_view.h"

// What every device computes: one params struct of raw pointers and one function for each. Shapes
// are checked a room above (ops). Strides are in elements, the innermost dimension is contiguous,
// types are f32 or bf16 where nothing else is said, and every sum is in float32, in an order that
// the row's own shape fixes: what stands beside a row never changes its bits.
namespace motley::kernels {

// Rows of an activation, each cut into `parts` pieces of `width` (heads; or one, the whole row).
struct Rows {
  std::int64_t rows = 0;
  std::int64_t parts = 1;
  std::int64_t width = 0;
};

// out = x / sqrt(mean(x^2) + eps) * weight over each part.
struct RmsNorm {
  Rows size{};
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_part_stride = 0;
  const float* weight = nullptr;  // [width]
  float eps = 1e-6F;
  // Off: the normalised value is rounded to out_type before it meets the weight, as most families
  // are trained. On: one rounding, at the end.
  bool weight_in_f32 = false;
  void* out = nullptr;  // may be x
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_part_stride = 0;
};

// out = a + b, rounded once.
struct Add {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* a = nullptr;
  DType a_type = DType::f32;
  std::int64_t a_stride = 0;
  const void* b = nullptr;
  DType b_type = DType::f32;
  std::int64_t b_stride = 0;
  void* out = nullptr;  // may be a or b
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
};

// y[r] += s[r] * x[r], with s[r] = sigmoid(scale[r]) where `sigmoid` says so. y is f32.
struct AddScaled {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  const float* scale = nullptr;  // [rows]; null: 1
  std::int64_t scale_stride = 1;
  bool sigmoid = false;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

// out = clamp(x * factor + bias, -limit, limit), rounded once: the way from f32 to activations.
struct RoundTo {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  float factor = 1;
  const float* bias = nullptr;  // [width], or null
  float limit = 0;              // 0: none
  void* out = nullptr;          // may be x where the types agree
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
};

// cos_sin[r] = [factor * cos(positions[r] * f_i) for all i, then factor * sin]. Once a step serves
// every layer.
struct RopeTable {
  std::int64_t rows = 0;
  std::int64_t pairs = 0;
  const std::int32_t* positions = nullptr;     // [rows]
  const float* inverse_frequencies = nullptr;  // [pairs]
  float factor = 1;
  float* cos_sin = nullptr;  // [rows, 2 * pairs]
};

// Turns pairs of each head's elements [0, 2 * pairs) in place, in float32, rounded once. Pair i is
// (i, i + pairs), or (2i, 2i + 1) where interleaved.
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

// out[r] = table[ids[r]] as float32; an id outside the table gives zeros.
struct Embed {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* table = nullptr;
  DType table_type = DType::f32;  // f32, f16 or bf16, at any byte
  std::int64_t table_rows = 0;
  const std::int32_t* ids = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// The product of gate and up: silu(gate) * up, or the clamped form of gpt-oss,
// (min(gate, limit) * sigmoid(alpha * gate)) * (clamp(up, -limit, limit) + 1).
enum class Activation : std::uint8_t { silu, clamped_swiglu };

struct ActivateAndMultiply {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  Activation activation = Activation::silu;
  float limit = 7.0F;
  float alpha = 1.702F;
  const void* gate = nullptr;
  const void* up = nullptr;
  DType type = DType::f32;  // of gate and up
  std::int64_t gate_stride = 0;
  std::int64_t up_stride = 0;
  void* out = nullptr;  // may be gate or up where the types agree
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
};

// Per head h: y[r][h][j] = sum over k of x[r][h][k] * w[h * w_rows_per_head + w_first + j][k].
// A plain linear map is one head whose rows are all of w.
struct Linear {
  std::int64_t rows = 0;
  std::int64_t heads = 1;
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
  WeightView w{};
  std::int64_t w_rows_per_head = 0;
  std::int64_t w_first = 0;
  std::int64_t out = 0;  // of a head
  float* y = nullptr;
  std::int64_t y_stride = 0;
  std::int64_t y_head_stride = 0;
  bool exact = true;  // as in GemmTile
};

// The same rows of w the other way round: y[r][h][k] = sum over j < out of x[r][h][j] * w[h *
// w_rows_per_head + w_first + j][k]. x has `out` elements a head, y has w.in. Always exact.
using LinearTransposed = Linear;

// Pages of keys or values: position p of sequence s is at
//   pages + table[s * table_stride + p / page_tokens] * page_stride
//         + (p % page_tokens) * token_stride + head * head_stride.
struct Pages {
  void* data = nullptr;
  DType type = DType::f32;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

struct BlockTable {
  const std::int32_t* pages = nullptr;  // [sequences, stride]
  std::int64_t stride = 0;
  std::int64_t page_tokens = 0;
};

// Rows grouped by sequence: sequence s has rows [seq_begin[s], seq_begin[s + 1]).
struct Sequences {
  std::int64_t count = 0;
  const std::int32_t* seq_begin = nullptr;  // [count + 1]
  const std::int32_t* positions = nullptr;  // [rows]
};

// Writes each row's keys or values, rounded, to its position's place.
struct StorePaged {
  Sequences sequences{};
  BlockTable table{};
  Pages pages{};
  std::int64_t heads = 0;
  std::int64_t width = 0;
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
};

// The widest head: attention keeps its sums in registers or on the stack.
inline constexpr std::int64_t max_head_width = 1024;

// Causal attention of each row to its sequence's positions [0, own], or the last `window` of them,
// own included. Query head h reads kv head h / (heads / kv_heads). A sink is one more logit in the
// softmax that has no value. v may lie inside k (a latent that is both).
struct Attention {
  Sequences sequences{};
  BlockTable table{};
  Pages k{};
  Pages v{};
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t key_width = 0;
  std::int64_t value_width = 0;
  float scale = 1;
  std::int64_t window = 0;       // 0: all
  const float* sinks = nullptr;  // [heads], or null
  const void* q = nullptr;
  DType q_type = DType::f32;
  std::int64_t q_stride = 0;
  std::int64_t q_head_stride = 0;
  void* out = nullptr;
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_head_stride = 0;
};

// out[t] = sum over j < slots of weights[t][j] * x[places[t * slots + j]], j ascending; a negative
// place is left out. `accumulate` begins with out instead of zero.
struct Combine {
  std::int64_t rows = 0;
  std::int64_t slots = 0;
  std::int64_t width = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t x_rows = 0;               // places from here on are left out too
  const std::int32_t* places = nullptr;  // null: t * slots + j
  const float* weights = nullptr;        // [rows, slots]; null: 1
  float* out = nullptr;
  std::int64_t out_stride = 0;
  bool accumulate = false;
};

// out[r][i] = logits[r][ids[r][i]] - log(sum(exp(logits[r]))).
struct LogProbabilities {
  std::int64_t rows = 0;
  std::int64_t width = 0;  // the vocabulary
  const float* logits = nullptr;
  std::int64_t logits_stride = 0;
  std::int64_t chosen = 0;            // ids a row
  const std::int32_t* ids = nullptr;  // [rows, chosen], all inside the vocabulary
  float* out = nullptr;               // [rows, chosen]
};

// The k largest of each row, falling, equal values by rising id. A NaN is smaller than all.
struct TopK {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t k = 0;
  std::int32_t* ids = nullptr;  // [rows, k]
  float* values = nullptr;      // [rows, k], or null
};

// Every device fills every entry.
struct ElementaryTable {
  void (*rms_norm)(const RmsNorm&, StreamHandle) = nullptr;
  void (*add)(const Add&, StreamHandle) = nullptr;
  void (*add_scaled)(const AddScaled&, StreamHandle) = nullptr;
  void (*round_to)(const RoundTo&, StreamHandle) = nullptr;
  void (*rope_table)(const RopeTable&, StreamHandle) = nullptr;
  void (*rope)(const Rope&, StreamHandle) = nullptr;
  void (*embed)(const Embed&, StreamHandle) = nullptr;
  void (*activate_and_multiply)(const ActivateAndMultiply&, StreamHandle) = nullptr;
  void (*linear)(const Linear&, StreamHandle) = nullptr;
  void (*linear_transposed)(const LinearTransposed&, StreamHandle) = nullptr;
  void (*store_paged)(const StorePaged&, StreamHandle) = nullptr;
  void (*attention)(const Attention&, StreamHandle) = nullptr;
  void (*combine)(const Combine&, StreamHandle) = nullptr;
  void (*log_probabilities)(const LogProbabilities&, StreamHandle) = nullptr;
  void (*top_k)(const TopK&, StreamHandle) = nullptr;
};

// The CPU's, for the best instruction set of this machine. A stream is the ThreadPool that shares
// out the work; one without a pool runs on the calling thread.
const ElementaryTable& cpu_table();

}  // namespace motley::kernels
