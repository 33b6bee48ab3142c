#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/elementary.h"
#include "ops/context.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::moe {

// How a row of logits becomes experts and weights. All arithmetic is float32.
enum class RouterKind : std::uint8_t {
  // p = softmax over all experts; the top_k of p. Qwen2, Qwen3, OLMoE, Mixtral.
  softmax_then_topk,
  // The top_k of the logits; softmax over those alone. gpt-oss.
  topk_then_softmax,
  // p = softmax over all experts; a group counts as much as its best expert; the top_k of p within
  // the kept groups. DeepSeek-V2; with one group its "greedy" method.
  grouped_softmax,
  // p = sigmoid; c = p + correction bias, for the choice alone; a group counts as much as its two
  // best c; the top_k of c within the kept groups, weighted by p. DeepSeek-V3, Kimi-K2, GLM-4.5.
  sigmoid_grouped,
};

struct RouterSpec {
  RouterKind kind = RouterKind::softmax_then_topk;
  int experts = 0;
  int top_k = 0;
  int groups = 1;       // equal, of neighbours; the grouped kinds only
  int kept_groups = 1;  // how many of them may give experts
  // Weights are divided by their sum. Without meaning in topk_then_softmax, where they add up to 1.
  bool renormalise = false;
  float scale = 1;  // routed_scaling_factor: the last thing that weights are multiplied with
};

inline constexpr int max_routed_experts = kernels::max_routed_experts;
inline constexpr int max_top_k = kernels::max_routed_choices;

// Refuses numbers of a config file that no row could be routed by.
Result<void> validate(const RouterSpec& spec);

// Logits [T, E] (f32) -> ids [T, K] (i32) and weights [T, K] (f32), best choice first; equal scores
// go to the lower id. The ids of a row are always K different experts; a NaN logit ranks last, and
// where it enters a sum makes the row's weights NaN.
struct Routing {
  const RouterSpec& spec;
  tensor::ConstTensor logits;
  const float* correction_bias = nullptr;  // [E], sigmoid_grouped's; or null
  tensor::Tensor ids;
  tensor::Tensor weights;
  // Where the device keeps how many rows are not padding; the others' ids are -1. Null: all rows.
  const std::int32_t* live_rows = nullptr;
};
void route(const Routing& routing, const ops::Context& context);

// The same of a layer's router with all that precedes it: a sum with its norm, the product of the
// normed rows x, + bias. What the logits hold afterwards is undefined.
struct RouterInput {
  const kernels::AddAndNorm& rows;  // ops::add_and_norm_call
  tensor::ConstTensor x;
  const quant::Weight& weight;
  const float* bias = nullptr;  // [E] of the logits, or null
  tensor::Tensor logits;        // [T, E], the routing's
};
void norm_and_route(const RouterInput& input, const Routing& routing, const ops::Context& context);
// Up to the product, with the same bits: logits without their bias, for a delta to be added.
void norm_and_logits(const RouterInput& input, const RouterSpec& spec, const ops::Context& context);

}  // namespace motley::moe
