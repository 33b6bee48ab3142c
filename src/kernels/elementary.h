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

// The interface that every device implements: for each op one params struct of raw pointers and one
// function. Shapes are checked one level above (ops). Strides are in elements, the innermost
// dimension is contiguous, and types are f32 or bf16 unless stated otherwise. Sums are in float32,
// in an order that depends only on the row's own shape, so other rows never change a row's bits.
namespace motley::kernels {

struct Tuning;  // tuning/tuning.h

// Rows of an activation, each divided into `parts` parts of `width` (heads; or one part, the whole
// row).
struct Rows {
  std::int64_t rows = 0;
  std::int64_t parts = 1;
  std::int64_t width = 0;
};

// How products take rows that are rounded for them.
enum class InputForm : std::uint8_t {
  none,     // as they stand
  numbers,  // what the codes mean, in the rows' type [rows, width]
  codes,    // 8 bits each [rows, width], behind them float32 scales [ceil(width / 128), rows]
};
struct RoundedRows {
  InputForm form = InputForm::none;
  InputRounding rounding{};
  void* data = nullptr;
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
  // False: the normalised value is rounded to out_type before the product with the weight, as in
  // training of most families. True: rounded once, at the end.
  bool weight_in_f32 = false;
  void* out = nullptr;  // may be x
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_part_stride = 0;
  // out for the products that follow, written beside it; only as norm_inputs() allows.
  RoundedRows rounded{};
};

// out = a + b, rounded once; a + (b + b_bias) if there is a bias, rounded to b's type first.
struct Add {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* a = nullptr;
  DType a_type = DType::f32;
  std::int64_t a_stride = 0;
  const void* b = nullptr;
  DType b_type = DType::f32;
  std::int64_t b_stride = 0;
  const float* b_bias = nullptr;  // [width], or null
  void* out = nullptr;            // may be a or b
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
};

// Add followed by RmsNorm, with the same bits. `norm` has one part, and its x is what `add` writes.
struct AddAndNorm {
  Add add{};
  RmsNorm norm{};
};

// y[r] += s[r] * x[r], where s[r] = sigmoid(scale[r]) if `sigmoid` is set. y is f32.
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

// What uses the sum of a token's experts: + s x of a shared expert, if there is one; the result is
// the second addend of a sum with its norm. Nothing else reads the experts' sum, so it is not
// written.
struct AfterExperts {
  AddScaled shared{};  // x null: none; y is not read
  AddAndNorm rows{};
};

// out = clamp(x * factor + bias, -limit, limit), rounded once: converts f32 to activations.
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

// Inputs as the products of a weight take them: out = x in the order of the weight's columns, or
// what its codes mean where the weight's file says that activations are quantised, or both.
struct ArrangeInputs {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  const std::int32_t* order = nullptr;  // [width]: out's number i is x's number order[i]; or null
  InputRounding rounding{};
  InputMaxima maxima{};
  void* out = nullptr;  // in x's type; without an order may be x
  std::int64_t out_stride = 0;
};

// The largest magnitude of every part of a row that has a scale of its own; a NaN does not count.
// Of rows that ranks cut, this rank's: `first` scales of a row are those of earlier columns, and
// scales without inputs here are 0.
struct FindInputMaxima {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  // Row r is x's row x_rows[r], or has no inputs where that is *x_count or more; null: row r.
  const std::int32_t* x_rows = nullptr;
  const std::int32_t* x_count = nullptr;
  InputRounding rounding{};  // by row or by row_block
  std::int64_t scales = 0;   // of a row of all ranks
  std::int64_t first = 0;
  float* out = nullptr;  // [rows, scales]
};

// cos_sin[r] = [factor * cos(positions[r] * f_i) for all i, then factor * sin]. Computed once a
// step, for every layer.
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
  DType table_type = DType::f32;  // f32, f16 or bf16, at any alignment
  std::int64_t table_rows = 0;
  const std::int32_t* ids = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// The product of gate and up: silu(gate) * up, or the clamped form of gpt-oss,
// (min(gate, limit) * sigmoid(alpha * gate)) * (clamp(up, -limit, limit) + 1).
enum class Activation : std::uint8_t { silu, clamped_swiglu };

// A norm of parts of rows, each `width` numbers, as RmsNorm of float32 computes it.
struct NormOfParts {
  const float* weight = nullptr;  // [width]; null: no norm
  std::int64_t width = 0;
  float eps = 1e-6F;
};

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
  // What activate_blocks() does besides: of up before the product, and of out for the products that
  // follow, beside it.
  NormOfParts norm{};
  RoundedRows rounded{};
};

