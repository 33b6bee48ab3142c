#include "moe/backend.h"

#include "base/check.h"

namespace motley::moe {

void check(const ExpertCall& call) {
  const ExpertWeights& weights = call.weights;
  const plan::Plan& plan = call.plan;
  const std::int64_t tokens = plan.tokens();
  MOTLEY_CHECK(plan.experts() == weights.experts, "a plan over the layer's experts");
  MOTLEY_CHECK(call.x.shape() == (tensor::Shape{tokens, weights.hidden}) && call.x.is_contiguous(),
               "x [T, H]");
  MOTLEY_CHECK(call.x.dtype() == DType::f32 || call.x.dtype() == DType::bf16, "x in f32 or bf16");
  MOTLEY_CHECK(call.routing_weights.shape() == (tensor::Shape{tokens, plan.experts_per_token()}) &&
                   call.routing_weights.dtype() == DType::f32 &&
                   call.routing_weights.is_contiguous(),
               "routing weights [T, K] in f32");
  MOTLEY_CHECK(call.out.shape() == (tensor::Shape{tokens, weights.hidden}) &&
                   call.out.dtype() == DType::f32 && call.out.is_contiguous(),
               "out [T, H] in f32");
}

}  // namespace motley::moe
