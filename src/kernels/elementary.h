#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/sampling.h"
#include "kernels/weight_view.h"

// What every device computes: one params struct of raw pointers and one function for each. Shapes
// are checked a level above (ops). Strides are in elements, the innermost dimension is contiguous,
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

// Both in one, with the bits of one after the other: `norm` is of one part, and of what `add`
// wrote.
struct AddAndNorm {
  Add add{};
  RmsNorm norm{};
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

// What the sum over a token's experts goes into: + s x of a shared expert, if there is one, and
// then the second part of a sum with its norm. All that reads the experts' sum is here: it is
// written nowhere.
struct AfterExperts {
  AddScaled shared{};  // x null: none; y is not read
  AddAndNorm rows{};
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
  // One order of sums however many rows there are. The CPU and exact products always have it; a
  // GPU's way through many rows is slower with it.
  bool batch_invariant = false;
};

// Memory that a later call reads: a device may bring it nearer.
struct Ahead {
  const void* data = nullptr;
  std::int64_t bytes = 0;
};

// linear for each of them: products of the same rows of one x, which a device may do together.
struct Linears {
  const Linear* all = nullptr;  // in the host's memory, read before the call returns
  std::int64_t count = 0;
  Ahead ahead{};
};

// The same rows of w the other way round: y[r][h][k] = sum over j < out of x[r][h][j] * w[h *
// w_rows_per_head + w_first + j][k]. x has `out` elements a head, y has w.in. The CPU is always
// exact.
using LinearTransposed = Linear;

// Products per head, the one way round or the other. With `rounded`, results go there, rounded to
// bf16, and what y holds afterwards is undefined.
struct LinearPerHead {
  Linear product{};
  bool transposed = false;
  WeightView narrow{};  // w rounded to bf16, for devices whose kernels like that better; or no data
  void* rounded = nullptr;
  std::int64_t rounded_stride = 0;
  std::int64_t rounded_head_stride = 0;
};

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

// Rows grouped by sequence: sequence s has rows [seq_begin[s], seq_begin[s + 1]), maybe none, whose
// positions rise by one.
struct Sequences {
  std::int64_t count = 0;
  const std::int32_t* seq_begin = nullptr;  // [count + 1]
  const std::int32_t* positions = nullptr;  // [rows]
  // Bounds for who launches without reading the arrays (they lie on a device, and a captured graph
  // outlives their contents). The CPU reads the arrays.
  std::int64_t rows = 0;        // no fewer than seq_begin[count]
  std::int64_t max_rows = 0;    // no fewer than any sequence has; 0: rows
  std::int64_t least_rows = 0;  // no more than any sequence has
};

// Copies positions [0, end) of some sequences side by side. Sequence s has rows [begin[s],
// begin[s + 1]) of out, and as its label the one of its first row in the step.
struct GatherPaged {
  std::int64_t rows = 0;  // begin[sequences.count]
  const std::int32_t* begin = nullptr;
  Sequences sequences{};
  BlockTable table{};
  Pages pages{};  // of one head, in out's type
  std::int64_t width = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;
  const std::int32_t* labels = nullptr;  // of the step's rows; null: not wanted
  std::int32_t* out_labels = nullptr;    // [rows]
};

// A projection's heads on their way to attention: each is normed, rotated, stored in its position's
// place and written, where that is wanted. Each stage rounds as a call of its own would: the norm
// and the rotation to x's type, the others to theirs. What x held is lost.
//
// A rotation turns pairs of a head's elements [0, 2 * pairs) in float32. Pair i is (i, i + pairs),
// or (2i, 2i + 1) where interleaved.
struct Heads {
  std::int64_t heads = 0;
  std::int64_t width = 0;
  void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
  const float* norm_weight = nullptr;  // [width]; null: no norm
  float eps = 1e-6F;
  bool weight_in_f32 = false;
  const float* cos_sin = nullptr;  // [rows, 2 * pairs]; null: no rotation
  std::int64_t pairs = 0;
  bool interleaved = false;
  Pages pages{};        // without data: not stored
  void* out = nullptr;  // may be x; null: not written
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_head_stride = 0;
};

// Of all projections of a layer in one.
struct PrepareHeads {
  std::int64_t rows = 0;
  const Heads* all = nullptr;  // in the host's memory, read before the call returns
  std::int64_t count = 0;
  Sequences sequences{};
  BlockTable table{};
};

// Latent attention's rows on their way to pages and to attention, with the bits of RmsNorm, Rope,
// StorePaged and RoundTo one after the other. Of kv [latent | key] the latent is normed, the key is
// turned, and both are stored. Of each head of q the last 2 * pairs columns are turned, and those
// from out_from on are written. What kv held is lost, and what q's turned columns held.
struct PrepareLatent {
  std::int64_t first_row = 0;  // of all arrays: the sequences' rows and those behind them
  std::int64_t rows = 0;
  float* kv = nullptr;
  std::int64_t kv_stride = 0;
  std::int64_t latent = 0;
  const float* norm_weight = nullptr;  // [latent]
  float eps = 1e-6F;
  bool weight_in_f32 = false;
  const float* cos_sin = nullptr;  // a row has 2 * pairs
  std::int64_t pairs = 0;
  bool interleaved = false;
  float* q = nullptr;
  std::int64_t heads = 0;
  std::int64_t width = 0;  // of q's heads
  std::int64_t q_stride = 0;
  std::int64_t q_head_stride = 0;
  void* out = nullptr;  // its heads begin with column out_from
  std::int64_t out_from = 0;
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_head_stride = 0;
  Sequences sequences{};
  BlockTable table{};
  Pages pages{};  // of one head
};

// The widest head: attention keeps its sums in registers or on the stack.
inline constexpr std::int64_t max_head_width = 1024;

// What a device needs to share out long sequences; without it none is. The CPU uses none.
struct AttentionScratch {
  float* partials = nullptr;
  std::int64_t partial_count = 0;
  // Zero before the first call; every call leaves zeros.
  std::int32_t* counters = nullptr;
  std::int64_t counter_count = 0;
};

// Scratch that a batch of so many sequences does not find too small to be shared out.
struct AttentionScratchSize {
  std::int64_t partials = 0;  // float32 numbers
  std::int64_t counters = 0;
};
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t value_width = 0;
};

