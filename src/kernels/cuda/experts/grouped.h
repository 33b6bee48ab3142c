#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"
#include "kernels/cuda/experts/cut_rows.h"
#include "kernels/cuda/experts/exact.h"
#include "kernels/cuda/experts/packed_layout.h"
#include "kernels/cuda/experts/plan.h"
#include "kernels/cuda/experts/shared_shrink.h"
#include "kernels/cuda/experts/tiles.h"
#include "kernels/elementary.h"
#include "kernels/kernel.h"

// The expert layer on Hopper's tensor cores: bf16 activations, weights in bf16 or of codes, float32
// sums. Adapters are additional k16 steps of the base products. Rounded to bf16 are h, rows in rank
// space, an expert's output before its routing weight, and inputs that stand for their codes.
//
// Weights of FP8 or INT8 whose inputs are rounded to the same type are multiplied code by code,
// with float32 scales on the sums of 128 inputs.
//
// An output row's bits depend on its own row of x, its own ids, routing weights and label, and on
// the weights; not on other rows, nor on the tiles chosen for the batch size.
namespace motley::kernels::cuda {

// Products of bf16, summed in float32 with k ascending; an adapter's terms follow the base's k.
inline constexpr Arithmetic grouped_arithmetic{"grouped: bf16, k ascending in float32"};
inline constexpr Arithmetic coded_arithmetic{
    "grouped: codes, sums of 128 k or exact ones in float32"};

// The adapters of a step (lora::StepTable's arrays). Adapter memory holds experts' factors in the
// packed layout (lora/pages/packed_layout.h).
struct GroupedDeltas {
  const std::int32_t* labels = nullptr;           // [tokens], -1: none; null: no row has one
  const std::int32_t* tokens_by_label = nullptr;  // [tokens], from sort_tokens_by_label()
  const std::int32_t* term_begin = nullptr;       // [labels + 1]
  const AdapterTerm* terms = nullptr;
  int layer = 0;
  DType factor_type = DType::bf16;  // bf16, or f8_e4m3 with a power-of-two scale for each row
  // Upper bounds, which size the scratch: the terms of a label, and the sum of a label's columns in
  // rank space.
  int max_terms = 0;
  int max_gate_up_rank = 0;
  int max_down_rank = 0;
};

struct ExpertInputs;

// How gate and up, or down, take their inputs: for each expert, in device memory; null: as they
// are. So do adapters always.
struct GroupedInputs {
  const ExpertInputs* each = nullptr;  // [experts]
  InputRounding rounding{};  // theirs, but for fixed scales; zero: the largest of their zeros
  bool ordered = false;      // some have an order
};

struct GroupedExperts {
  ExpertShape shape{};
  int experts_per_token = 0;
  std::int64_t tokens = 0;
  std::int64_t max_tokens = 0;  // for which the scratch was made
  PackedExperts weights{};
  GroupedInputs inputs[2] = {};  // of gate and up, of down
  CutRows cut{};
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
  SharedShrink shared_shrink{};  // only with tall tiles
  void* scratch = nullptr;       // grouped_scratch_bytes(), prepared once
  void* out = nullptr;           // [tokens, H]; a token without experts gets zeros
  DType out_type = DType::f32;   // f32 or bf16
  // If not null: computed in place of `out`, which is then float32.
  const AfterExperts* next = nullptr;
  int multiprocessors = 132;
  // Number of this run since the scratch was prepared: a step prepares it once and counts layers.
  int turn = 0;

  bool arranges_inputs() const { return inputs[0].each != nullptr || inputs[1].each != nullptr; }
};

// The layout for products of codes with codes where the inputs are rounded to the type of the
// weights' codes and the sizes allow it; else the weights' own.
ExpertFormat format_for_inputs(const PackedExperts& weights, const GroupedInputs (&inputs)[2],
                               const ExpertShape& shape);

// Whether layers of these sizes can be packed for the grouped GEMMs.
Support grouped_supports(const ExpertShape& shape, int experts_per_token);

// The largest number of tokens of a step; with more, an index would overflow 32 bits.
std::int64_t grouped_max_tokens(const ExpertShape& shape, int experts_per_token);

// Computed from `max_tokens` and the bounds of the deltas.
std::size_t grouped_scratch_bytes(const GroupedExperts& params);
// Call before the run of turn 0.
void prepare_grouped_scratch(const GroupedExperts& params, StreamHandle stream);

// Whether a problem can run with these tiles.
Support grouped_supports(const GroupedTiles& tiles, const GroupedExperts& params);
// The kernel for supported tiles.
const KernelInfo& grouped_kernel_of(const GroupedTiles& tiles, const GroupedExperts& params);
// Chooses by a table of thresholds, whose last rows have no bounds.
struct ExpertThreshold;
GroupedTiles choose_grouped_tiles(const GroupedExperts& params,
                                  std::span<const ExpertThreshold> table);
// By the built-in one (thresholds.h).
GroupedTiles choose_grouped_tiles(const GroupedExperts& params);

// The fewest (token, expert) pairs of a step whose ranks share the products with A of gate and up
// (SharedShrink), by the columns of a row in rank space.
std::int64_t min_shared_shrink_pairs(int columns);

// Whether a run with these tiles can compute `next`.
bool grouped_sums_into(const AfterExperts& next, const GroupedTiles& tiles);
void run_grouped_experts(const GroupedExperts& params, const GroupedTiles& tiles,
                         StreamHandle stream);

}  // namespace motley::kernels::cuda
