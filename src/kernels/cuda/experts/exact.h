#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"
#include "kernels/cuda/experts/cut_rows.h"
#include "kernels/cuda/experts/plan.h"
#include "kernels/weight_view.h"

// The expert layer in float32, for --compute f32 on a GPU and as the reference for the fast
// kernels. The order of every sum depends only on the row's own length.
namespace motley::kernels::cuda {

enum class ExpertActivation : std::uint8_t {
  silu_mul,        // silu(gate) up
  clamped_swiglu,  // g = min(gate, limit), u = clamp(up, -limit, limit), (u + 1) g sigma(alpha g)
};

// The adapters of a step (lora::StepTable's arrays). Adapter memory holds experts' factors in the
// row layout: A [padded, in], B [out, padded].
struct ExactDeltas {
  const std::int32_t* labels = nullptr;      // [tokens], -1: none
  const std::int32_t* term_begin = nullptr;  // [labels + 1]
  const AdapterTerm* terms = nullptr;
  int layer = 0;
  DType factor_type = DType::f32;  // f32, bf16 or f8_e4m3
  int max_terms = 0;               // of one label
  int max_rank = 0;                // of one factor
};

struct ExactExperts {
  std::int64_t tokens = 0;
  int experts_per_token = 0;
  int experts = 0;
  std::int64_t hidden = 0;        // H
  std::int64_t intermediate = 0;  // I
  std::int64_t more_columns = 0;  // of down than I, where its inputs are arranged
  // [experts] each, in device memory; gate and up [I, H], down [H, I].
  const WeightView* gate = nullptr;
  const WeightView* up = nullptr;
  const WeightView* down = nullptr;
  // How the weights' inputs are rounded, but for fixed scales, which are those of each weight.
  InputRounding gate_up_inputs{};
  InputRounding down_inputs{};
  CutRows cut{};
  // Whether any of them take their inputs in an order of their own.
  bool gate_up_ordered = false;
  bool down_ordered = false;
  const float* gate_bias = nullptr;  // [experts, I] or null
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [experts, H] or null
  ExpertActivation activation = ExpertActivation::silu_mul;
  float swiglu_limit = 7.0F;
  float swiglu_alpha = 1.702F;
  bool round_h = false;  // round h to bf16 before down, as the fast kernels do

  const void* x = nullptr;  // [T, H]
  DType x_type = DType::f32;
  const float* routing_weights = nullptr;  // [T, K]
  ExpertPlan plan{};                       // with tile_places = exact_tile_places
  ExactDeltas deltas{};
  void* scratch = nullptr;  // exact_scratch_bytes()
  float* out = nullptr;     // [T, H]; a token without experts gets zeros
};

inline constexpr int exact_tile_places = 32;

std::size_t exact_scratch_bytes(const ExactExperts& params);
void run_exact_experts(const ExactExperts& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
