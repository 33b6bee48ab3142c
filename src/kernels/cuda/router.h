#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/stream_handle.h"

// How rows of router logits become experts and weights; the definitions are moe::RouterSpec's.
namespace motley::kernels::cuda {

inline constexpr int most_routed_experts = 1024;
inline constexpr int most_routed_choices = 64;

// What weights are made of.
enum class RouterScores : std::uint8_t {
  softmax,         // over all experts
  chosen_softmax,  // over the chosen ones
  sigmoid,         // each on its own; the choice is by sigmoid + bias
};

struct RouteTokens {
  std::int64_t tokens = 0;
  int experts = 0;
  int experts_per_token = 0;
  RouterScores scores = RouterScores::softmax;
  int groups = 1;  // of experts / groups neighbours
  int kept_groups = 1;
  int group_best = 1;  // a group counts as much as the sum of its 1 or 2 best
  bool renormalise = false;
  float sum_floor = 0;  // added to the sum that weights are divided by
  float scale = 1;
  const float* bias = nullptr;    // [experts] or null; sigmoid only
  const float* logits = nullptr;  // [tokens, experts]
  std::int32_t* ids = nullptr;    // [tokens, experts_per_token], best first
  float* weights = nullptr;       // [tokens, experts_per_token]
};

// A row's result depends on that row alone. Equal scores go to the lower id, NaN ranks last.
Result<void> route_tokens(const RouteTokens& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