// For each head h: y[r][h][j] = sum over k of x[r][h][k] * w[h * w_rows_per_head + w_first + j][k].
// A plain linear map has one head with all rows of w.
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
  InputMaxima maxima{};  // of x's rows, for devices whose products round them
  bool exact = true;     // as in GemmTile
  // Fixes the order of sums for any number of rows. The CPU and exact products always have it; a
  // GPU is slower with it for many rows.
  bool batch_invariant = false;
};

// Memory that a later call reads, and that a device may prefetch.
struct Ahead {
  const void* data = nullptr;
  std::int64_t bytes = 0;
};

// `linear` for each of them: products of the same rows of one x, which a device may launch
// together.
struct Linears {
  const Linear* all = nullptr;  // in the host's memory, read before the call returns
  std::int64_t count = 0;
  Ahead ahead{};
  // Or null: how x of the products is made, which the call does first. Nothing else reads x.
  const ArrangeInputs* inputs = nullptr;
  bool coded = false;  // codes and scales of the inputs are at inputs->out already
};

// The same rows of w, transposed: y[r][h][k] = sum over j < out of x[r][h][j] * w[h *
// w_rows_per_head + w_first + j][k]. x has `out` elements per head, y has w.in. The CPU is always
// exact.
using LinearTransposed = Linear;

// Products per head, plain or transposed. If `rounded` is set, results are rounded to bf16 and
// stored there, and y is undefined afterwards.
struct LinearPerHead {
  Linear product{};
  bool transposed = false;
  WeightView narrow{};  // optional: w rounded to bf16, which some devices' kernels prefer
  void* rounded = nullptr;
  std::int64_t rounded_stride = 0;
  std::int64_t rounded_head_stride = 0;
};

// KV memory of keys or values. Position p of sequence s is at
//   pages + table[s * table_stride + p / page_tokens] * page_stride
//         + (p % page_tokens) * token_stride + head * head_stride.
// Of codes (type f8_e4m3, strides in bytes) a number is code * 2^(exponent - 127) * fixed_scale
// (kv_codes.h).
struct Pages {
  void* data = nullptr;
  DType type = DType::f32;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  // Codes only. A page has [kv heads, page_tokens] of them, page_stride apart as the codes are.
  std::uint8_t* exponents = nullptr;
  // As the checkpoint was calibrated; exponents are then 127. 0: it counts as 1, and each token's
  // and head's exponent is chosen when it is stored.
  float fixed_scale = 0;
};
// The last columns of heads whose other columns are stored as codes: they have pages of their own
// in bf16, with the same table.
struct PagedTail {
  Pages pages{};
  std::int64_t width = 0;  // 0: none
};

struct BlockTable {
  const std::int32_t* pages = nullptr;  // [sequences, stride]
  std::int64_t stride = 0;
  std::int64_t page_tokens = 0;
};

// Rows in order of their sequences: sequence s has rows [seq_begin[s], seq_begin[s + 1]), perhaps
// none. The positions of its rows are consecutive.
struct Sequences {
  std::int64_t count = 0;
  const std::int32_t* seq_begin = nullptr;  // [count + 1]
  const std::int32_t* positions = nullptr;  // [rows]
  // Bounds for launches, which do not read the arrays: those are in device memory, and a captured
  // graph outlives their contents. The CPU reads the arrays.
  std::int64_t rows = 0;        // no fewer than seq_begin[count]
  std::int64_t max_rows = 0;    // at least the rows of any sequence; 0: `rows`
  std::int64_t least_rows = 0;  // at most the rows of any sequence
};

