#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/stream_handle.h"
#include "kernels/adapter_tables.h"
#include "kernels/cuda/expert_exact.h"
#include "kernels/cuda/expert_images.h"
#include "kernels/cuda/expert_plan.h"
#include "kernels/elementary.h"

// The expert layer on Hopper's tensor cores: bf16 activations, weights in bf16 or int4, sums in
// float32, adapters as more k-steps of the products that run anyway. Rounded to bf16: x W's input
// h, rows of rank space, and an expert's output before its routing weight.
//
// An output row's bits depend on its own row of x, its own ids, routing weights and label, and on
// the weights: not on the rows beside it, nor on the tiles that a batch's size chooses.
namespace motley::kernels::cuda {

// The adapters of a step (lora::StepTable's arrays). Their pages hold images of experts' factors
// (lora/images.h).
struct GroupedDeltas {
  const std::int32_t* labels = nullptr;           // [tokens], -1: none; null: nobody has one
  const std::int32_t* tokens_by_label = nullptr;  // [tokens], of sort_tokens_by_label()
  const std::int32_t* term_begin = nullptr;       // [labels + 1]
  const AdapterTerm* terms = nullptr;
  int layer = 0;
  DType factor_type = DType::bf16;  // bf16, or f8_e4m3 with a power of two for each row's scale
  // Bounds, which size the scratch: of terms of a label, and of the sum of a label's columns in
  // rank space.
  int most_terms = 0;
  int most_gate_up_rank = 0;
  int most_down_rank = 0;
};

// How the layer is cut. All choices give the same bits.
struct GroupedTiles {
  enum class Rows : std::uint8_t { r64, r128, r256 };
  enum class Gather : std::uint8_t { boxes, copies, permuted };
  Rows rows = Rows::r128;
  int width = 8;  // most tokens of a tile: 8, 16, 32, 64, 128, 160
  int blocks_per_sm = 2;
  Gather gather = Gather::boxes;
  bool inside = false;      // every block sorts the pairs for itself
  bool in_turn = false;     // items are dealt to blocks in turn
  bool one_launch = false;  // tall with adapters: never, its shrinks stand between two
  bool sum_inside = false;  // the last tile of a token sums its experts; not of r256

  // 256 rows against many tokens: one block a multiprocessor. int4 has them against 8 and 16 too.
  bool tall() const { return rows == Rows::r256 && blocks_per_sm == 1; }
};

struct GroupedExperts {
  ExpertShape shape{};
  int experts_per_token = 0;
  std::int64_t tokens = 0;
  std::int64_t most_tokens = 0;  // that the scratch was made for
  ExpertImages weights{};
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
  // A sum of which `out` is the second part, in float32, and its norm: made in place of `out`.
  const AddAndNorm* next = nullptr;
  int multiprocessors = 132;
  // Number of this run since the scratch was prepared: a step prepares it and counts its layers.
  int turn = 0;
};

// Nothing, or why the kernels can't do it.
Result<void> grouped_supports(const ExpertShape& shape, int experts_per_token, WeightKind kind,
                              int group);

// Tokens of a step, at most: beyond that some place in it overflows 32 bits.
std::int64_t grouped_max_tokens(const ExpertShape& shape, int experts_per_token);

// Of `most_tokens` and the deltas' bounds.
std::size_t grouped_scratch_bytes(const GroupedExperts& params);
// Before the run of turn 0.
Result<void> prepare_grouped_scratch(const GroupedExperts& params, StreamHandle stream);

GroupedTiles choose_grouped_tiles(const GroupedExperts& params);
// Whether a run of these tiles may be given what comes next.
bool grouped_sums_into(const AddAndNorm& next, const GroupedTiles& tiles);
Result<void> run_grouped_experts(const GroupedExperts& params, const GroupedTiles& tiles,
                                 StreamHandle stream);

}  // namespace motley::kernels::cuda
