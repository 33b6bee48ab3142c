#include "moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "base/cat.h"
#include "moe/threads.h"

namespace motley::moe {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// A place in the order of choice: NaN behind every number.
float rank_of(float score) { return std::isnan(score) ? -infinity : score; }

// What the rows of a task use one after the other.
struct Workspace {
  std::array<float, max_routed_experts> scores{};
  std::array<float, max_routed_experts> ranks{};
  std::array<float, max_routed_experts> group_scores{};
  std::array<std::int32_t, max_routed_experts> kept{};
};

// The ids of the count best scores, best first. Later ids must be better, not as good, to pass
// earlier ones: equal scores go to the lower id.
void best(std::span<const float> scores, int count, Workspace& workspace, std::int32_t* ids) {
  auto& ranks = workspace.ranks;
  int held = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const float rank = rank_of(scores[i]);
    if (held == count && !(rank > ranks[static_cast<std::size_t>(held) - 1])) continue;
    int at = held < count ? held++ : held - 1;
    for (; at > 0 && rank > ranks[static_cast<std::size_t>(at) - 1]; --at) {
      ranks[static_cast<std::size_t>(at)] = ranks[static_cast<std::size_t>(at) - 1];
      ids[at] = ids[at - 1];
    }
    ranks[static_cast<std::size_t>(at)] = rank;
    ids[at] = static_cast<std::int32_t>(i);
  }
}

// The sum of the `summed` best scores of a group.
float group_score(std::span<const float> scores, int summed) {
  float first = -infinity;
  float second = -infinity;
  for (const float score : scores) {
    const float rank = rank_of(score);
    if (rank > first) {
      second = first;
      first = rank;
    } else if (rank > second) {
      second = rank;
    }
  }
  return summed == 1 ? first : first + second;
}

// Makes the scores of groups that are not kept worse than every number.
void mask_groups(const RouterSpec& spec, int summed, Workspace& workspace,
                 std::span<float> scores) {
  if (spec.kept_groups == spec.groups) return;
  const auto groups = static_cast<std::size_t>(spec.groups);
  const std::size_t size = scores.size() / groups;
  const std::span<float> group_scores = std::span(workspace.group_scores).first(groups);
  for (std::size_t group = 0; group < groups; ++group)
    group_scores[group] = group_score(scores.subspan(group * size, size), summed);
  best(group_scores, spec.kept_groups, workspace, workspace.kept.data());
  const auto kept = std::span(workspace.kept).first(static_cast<std::size_t>(spec.kept_groups));
  for (std::size_t group = 0; group < groups; ++group) {
    if (std::ranges::find(kept, static_cast<std::int32_t>(group)) == kept.end())
      std::ranges::fill(scores.subspan(group * size, size), -infinity);
  }
}

// exp(logit - largest) / sum: the softmax over all of `summed`, at the chosen ids.
void softmax_at(std::span<const float> logits, std::span<const float> summed,
                std::span<const std::int32_t> ids, float* weights) {
  float largest = -infinity;
  for (const float logit : summed) largest = std::max(largest, rank_of(logit));
  float sum = 0;
  for (const float logit : summed) sum += std::exp(logit - largest);
  for (std::size_t slot = 0; slot < ids.size(); ++slot)
    weights[slot] = std::exp(logits[static_cast<std::size_t>(ids[slot])] - largest) / sum;
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

void divide_by_sum(float floor, std::span<float> weights) {
  float sum = floor;
  for (const float weight : weights) sum += weight;
  for (float& weight : weights) weight /= sum;
}

// A softmax keeps the order of the logits, so those kinds choose by the logits themselves: the
// order of two experts does not drown in rounding.
void route_row(const RouterSpec& spec, std::span<const float> logits, const float* correction_bias,
               Workspace& workspace, std::span<std::int32_t> ids, std::span<float> weights) {
  const std::span<float> scores = std::span(workspace.scores).first(logits.size());
  switch (spec.kind) {
    case RouterKind::softmax_then_topk:
      best(logits, spec.top_k, workspace, ids.data());
      softmax_at(logits, logits, ids, weights.data());
      if (spec.renormalise) divide_by_sum(0.0F, weights);
      break;
    case RouterKind::topk_then_softmax: {
      best(logits, spec.top_k, workspace, ids.data());
      const std::span<float> chosen = scores.first(ids.size());
      for (std::size_t slot = 0; slot < ids.size(); ++slot)
        chosen[slot] = logits[static_cast<std::size_t>(ids[slot])];
      softmax_at(logits, chosen, ids, weights.data());
      break;
    }
    case RouterKind::grouped_softmax:
      std::ranges::copy(logits, scores.begin());
      mask_groups(spec, 1, workspace, scores);
      best(scores, spec.top_k, workspace, ids.data());
      softmax_at(logits, logits, ids, weights.data());
      if (spec.renormalise) divide_by_sum(1e-20F, weights);
      break;
    case RouterKind::sigmoid_grouped:
      for (std::size_t e = 0; e < logits.size(); ++e)
        scores[e] = sigmoid(logits[e]) + (correction_bias == nullptr ? 0.0F : correction_bias[e]);
      mask_groups(spec, 2, workspace, scores);
      best(scores, spec.top_k, workspace, ids.data());
      for (std::size_t slot = 0; slot < ids.size(); ++slot)
        weights[slot] = sigmoid(logits[static_cast<std::size_t>(ids[slot])]);
      if (spec.renormalise) divide_by_sum(1e-20F, weights);
      break;
  }
  for (float& weight : weights) weight *= spec.scale;
}

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

void route(const RouterSpec& spec, const tensor::ConstTensor& logits, const float* correction_bias,
           const tensor::Tensor& ids, const tensor::Tensor& weights, const ops::Context& context) {
  MOTLEY_CHECK(validate(spec).ok(), "a spec that validate() takes");
  const std::int64_t tokens = logits.dim(0);
  MOTLEY_CHECK(logits.shape() == (tensor::Shape{tokens, spec.experts}) && logits.is_contiguous(),
               "logits [T, E]");
  MOTLEY_CHECK(ids.shape() == (tensor::Shape{tokens, spec.top_k}) && ids.is_contiguous(),
               "ids [T, K]");
  MOTLEY_CHECK(weights.shape() == ids.shape() && weights.is_contiguous(), "weights [T, K]");
  const auto experts = static_cast<std::size_t>(spec.experts);
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  const float* const all_logits = logits.data<float>();
  std::int32_t* const all_ids = ids.data<std::int32_t>();
  float* const all_weights = weights.data<float>();

  // Rows of a task: fewer cost less than handing them out.
  constexpr std::int64_t grain = 16;
  for_tasks(context, (tokens + grain - 1) / grain, [&](std::int64_t task) {
    Workspace workspace;
    for (std::int64_t token = task * grain; token < std::min(tokens, (task + 1) * grain); ++token) {
      const auto row = static_cast<std::size_t>(token);
      route_row(spec, std::span(all_logits + row * experts, experts), correction_bias, workspace,
                std::span(all_ids + row * top_k, top_k),
                std::span(all_weights + row * top_k, top_k));
    }
  });
}

}  // namespace motley::moe