// Copies positions [0, end) of some sequences to consecutive rows. Sequence s has rows [begin[s],
// begin[s + 1]) of out; their label is that of its first row in the step.
struct GatherPaged {
  std::int64_t rows = 0;  // begin[sequences.count]
  const std::int32_t* begin = nullptr;
  Sequences sequences{};
  BlockTable table{};
  Pages pages{};  // of one head, in out's type; or codes, and out is bf16
  PagedTail tail{};
  std::int64_t width = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;
  const std::int32_t* labels = nullptr;  // of the step's rows; null: not wanted
  std::int32_t* out_labels = nullptr;    // [rows]
};

// Prepares a projection's heads for attention: each optionally gets a bias, is normed, rotated,
// stored at its position in KV memory, and written to out. Each operation rounds as a separate call
// would: bias, norm and rotation to x's type, the others to theirs. The contents of x are lost.
//
// A rotation rotates pairs of a head's elements [0, 2 * pairs) in float32. Pair i is (i, i +
// pairs), or (2i, 2i + 1) if interleaved.
struct Heads {
  std::int64_t heads = 0;
  std::int64_t width = 0;
  void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
  const float* bias = nullptr;         // [heads, width], if x has them side by side; null: no bias
  const float* norm_weight = nullptr;  // [width]; null: no norm
  float eps = 1e-6F;
  bool weight_in_f32 = false;
  const float* cos_sin = nullptr;  // [rows, 2 * pairs]; null: no rotation
  std::int64_t pairs = 0;
  bool interleaved = false;
  Pages pages{};  // without data: not stored
  PagedTail tail{};
  void* out = nullptr;  // may be x; null: not written
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_head_stride = 0;
};

// The heads of all projections of a layer together.
struct PrepareHeads {
  std::int64_t rows = 0;
  const Heads* all = nullptr;  // in the host's memory, read before the call returns
  std::int64_t count = 0;
  Sequences sequences{};
  BlockTable table{};
};

// Prepares rows of latent attention, with the bits of RmsNorm, Rope, StorePaged and RoundTo one
// after the other. Of kv [latent | key] the latent is normed, the key is rotated, and both are
// stored. Of each head of q the last 2 * pairs columns are rotated, and those from out_from on are
// written. The contents of kv are lost, and of q's rotated columns.
struct PrepareLatent {
  std::int64_t first_row = 0;  // of all arrays; rows behind those of the sequences follow
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
  PagedTail tail{};
};

// The widest head: attention keeps its sums in registers or on the stack.
inline constexpr std::int64_t max_head_width = 1024;

// Memory with which a device splits long sequences among blocks. Without it they are not split. The
// CPU uses none.
struct AttentionScratch {
  float* partials = nullptr;
  std::int64_t partial_count = 0;
  // Zero before the first call; every call leaves zeros.
  std::int32_t* counters = nullptr;
  std::int64_t counter_count = 0;
};

// The scratch that suffices to split a batch of this many sequences.
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

// f32 [rows, heads, value_width], or null: none.
struct HeadGates {
  const float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_stride = 0;
};

// Causal attention of each row to positions [0, own] of its sequence, or to the last `window` of
// them, including its own. Query head h reads kv head h / (heads / kv_heads). A sink is an
// additional logit in the softmax that has no value. v may lie inside k (a latent that is both).
// The last shared_width columns of keys may be shared by all kv heads, in pages of their own with
// the same table; they are bf16 where the others are codes.
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
  HeadGates gates{};             // their sigmoids multiply out before it is rounded
  const void* q = nullptr;
  DType q_type = DType::f32;
  std::int64_t q_stride = 0;
  std::int64_t q_head_stride = 0;
  void* out = nullptr;
  DType out_type = DType::f32;
  std::int64_t out_stride = 0;
  std::int64_t out_head_stride = 0;
  AttentionScratch scratch{};
  // A row's bits depend on its sequence and position only. Always so on the CPU. On a GPU this
  // option gives decoding and prompts the same order of sums, and long sequences of latents (v
  // inside k) are not split.
  bool batch_invariant = false;
};

