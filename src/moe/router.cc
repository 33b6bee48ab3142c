#include "moe/router.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/check.h"
#include "ops/linear.h"

namespace motley::moe {
namespace {

bool has_groups(RouterKind kind) {
  return kind == RouterKind::grouped_softmax || kind == RouterKind::sigmoid_grouped;
}

Error refusal(std::string what) { return {ErrorCode::bad_file, std::move(what), "router"}; }

}  // namespace

Result<void> validate(const RouterSpec& spec) {
  if (spec.experts < 1 || spec.experts > max_routed_experts)
    return refusal(cat(spec.experts, " experts, where 1 to ", max_routed_experts, " can be"));
  if (spec.top_k < 1 || spec.top_k > std::min(spec.experts, max_top_k)) {
    return refusal(cat(spec.top_k, " experts per token, where 1 to ",
                       std::min(spec.experts, max_top_k), " can be"));
  }
  if (!std::isfinite(spec.scale)) return refusal("a scale that is not finite");
  if (spec.groups < 1 || spec.kept_groups < 1 || spec.kept_groups > spec.groups)
    return refusal(cat(spec.kept_groups, " kept groups of ", spec.groups));
  if (!has_groups(spec.kind) && spec.groups > 1) return refusal("groups, which its kind lacks");
  if (spec.experts % spec.groups != 0)
    return refusal(cat(spec.experts, " experts do not make ", spec.groups, " equal groups"));
  const int group_size = spec.experts / spec.groups;
  if (spec.top_k > spec.kept_groups * group_size) {
    return refusal(
        cat(spec.top_k, " experts per token out of ", spec.kept_groups, " groups of ", group_size));
  }
  if (spec.kind == RouterKind::sigmoid_grouped && spec.groups > 1 && group_size < 2)
    return refusal("groups of one expert, which have no two best");
  return {};
}

namespace {

// Everything except the results.
kernels::RouteTokens params_of(const RouterSpec& spec, const tensor::ConstTensor& logits) {
  MOTLEY_CHECK(validate(spec).ok(), "a spec that validate() takes");
  const std::int64_t tokens = logits.dim(0);
  MOTLEY_CHECK(logits.shape() == (tensor::Shape{tokens, spec.experts}) && logits.is_contiguous(),
               "logits [T, E]");
  kernels::RouteTokens params{
      .tokens = tokens,
      .experts = spec.experts,
      .experts_per_token = spec.top_k,
      .groups = spec.groups,
      .kept_groups = spec.kept_groups,
      .renormalise = spec.renormalise,
      .scale = spec.scale,
      .logits = logits.data<float>(),
  };
  switch (spec.kind) {
    case RouterKind::softmax_then_topk:
      break;
    case RouterKind::topk_then_softmax:
      params.scores = kernels::RouterScores::chosen_softmax;
      params.renormalise = false;
      break;
    case RouterKind::grouped_softmax:
      params.sum_floor = 1e-20F;
      break;
    case RouterKind::sigmoid_grouped:
      params.scores = kernels::RouterScores::sigmoid;
      params.group_best = 2;
      params.sum_floor = 1e-20F;
      break;
  }
  return params;
}

kernels::RouteTokens params_of(const Routing& routing) {
  const auto& [spec, logits, correction_bias, ids, weights, live_rows] = routing;
  MOTLEY_CHECK(ids.shape() == (tensor::Shape{logits.dim(0), spec.top_k}) && ids.is_contiguous(),
               "ids [T, K]");
  MOTLEY_CHECK(weights.shape() == ids.shape() && weights.is_contiguous(), "weights [T, K]");
  kernels::RouteTokens params = params_of(spec, logits);
  params.bias = correction_bias;
  params.live_tokens = live_rows;
  params.ids = ids.data<std::int32_t>();
  params.weights = weights.data<float>();
  return params;
}

kernels::NormAndRoute params_of(const RouterInput& input, const kernels::RouteTokens& route,
                                const ops::Context& context) {
  MOTLEY_CHECK(input.rows.norm.out == input.x.bytes(), "the normed rows");
  return {.rows = input.rows,
          .router = ops::linear_call(context, input.x, {&input.weight, input.logits}),
          .bias = input.bias,
          .route = route};
}

}  // namespace

void route(const Routing& routing, const ops::Context& context) {
  context.kernels->route(params_of(routing), context.stream);
}

void norm_and_route(const RouterInput& input, const Routing& routing, const ops::Context& context) {
  context.kernels->norm_and_route(params_of(input, params_of(routing), context), context.stream);
}

bool routes_in_one_launch(const RouterInput& input, const RouterSpec& spec,
                          const ops::Context& context) {
  return context.kernels->routes_in_one_launch(
      params_of(input, params_of(spec, input.logits), context));
}

void norm_and_logits(const RouterInput& input, const RouterSpec& spec,
                     const ops::Context& context) {
  kernels::NormAndRoute params = params_of(input, params_of(spec, input.logits), context);
  params.logits_only = true;
  context.kernels->norm_and_route(params, context.stream);
}

}  // namespace motley::moe
