#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"
#include "kernels/cuda/experts/exact.h"
#include "kernels/cuda/experts/packed_layout.h"
#include "kernels/cuda/experts/plan.h"
#include "kernels/cuda/experts/tiles.h"
#include "kernels/elementary.h"
#include "kernels/kernel.h"

// The expert layer on Hopper's tensor cores: bf16 activations, weights in bf16 or int4, sums in
// float32, adapters as more k-steps of the products that run anyway. Rounded to bf16: x W's input
// h, rows of rank space, and an expert's output before its routing weight.
//
// An output row's bits depend on its own row of x, its own ids, routing weights and label, and on
// the weights: not on the rows beside it, nor on the tiles that a batch's size chooses.
namespace motley::kernels::cuda {

// Products of bf16 with k ascending in float32, an adapter's terms behind the base's k.
inline constexpr Arithmetic grouped_arithmetic{"grouped: bf16, k ascending in float32"};

// The adapters of a step (lora::StepTable's arrays). Their pages hold experts' factors packed
// (lora/pages/packed_layout.h).
struct GroupedDeltas {
  const std::int32_t* labels = nullptr;           // [tokens], -1: none; null: no row has one
  const std::int32_t* tokens_by_label = nullptr;  // [tokens], of sort_tokens_by_label()
  const std::int32_t* term_begin = nullptr;       // [labels + 1]
  const AdapterTerm* terms = nullptr;
  int layer = 0;
  DType factor_type = DType::bf16;  // bf16, or f8_e4m3 with a power of two for each row's scale
  // Bounds, which size the scratch: of terms of a label, and of the sum of a label's columns in
  // rank space.
  int max_terms = 0;
  int max_gate_up_rank = 0;
  int max_down_rank = 0;
};

struct GroupedExperts {
  ExpertShape shape{};
  int experts_per_token = 0;
  std::int64_t tokens = 0;
  std::int64_t max_tokens = 0;  // that the scratch was made for
  PackedExperts weights{};
  const float* gate_bias = nullptr;  // [experts, I] or null
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [experts, H] or null
  ExpertActivation activation = ExpertActivation::silu_mul;
  float swiglu_limit = 7.0F;
  float swiglu_alpha = 1.702F;

  const void* x = nullptr;                 // [tokens, H] in bf16
  const std::int32_t* ids = nullptr;       // [tokens, K]
  const float* routing_weights = nullptr;  // [tokens, K]
  GroupedDeltas deltas{};
  void* scratch = nullptr;      // grouped_scratch_bytes(), prepared once
  void* out = nullptr;          // [tokens, H]; a token without any expert gets zeros
  DType out_type = DType::f32;  // f32 or bf16
  // Made in place of `out`, which is float32. Or null.
  const AfterExperts* next = nullptr;
  int multiprocessors = 132;
  // Number of this run since the scratch was prepared: a step prepares it and counts its layers.
  int turn = 0;
};

// Whether layers of these sizes and weights can be packed for the kernels.
Support grouped_supports(const ExpertShape& shape, int experts_per_token, WeightKind kind,
                         int group);

// Tokens of a step, at most: beyond that some place in it overflows 32 bits.
std::int64_t grouped_max_tokens(const ExpertShape& shape, int experts_per_token);

// Of `max_tokens` and the deltas' bounds.
std::size_t grouped_scratch_bytes(const GroupedExperts& params);
// Before the run of turn 0.
void prepare_grouped_scratch(const GroupedExperts& params, StreamHandle stream);

// Whether a run may be cut that way.
Support grouped_supports(const GroupedTiles& tiles, const GroupedExperts& params);
// The kernel of a cut that is supported.
const KernelInfo& grouped_kernel_of(const GroupedTiles& tiles, const GroupedExperts& params);
// By the table of thresholds (thresholds.h).
GroupedTiles choose_grouped_tiles(const GroupedExperts& params);

// Whether a run of these tiles may be given what comes next.
bool grouped_sums_into(const AfterExperts& next, const GroupedTiles& tiles);
void run_grouped_experts(const GroupedExperts& params, const GroupedTiles& tiles,
                         StreamHandle stream);

}  // namespace motley::kernels::cuda
