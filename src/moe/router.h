#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/elementary.h"
#include "ops/context.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::moe {

// How a row of logits selects experts and weights. All arithmetic is float32.
enum class RouterKind : std::uint8_t {
  // p = softmax over all experts; the top_k of p. Qwen2, Qwen3, OLMoE, Mixtral.
  softmax_then_topk,
  // The top_k of the logits; softmax over those only. gpt-oss.
  topk_then_softmax,
  // p = softmax over all experts; a group's score is that of its best expert; the top_k of p within
  // the kept groups. DeepSeek-V2; with one group its "greedy" method.
  grouped_softmax,
  // p = sigmoid; c = p + correction bias, used only for the choice; a group's score is the sum of
  // its two best c; the top_k of c within the kept groups, weighted by p. DeepSeek-V3, Kimi-K2,
  // GLM-4.5.
  sigmoid_grouped,
};

struct RouterSpec {
  RouterKind kind = RouterKind::softmax_then_topk;
  int experts = 0;
  int top_k = 0;
  int groups = 1;       // of equal size, of consecutive experts; for the kinds with groups only
  int kept_groups = 1;  // groups whose experts may be chosen
  // Weights are divided by their sum. Has no effect in topk_then_softmax, where they sum to 1.
  bool renormalise = false;
  float scale = 1;  // routed_scaling_factor: multiplies the weights at the end
};

inline constexpr int max_routed_experts = kernels::max_routed_experts;
inline constexpr int max_top_k = kernels::max_routed_choices;

// Refuses settings of a config file with which no row can be routed.
Result<void> validate(const RouterSpec& spec);

// Logits [T, E] (f32) -> ids [T, K] (i32) and weights [T, K] (f32), best choice first; equal scores
// go to the lower id. The ids of a row are K different experts. A NaN logit ranks last; if it
// enters a sum, the row's weights are NaN.
struct Routing {
  const RouterSpec& spec;
  tensor::ConstTensor logits;
  const float* correction_bias = nullptr;  // [E], sigmoid_grouped's; or null
  tensor::Tensor ids;
  tensor::Tensor weights;
  // In device memory: the number of rows that are not padding; ids of padding are -1. Null: all
  // rows.
  const std::int32_t* live_rows = nullptr;
};
void route(const Routing& routing, const ops::Context& context);

// Routing with everything before it: a sum with its norm, the product of the normed rows x, + bias.
// The contents of logits are undefined afterwards.
struct RouterInput {
  const kernels::AddAndNorm& rows;  // ops::add_and_norm_call
  tensor::ConstTensor x;
  const quant::Weight& weight;
  const float* bias = nullptr;  // [E] of the logits, or null
  tensor::Tensor logits;        // [T, E], the routing's
};
void norm_and_route(const RouterInput& input, const Routing& routing, const ops::Context& context);
bool routes_in_one_launch(const RouterInput& input, const RouterSpec& spec,
                          const ops::Context& context);
// Only up to the product, with the same bits: logits without bias, to which a delta is added.
void norm_and_logits(const RouterInput& input, const RouterSpec& spec, const ops::Context& context);

}  // namespace motley::moe
