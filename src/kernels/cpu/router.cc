#include "kernels/cpu/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "base/system/thread_pool.h"

namespace motley::kernels::cpu {
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
void mask_groups(const RouteTokens& p, Workspace& workspace, std::span<float> scores) {
  if (p.kept_groups == p.groups) return;
  const auto groups = static_cast<std::size_t>(p.groups);
  const std::size_t size = scores.size() / groups;
  const std::span<float> group_scores = std::span(workspace.group_scores).first(groups);
  for (std::size_t group = 0; group < groups; ++group)
    group_scores[group] = group_score(scores.subspan(group * size, size), p.group_best);
  best(group_scores, p.kept_groups, workspace, workspace.kept.data());
  const auto kept = std::span(workspace.kept).first(static_cast<std::size_t>(p.kept_groups));
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

// A softmax keeps the order of the logits, so it chooses by the logits themselves: the order of two
// experts does not drown in rounding.
void route_row(const RouteTokens& p, std::span<const float> logits, Workspace& workspace,
               std::span<std::int32_t> ids, std::span<float> weights) {
  const std::span<float> scores = std::span(workspace.scores).first(logits.size());
  if (p.scores == RouterScores::sigmoid) {
    for (std::size_t e = 0; e < logits.size(); ++e)
      scores[e] = sigmoid(logits[e]) + (p.bias == nullptr ? 0.0F : p.bias[e]);
  } else {
    std::ranges::copy(logits, scores.begin());
  }
  mask_groups(p, workspace, scores);
  best(scores, p.experts_per_token, workspace, ids.data());
  switch (p.scores) {
    case RouterScores::softmax:
      softmax_at(logits, logits, ids, weights.data());
      break;
    case RouterScores::chosen_softmax: {
      const std::span<float> chosen = scores.first(ids.size());
      for (std::size_t slot = 0; slot < ids.size(); ++slot)
        chosen[slot] = logits[static_cast<std::size_t>(ids[slot])];
      softmax_at(logits, chosen, ids, weights.data());
      break;
    }
    case RouterScores::sigmoid:
      for (std::size_t slot = 0; slot < ids.size(); ++slot)
        weights[slot] = sigmoid(logits[static_cast<std::size_t>(ids[slot])]);
      break;
  }
  if (p.renormalise) divide_by_sum(p.sum_floor, weights);
  for (float& weight : weights) weight *= p.scale;
}

}  // namespace

void route(const RouteTokens& p, StreamHandle stream) {
  const auto experts = static_cast<std::size_t>(p.experts);
  const auto choices = static_cast<std::size_t>(p.experts_per_token);
  const std::int64_t live = p.live_tokens == nullptr ? p.tokens : *p.live_tokens;
  // Rows of a task: fewer cost less than handing them out.
  constexpr std::int64_t grain = 16;
  const auto route_rows = [&](std::int64_t task) {
    Workspace workspace;
    for (std::int64_t token = task * grain; token < std::min(p.tokens, (task + 1) * grain);
         ++token) {
      const auto row = static_cast<std::size_t>(token);
      if (token >= live) {
        std::fill_n(p.ids + row * choices, choices, -1);
        std::fill_n(p.weights + row * choices, choices, 0.0F);
        continue;
      }
      route_row(p, std::span(p.logits + row * experts, experts), workspace,
                std::span(p.ids + row * choices, choices),
                std::span(p.weights + row * choices, choices));
    }
  };
  const std::int64_t tasks = (p.tokens + grain - 1) / grain;
  if (auto* const pool = static_cast<ThreadPool*>(stream.native))
    return pool->for_tasks(tasks, route_rows);
  for (std::int64_t task = 0; task < tasks; ++task) route_rows(task);
}

}  // namespace motley::kernels::cpu