// out[t] = sum over j < slots of weights[t][j] * x[places[t * slots + j]], j ascending; negative
// places are skipped. `accumulate` starts with out instead of zero.
struct Combine {
  std::int64_t rows = 0;
  std::int64_t slots = 0;
  std::int64_t width = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t x_rows = 0;               // places from here on are skipped, too
  const std::int32_t* places = nullptr;  // null: t * slots + j
  const float* weights = nullptr;        // [rows, slots]; null: 1
  float* out = nullptr;
  std::int64_t out_stride = 0;
  bool accumulate = false;
};

// out[r][i] = logits[r][ids[r][i]] - log(sum(exp(logits[r]))). NaN for a whole row with NaN or
// infinity, or with minus infinity only.
struct LogProbabilities {
  std::int64_t rows = 0;
  std::int64_t width = 0;  // the vocabulary
  const float* logits = nullptr;
  std::int64_t logits_stride = 0;
  std::int64_t chosen = 0;            // ids a row
  const std::int32_t* ids = nullptr;  // [rows, chosen], all inside the vocabulary
  float* out = nullptr;               // [rows, chosen]
  // [rows, chosen], or null: where each stands in the order of TopK, from 1 on; 0 in a row without
  // a distribution.
  std::int32_t* ranks = nullptr;
};

// The k largest of each row, falling; equal values by rising id. NaN is smaller than all others.
struct TopK {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t k = 0;
  std::int32_t* ids = nullptr;  // [rows, k]
  float* values = nullptr;      // [rows, k], or null
};

// How an expert's weight is computed.
enum class RouterScores : std::uint8_t {
  softmax,         // over all experts
  chosen_softmax,  // over the chosen ones
  sigmoid,         // each on its own; the choice is by sigmoid + bias
};

// Limits of what routing keeps on a thread's stack, or in a block's shared memory.
inline constexpr int max_routed_experts = 1024;
inline constexpr int max_routed_choices = 64;

// The experts_per_token best experts of each row of logits, best first, and their weights. Groups
// outside of the kept_groups best have none. Equal scores go to the lower id, NaN ranks last.
// moe::RouterSpec says which families route how.
struct RouteTokens {
  std::int64_t tokens = 0;
  int experts = 0;
  int experts_per_token = 0;
  RouterScores scores = RouterScores::softmax;
  int groups = 1;  // of experts / groups consecutive experts
  int kept_groups = 1;
  int group_best = 1;        // a group's score is the sum of its 1 or 2 best
  bool renormalise = false;  // weights are divided by sum_floor + their sum
  float sum_floor = 0;
  float scale = 1;
  const float* bias = nullptr;    // [experts] or null; sigmoid only
  const float* logits = nullptr;  // [tokens, experts]
  // One number in device memory: tokens from here on are padding and choose no expert (id -1,
  // weight 0). Null: every token chooses.
  const std::int32_t* live_tokens = nullptr;
  std::int32_t* ids = nullptr;  // [tokens, experts_per_token]
  float* weights = nullptr;     // [tokens, experts_per_token]
};

// What precedes routed experts: a sum with its norm, the router's product of the normed rows, +
// bias, and the choice. The normed rows have the bits of add_and_norm; the product may have a
// different order of sums, which depends on the shape only.
struct NormAndRoute {
  AddAndNorm rows{};
  Linear router{};              // x is rows.norm.out, y is route.logits
  const float* bias = nullptr;  // [experts] of the logits, or null
  RouteTokens route{};
  // Stops after the product: router.y holds it without the bias, and nothing is chosen. So a step
  // whose adapters change the router has the same product as one without adapters. If false,
  // router.y is undefined afterwards.
  bool logits_only = false;
};

struct AdapterTable;  // adapters.h

struct RecurrenceTable;  // recurrence.h

