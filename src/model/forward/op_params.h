#pragma once

#include <cstdint>
#include <optional>

#include "dist/communicator.h"
#include "model/linear.h"
#include "model/rope_table.h"
#include "model/step.h"
#include "moe/backend.h"
#include "moe/router.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/list/op_list.h"
#include "ops/over_ranks.h"

// The parameters of each kind of op. Values are in the list; weights are the model's, which must
// outlive it.
namespace motley::model {

using ops::OpKind;
using ops::ValueId;

// out = the rows of the table for the tokens. A table that is cut over ranks has rows from `first`
// on, and gives zeros for tokens that it does not have.
struct EmbedOp {
  static constexpr OpKind kind = OpKind::embed;
  const Linear& table;
  std::optional<std::int64_t> first = {};  // nothing: it is whole
  ValueId out = ops::no_value;
};
// Adds what adapters change in these rows.
struct AdaptEmbeddingOp {
  static constexpr OpKind kind = OpKind::adapt_embedding;
  std::int64_t vocabulary = 0;
  ValueId x = ops::no_value;
};
struct RopeTableOp {
  static constexpr OpKind kind = OpKind::rope_table;
  const RopeTable& table;
  ValueId out = ops::no_value;
};
// sum = a + b
struct AddOp {
  static constexpr OpKind kind = OpKind::add;
  ValueId a = ops::no_value, b = ops::no_value, sum = ops::no_value;
};
// Over rows or over heads of rows; out may be x.
struct NormOp {
  static constexpr OpKind kind = OpKind::norm;
  const Norm& norm;
  ValueId x = ops::no_value, out = ops::no_value;
};
// Before a LinearOp on devices whose products take x as it is: out = x as the weight takes it.
struct ArrangeInputsOp {
  static constexpr OpKind kind = OpKind::arrange_inputs;
  ops::TakenInputs taken;
  ValueId x = ops::no_value, out = ops::no_value;
  ValueId maxima = ops::no_value;  // set where ranks cut x's rows
};
// y = x W^T, in float32.
struct LinearOp {
  static constexpr OpKind kind = OpKind::linear;
  const Linear& linear;
  ValueId x = ops::no_value, y = ops::no_value;
  const moe::RouterSpec* router = nullptr;  // set if y are the logits of a router
  ValueId maxima = ops::no_value;  // set where ranks cut x's rows, and the product rounds x
};
// After a LinearOp: y += deltas of the rows' adapters, * gain, + bias. Reduces to a bias if no
// adapter changes the map.
struct AdaptOp {
  static constexpr OpKind kind = OpKind::adapt;
  const Linear& linear;
  ValueId x = ops::no_value, y = ops::no_value;
};
// x = clamp(x, -limit, limit)
struct ClipOp {
  static constexpr OpKind kind = OpKind::clip;
  float limit = 0;
  ValueId x = ops::no_value;
};
// RoPE on the first columns of every head, in place.
struct RotateOp {
  static constexpr OpKind kind = OpKind::rotate;
  bool interleaved = false;
  ValueId cos_sin = ops::no_value, x = ops::no_value;
};
// Stores heads in one of the layer's caches.
struct StoreOp {
  static constexpr OpKind kind = OpKind::store;
  std::int32_t layer = 0;
  std::size_t cache = keys_cache;
  ValueId x = ops::no_value;
};
// out = x, rounded to out's type.
struct RoundOp {
  static constexpr OpKind kind = OpKind::round;
  ValueId x = ops::no_value, out = ops::no_value;
};
// Causal attention over the layer's KV memory. Latent attention's values are the first columns of
// the keys.
struct AttendOp {
  static constexpr OpKind kind = OpKind::attend;
  std::int32_t layer = 0;
  float scale = 1;
  std::int64_t window = 0;
  const float* sinks = nullptr;
  // number of value columns in the keys; 0: values have their own pages
  std::int64_t values_in_keys = 0;
  ValueId queries = ops::no_value, out = ops::no_value;
  ValueId gates = ops::no_value;  // whose sigmoids multiply the result, in float32; or none
};
// The rows of a weight that belong to each head: of `rows_per_head` those from `first` on. x
// [heads, in] -> y [heads, n], or transposed x [heads, n] -> y [heads, in].
struct PerHeadOp {
  static constexpr OpKind kind = OpKind::product_per_head;
  const quant::Weight& weight;
  const quant::Weight* narrow = nullptr;  // the same for bf16 products, or null
  ops::HeadRows rows{};
  bool transposed = false;
  ValueId x = ops::no_value, y = ops::no_value;
};
// Multiplies queries by the gains of kv_b's key rows, in place.
struct ScaleQueriesOp {
  static constexpr OpKind kind = OpKind::scale_queries;
  const Linear& kv_b;
  std::int64_t rows_per_head = 0;
  ValueId queries = ops::no_value;
};
// y += the delta of kv_b's key rows (queries into latent space), or of its value rows with their
// gains (latents into values).
struct AdaptPerHeadOp {
  static constexpr OpKind kind = OpKind::adapt_per_head;
  const Linear& kv_b;
  std::int64_t rows_per_head = 0;
  bool keys = false;
  ValueId x = ops::no_value, y = ops::no_value;
};
// Gathers the latents of all positions of the part's sequences, and their rows' labels.
struct GatherOp {
  static constexpr OpKind kind = OpKind::gather;
  std::int32_t layer = 0;
  ValueId latents = ops::no_value, labels = ops::no_value;
};
// Multiplies latents by kv_b, deltas included, some positions at a time.
struct ExpandLatentsOp {
  static constexpr OpKind kind = OpKind::expand_latents;
  const Linear& kv_b;
  const quant::Weight& weight;
  ValueId latents = ops::no_value, labels = ops::no_value, expanded = ops::no_value;
};
struct AttendExpandedOp {
  static constexpr OpKind kind = OpKind::attend_expanded;
  float scale = 1;
  std::int64_t key_width = 0, value_width = 0;  // of a head, without the shared columns
  std::int64_t shared_width = 0;
  ValueId queries = ops::no_value, latents = ops::no_value, expanded = ops::no_value,
          out = ops::no_value;
};
// Recurrences over the states of the layer's sequences: see ops::Recurrence.
struct RecurOp {
  static constexpr OpKind kind = OpKind::recur;
  std::int32_t layer = 0;
  ValueId q = ops::no_value, k = ops::no_value, v = ops::no_value, g = ops::no_value,
          beta = ops::no_value, out = ops::no_value;
};
struct ConvolveOp {
  static constexpr OpKind kind = OpKind::convolve;
  std::int32_t layer = 0;
  const Vector& weight;  // [channels, taps]
  const Vector& bias;    // [channels], or empty
  bool silu = false;
  ValueId x = ops::no_value, out = ops::no_value;
};
struct DeltaGatesOp {
  static constexpr OpKind kind = OpKind::delta_gates;
  const Vector& decay;  // [heads]: -e^A_log
  const Vector& bias;   // [heads]
  ValueId a = ops::no_value, b = ops::no_value, g = ops::no_value, beta = ops::no_value;
};
struct RouteOp {
  static constexpr OpKind kind = OpKind::route;
  const moe::RouterSpec& spec;
  const Vector& correction_bias;
  std::int32_t layer = 0;
  ValueId logits = ops::no_value, ids = ops::no_value, weights = ops::no_value;
};
// own = ids as this rank numbers its experts, of which `first` is the first. Those of other ranks'
// experts become numbers that no expert has.
struct LocalExpertsOp {
  static constexpr OpKind kind = OpKind::local_experts;
  std::int32_t layer = 0;
  std::int32_t first = 0;
  ValueId ids = ops::no_value, own = ops::no_value;
};
struct ExpertsOp {
  static constexpr OpKind kind = OpKind::experts;
  const moe::Backend& backend;
  const moe::Problem& problem;
  const moe::PreparedExperts& experts;
  std::int32_t layer = 0;
  bool local_ids = false;  // a LocalExpertsOp's, not the router's
  ValueId x = ops::no_value, ids = ops::no_value, weights = ops::no_value, out = ops::no_value;
};
struct ActivateOp {
  static constexpr OpKind kind = OpKind::activate;
  ops::ActivationSpec spec{};
  ValueId gate = ops::no_value, up = ops::no_value, out = ops::no_value;
};
// y += sigmoid(scale) * x
struct AddScaledOp {
  static constexpr OpKind kind = OpKind::add_scaled;
  ValueId x = ops::no_value, scale = ops::no_value, y = ops::no_value;
};
// x = its sum over ranks. A rank without a part only takes part.
struct SumOverRanksOp {
  static constexpr OpKind kind = OpKind::sum_over_ranks;
  ops::SumOverRanks sum{};
  ValueId x = ops::no_value;
};
// Norms rows whose columns are cut over ranks, in place.
struct NormOverRanksOp {
  static constexpr OpKind kind = OpKind::norm_over_ranks;
  const Norm& norm;
  std::int64_t whole_width = 0;
  dist::Communicator::Part part = dist::Communicator::Part::own;
  ValueId x = ops::no_value;
};
// out = the largest magnitudes of inputs that share a scale, of rows whose columns are cut over
// ranks. A rank without an x only takes part.
struct InputMaximaOverRanksOp {
  static constexpr OpKind kind = OpKind::input_maxima_over_ranks;
  ops::CutRounding cut;
  ValueId x = ops::no_value, out = ops::no_value;
};
// On rank 0, out = the rows whose columns x are cut over ranks.
struct GatherOverRanksOp {
  static constexpr OpKind kind = OpKind::gather_over_ranks;
  dist::Range columns;
  ValueId x = ops::no_value, out = ops::no_value;
};

}  // namespace motley::model