// Causal attention of each row to its sequence's positions [0, own], or the last `window` of them,
// own included. Query head h reads kv head h / (heads / kv_heads). A sink is one more logit in the
// softmax that has no value. v may lie inside k (a latent that is both). The last shared_width
// columns of keys may be those of all kv heads, in pages of their own with the same table.
struct Attention {
  Sequences sequences{};
  BlockTable table{};
  Pages k{};
  Pages v{};
  Pages shared_k{};
  std::int64_t shared_width = 0;
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
  AttentionScratch scratch{};
  // A row's bits depend on its sequence and position only. The CPU has it always. A GPU must be
  // asked: its decoding steps and prompts then have one order of sums, and long sequences of
  // latents (v inside k) are not shared out.
  bool batch_invariant = false;
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

// out[r][i] = logits[r][ids[r][i]] - log(sum(exp(logits[r]))); NaN for all of a row that holds NaN
// or infinity, or nothing else than minus infinity.
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

// What an expert's weight is made of.
enum class RouterScores : std::uint8_t {
  softmax,         // over all experts
  chosen_softmax,  // over the chosen ones
  sigmoid,         // each on its own; the choice is by sigmoid + bias
};

// What routing keeps on a thread's stack, or in a block's shared memory.
inline constexpr int max_routed_experts = 1024;
inline constexpr int max_routed_choices = 64;

// The experts_per_token best experts of each row of logits, best first, and their weights. Groups
// that are not among the kept_groups best give none. Equal scores go to the lower id, NaN ranks
// last; moe::RouterSpec says which families route how.
struct RouteTokens {
  std::int64_t tokens = 0;
  int experts = 0;
  int experts_per_token = 0;
  RouterScores scores = RouterScores::softmax;
  int groups = 1;  // of experts / groups neighbours
  int kept_groups = 1;
  int group_best = 1;        // a group counts as much as the sum of its 1 or 2 best
  bool renormalise = false;  // weights are divided by sum_floor + their sum
  float sum_floor = 0;
  float scale = 1;
  const float* bias = nullptr;    // [experts] or null; sigmoid only
  const float* logits = nullptr;  // [tokens, experts]
  // One number in the device's memory: tokens from here on are padding and choose no expert (id -1,
  // weight 0). Null: every token chooses.
  const std::int32_t* live_tokens = nullptr;
  std::int32_t* ids = nullptr;  // [tokens, experts_per_token]
  float* weights = nullptr;     // [tokens, experts_per_token]
};

// What precedes routed experts: a sum with its norm, the router's product of the normed rows, +
// bias, and the choice. The normed rows have the bits of add_and_norm; the product may have an
// order of sums of its own, which the shape alone chooses.
struct NormAndRoute {
  AddAndNorm rows{};
  Linear router{};              // x is rows.norm.out, y is route.logits
  const float* bias = nullptr;  // [experts] of the logits, or null
  RouteTokens route{};
  // Stop behind the product: router.y holds it without the bias, and nothing is chosen. So a step
  // whose adapters change the router has the same product as one without adapters. Otherwise
  // router.y is undefined afterwards.
  bool logits_only = false;
};

struct AdapterTable;  // adapters.h

// Every device fills every entry. Streams of calls are those that on() gives.
struct ElementaryTable {
  void (*rms_norm)(const RmsNorm&, StreamHandle) = nullptr;
  void (*add)(const Add&, StreamHandle) = nullptr;
  void (*add_and_norm)(const AddAndNorm&, StreamHandle) = nullptr;
  void (*add_scaled)(const AddScaled&, StreamHandle) = nullptr;
  void (*round_to)(const RoundTo&, StreamHandle) = nullptr;
  void (*rope_table)(const RopeTable&, StreamHandle) = nullptr;
  void (*embed)(const Embed&, StreamHandle) = nullptr;
  void (*activate_and_multiply)(const ActivateAndMultiply&, StreamHandle) = nullptr;
  void (*linear)(const Linear&, StreamHandle) = nullptr;
  void (*linears)(const Linears&, StreamHandle) = nullptr;
  void (*linear_per_head)(const LinearPerHead&, StreamHandle) = nullptr;
  void (*gather_paged)(const GatherPaged&, StreamHandle) = nullptr;
  void (*prepare_heads)(const PrepareHeads&, StreamHandle) = nullptr;
  void (*prepare_latent)(const PrepareLatent&, StreamHandle) = nullptr;
  void (*attention)(const Attention&, StreamHandle) = nullptr;
  // The type to which it rounds queries of float32 before anything else: whoever makes them may as
  // well. Of the params only pages, table and widths need be there.
  DType (*attention_queries)(const Attention&) = nullptr;
  AttentionScratchSize (*attention_scratch)(const AttentionShape&, StreamHandle) = nullptr;
  void (*combine)(const Combine&, StreamHandle) = nullptr;
  void (*log_probabilities)(const LogProbabilities&, StreamHandle) = nullptr;
  void (*top_k)(const TopK&, StreamHandle) = nullptr;
  void (*route)(const RouteTokens&, StreamHandle) = nullptr;
  void (*norm_and_route)(const NormAndRoute&, StreamHandle) = nullptr;
  void (*sample)(const Sample&, StreamHandle) = nullptr;
  // Bytes of scratch that sample() wants for so many rows of such a vocabulary on this stream.
  std::int64_t (*sample_scratch_bytes)(std::int64_t rows, std::int64_t width,
                                       StreamHandle) = nullptr;
  void (*count_tokens)(const CountTokens&, StreamHandle) = nullptr;
  // Of devices whose kernels read adapters from tables; the CPU's has no entries.
  const AdapterTable* adapters = nullptr;
  // What the kernels keep for their device; the CPU's keep nothing.
  void* device = nullptr;

  StreamHandle on(StreamHandle stream) const { return {.native = stream.native, .device = device}; }
};

// The CPU's, for the best instruction set of this machine. A stream is the ThreadPool that shares
// out the work; one without a pool runs on the calling thread.
const ElementaryTable& cpu_table();

// A GPU's, which owns what its kernels keep: attributes are set, libraries are open. Addresses are
// the device's, a stream is a cudaStream_t, and calls return when their work is queued. An error if
// this build or this machine lacks what it needs.
Result<std::shared_ptr<const ElementaryTable>> cuda_table(int device);

// The first launch of a GPU's table that failed, if any: no call says so itself, and it is final.
// Asked once a step.
Result<void> cuda_launches(const ElementaryTable& table);
// Until null is set, each launch of a GPU's table adds its name to the log: for one thread that
// traces a step. The CPU's table launches nothing.
void log_cuda_launches(const ElementaryTable& table, std::vector<std::string>* log);

}  // namespace motley::kernels