// Every device fills every entry that is not said to be a device's. The streams of calls are those
// that on() returns.
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
  // The type to which attention rounds queries of float32 first; callers may produce that type
  // directly. Only pages, table, widths and q_type are read.
  DType (*attention_queries)(const Attention&) = nullptr;
  AttentionScratchSize (*attention_scratch)(const AttentionShape&, StreamHandle) = nullptr;
  void (*combine)(const Combine&, StreamHandle) = nullptr;
  void (*log_probabilities)(const LogProbabilities&, StreamHandle) = nullptr;
  void (*top_k)(const TopK&, StreamHandle) = nullptr;
  void (*route)(const RouteTokens&, StreamHandle) = nullptr;
  void (*norm_and_route)(const NormAndRoute&, StreamHandle) = nullptr;
  // Whether that is one launch, and not those of its parts.
  bool (*routes_in_one_launch)(const NormAndRoute&) = nullptr;
  void (*sample)(const Sample&, StreamHandle) = nullptr;
  // Bytes of scratch that sample() needs for this many rows of such a vocabulary on this stream.
  std::int64_t (*sample_scratch_bytes)(std::int64_t rows, std::int64_t width,
                                       StreamHandle) = nullptr;
  void (*count_tokens)(const CountTokens&, StreamHandle) = nullptr;
  void (*input_maxima)(const FindInputMaxima&, StreamHandle) = nullptr;
  // For devices whose kernels read adapters from tables; null on the CPU.
  const AdapterTable* adapters = nullptr;
  // For layers with a state for each sequence.
  const RecurrenceTable* recurrence = nullptr;
  // For devices whose products take x as it is; null on the CPU, whose products round it as their
  // weights say.
  void (*arrange_inputs)(const ArrangeInputs&, StreamHandle) = nullptr;
  // The form in which a norm can write the inputs of products beside its result: codes where
  // linears() would make codes of them. `none`: it cannot. A norm without a sum has no call.add.
  InputForm (*norm_inputs)(const AddAndNorm& call, const Linears&, StreamHandle) = nullptr;
  // The same for activate_blocks().
  InputForm (*activation_inputs)(const ActivateAndMultiply&, const Linears&,
                                 StreamHandle) = nullptr;
  // activate_and_multiply() with a norm or rounded rows, if it takes the norm; null on the CPU.
  bool (*takes_norm_of_parts)(const ActivateAndMultiply&) = nullptr;
  void (*activate_blocks)(const ActivateAndMultiply&, StreamHandle) = nullptr;
  // What uses the sum of a token's experts, which is rows.add.b. Null on the CPU.
  bool (*takes_shared)(const AfterExperts&) = nullptr;
  void (*add_shared_and_norm)(const AfterExperts&, StreamHandle) = nullptr;
  // State that the kernels keep for their device; null on the CPU.
  void* device = nullptr;

  StreamHandle on(StreamHandle stream) const { return {.native = stream.native, .device = device}; }
};

// The CPU's table, for the best instruction set of this machine. A stream is the ThreadPool that
// runs the work; without a pool it runs on the calling thread.
const ElementaryTable& cpu_table();

// A GPU's table, which owns what its kernels keep: attributes are set, libraries are open.
// Addresses are in device memory, a stream is a cudaStream_t, and calls return when their work is
// queued. Fails if this build or this machine lacks what it needs. Rows of `tuning`, which is read
// during the call, select kernels before the built-in thresholds do.
Result<std::shared_ptr<const ElementaryTable>> cuda_table(int device,
                                                          const Tuning* tuning = nullptr);

// The first failed launch of a GPU's table, if any. The calls themselves do not report it, and it
// is final. Checked once a step.
Result<void> cuda_launches(const ElementaryTable& table);
// Until set to null, each launch of a GPU's table appends its name to the log. For one thread that
// traces a step. The CPU's table launches nothing.
void log_cuda_launches(const ElementaryTable& table, std::vector<std::string>* log);

}  // namespace motley::kernels
