// How a warp routes a row of logits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/elementary.h"

namespace motley::kernels::cuda::routing {

inline constexpr int lanes = 32;
inline constexpr unsigned everyone = 0xFFFFFFFFU;

// Maps scores to integers in the order of choice: NaN and -infinity are last, -0 equals +0. Never
// 0, which marks keys that have been taken.
__device__ inline std::uint32_t key_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const std::uint32_t bits = __float_as_uint(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float score_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

struct LaneBest {
  std::uint32_t key = 0;
  std::uint32_t at = everyone;
};

// The best of a lane's own entries: lane, lane + 32, ...
__device__ inline LaneBest best_of_lane(const std::uint32_t* keys, int count, int lane) {
  LaneBest best;
#pragma unroll 1
  for (int at = lane; at < count; at += lanes) {
    if (keys[at] > best.key) best = {keys[at], static_cast<std::uint32_t>(at)};
  }
  return best;
}

// Takes the `wanted` best of `count` keys, best first, and sets them to 0.
__device__ inline void take_best(std::uint32_t* keys, int count, int wanted, int lane,
                                 std::int32_t* ids) {
  LaneBest mine = best_of_lane(keys, count, lane);
#pragma unroll 1
  for (int slot = 0; slot < wanted; ++slot) {
    const std::uint32_t key = __reduce_max_sync(everyone, mine.key);
    const std::uint32_t at = __reduce_min_sync(everyone, mine.key == key ? mine.at : everyone);
    if (mine.at == at) {
      ids[slot] = static_cast<std::int32_t>(at);
      keys[at] = 0;
      mine = best_of_lane(keys, count, lane);
    }
  }
  __syncwarp();
}

__device__ inline float sum_of_lanes(float value) {
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(everyone, value, step);
  return value;
}
__device__ inline float max_of_lanes(float value) {
  return score_of(__reduce_max_sync(everyone, key_of(value)));
}
__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// Keys are read in vec4s.
__host__ __device__ inline int padded(int experts) { return (experts + 3) / 4 * 4; }

// Shared memory of the warp that routes a row.
inline std::size_t row_bytes(const RouteTokens& p) {
  const int id_places = std::max(p.experts_per_token, p.kept_groups);
  return sizeof(std::uint32_t) *
         static_cast<std::size_t>(padded(p.experts) + p.groups + id_places + p.experts_per_token);
}
struct Row {
  std::uint32_t* keys;        // [padded(experts)]
  std::uint32_t* group_keys;  // [groups]
  std::int32_t* ids;          // [max(choices, kept groups)]
  float* weights;             // [choices]
};

// Sets the keys of experts in groups that are not kept to that of -infinity.
__device__ inline void mask_groups(const RouteTokens& p, const Row& row, int lane) {
  if (p.kept_groups == p.groups) return;
  const int size = p.experts / p.groups;
#pragma unroll 1
  for (int group = lane; group < p.groups; group += lanes) {
    float first = -INFINITY;
    float second = -INFINITY;
#pragma unroll 1
    for (int i = 0; i < size; ++i) {
      const float score = score_of(row.keys[group * size + i]);
      if (score > first) {
        second = first;
        first = score;
      } else if (score > second) {
        second = score;
      }
    }
    row.group_keys[group] = key_of(p.group_best == 1 ? first : first + second);
  }
  __syncwarp();
  take_best(row.group_keys, p.groups, p.kept_groups, lane, row.ids);
  const std::uint32_t last = key_of(-INFINITY);
#pragma unroll 1
  for (int at = lane; at < p.experts; at += lanes) {
    if (row.group_keys[at / size] != 0) row.keys[at] = last;
  }
  __syncwarp();
}

// The largest logit that is not NaN, of all experts or of the chosen ones.
__device__ inline float largest_of(const RouteTokens& p, const float* logits, const Row& row,
                                   int lane) {
  // The first choice has it, unless it is in a group that was not kept.
  if (p.scores == RouterScores::chosen_softmax || p.kept_groups == p.groups)
    return score_of(key_of(logits[row.ids[0]]));
  float largest = -INFINITY;
#pragma unroll 1
  for (int at = lane; at < p.experts; at += lanes) {
    if (logits[at] > largest) largest = logits[at];
  }
  return max_of_lanes(largest);
}

// exp(logit - largest) / sum for the chosen ids, over all experts or over the chosen ones.
__device__ inline void softmax_weights(const RouteTokens& p, const float* logits, const Row& row,
                                       float largest, int lane) {
  const bool all = p.scores == RouterScores::softmax;
  const int count = all ? p.experts : p.experts_per_token;
  const auto logit = [&](int at) { return logits[all ? at : row.ids[at]]; };
  float sum = 0;
#pragma unroll 1
  for (int at = lane; at < count; at += lanes) sum += expf(logit(at) - largest);
  sum = sum_of_lanes(sum);
#pragma unroll 1
  for (int slot = lane; slot < p.experts_per_token; slot += lanes)
    row.weights[slot] = expf(logits[row.ids[slot]] - largest) / sum;
}

__device__ inline Row row_at(const RouteTokens& p, std::uint32_t* mine) {
  auto* const ids = reinterpret_cast<std::int32_t*>(mine + padded(p.experts) + p.groups);
  return {.keys = mine,
          .group_keys = mine + padded(p.experts),
          .ids = ids,
          .weights = reinterpret_cast<float*>(ids + max(p.experts_per_token, p.kept_groups))};
}

__device__ inline std::uint32_t choice_key(const RouteTokens& p, const float* logits, int at) {
  if (p.scores != RouterScores::sigmoid) return key_of(logits[at]);
  return key_of(sigmoid(logits[at]) + (p.bias != nullptr ? p.bias[at] : 0.0F));
}

// Computes the weights of the experts in row.ids, and stores ids and weights. One warp calls it.
__device__ inline void weigh(const RouteTokens& p, const float* logits, const Row& row,
                             std::int32_t* ids, float* weights, int lane) {
  if (p.scores == RouterScores::sigmoid) {
#pragma unroll 1
    for (int slot = lane; slot < p.experts_per_token; slot += lanes)
      row.weights[slot] = sigmoid(logits[row.ids[slot]]);
  } else {
    softmax_weights(p, logits, row, largest_of(p, logits, row, lane), lane);
  }
  // Each lane reads only the weights that it wrote.
  float sum = 0;
#pragma unroll 1
  for (int slot = lane; slot < p.experts_per_token; slot += lanes) sum += row.weights[slot];
  sum = p.renormalise ? sum_of_lanes(sum) + p.sum_floor : 1.0F;
#pragma unroll 1
  for (int slot = lane; slot < p.experts_per_token; slot += lanes) {
    weights[slot] = row.weights[slot] / sum * p.scale;
    ids[slot] = row.ids[slot];
  }
}

// What the threads of a row without experts write.
__device__ inline void choose_none(const RouteTokens& p, std::int32_t* ids, float* weights,
                                   int thread, int threads) {
  for (int slot = thread; slot < p.experts_per_token; slot += threads) {
    ids[slot] = -1;
    weights[slot] = 0;
  }
}
__device__ inline bool is_live(const RouteTokens& p, std::int64_t token) {
  return p.live_tokens == nullptr || token < __ldcg(p.live_tokens);
}

// Routes one row by one warp, from its logits and with row_bytes() of shared memory.
__device__ inline void route_row(const RouteTokens& p, const float* logits, std::uint32_t* mine,
                                 std::int32_t* ids, float* weights, int lane) {
  const Row row = row_at(p, mine);
#pragma unroll 1
  for (int at = lane; at < p.experts; at += lanes) row.keys[at] = choice_key(p, logits, at);
  __syncwarp();
  mask_groups(p, row, lane);
  take_best(row.keys, p.experts, p.experts_per_token, lane, row.ids);
  weigh(p, logits, row, ids, weights, lane);
}

// The same by a whole block, with the same bits: an expert's slot is the number of experts before
// it.
__device__ inline void route_row_by_block(const RouteTokens& p, const float* logits,
                                          std::uint32_t* mine, std::int32_t* ids, float* weights) {
  const Row row = row_at(p, mine);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int count = padded(p.experts);
  // 0 orders behind every key.
#pragma unroll 1
  for (int at = thread; at < count; at += threads)
    row.keys[at] = at < p.experts ? choice_key(p, logits, at) : 0;
  __syncthreads();
  if (thread < lanes) mask_groups(p, row, thread);
  if (p.kept_groups != p.groups) __syncthreads();
  // Adjacent threads share an expert: each compares it with some of the others, four at a time.
  constexpr int parts = 4;
  const int part = thread % parts;
  const auto* const vec4s = reinterpret_cast<const uint4*>(row.keys);
#pragma unroll 1
  for (int first = 0; first < p.experts; first += threads / parts) {
    const int own = first + thread / parts;
    const std::uint32_t key = own < p.experts ? row.keys[own] : everyone;
    int before = 0;
#pragma unroll 2
    for (int vec4 = part; vec4 < count / 4; vec4 += parts) {
      const uint4 others = vec4s[vec4];
      const int at = 4 * vec4;
      before += others.x > key || (others.x == key && at < own);
      before += others.y > key || (others.y == key && at + 1 < own);
      before += others.z > key || (others.z == key && at + 2 < own);
      before += others.w > key || (others.w == key && at + 3 < own);
    }
#pragma unroll
    for (int step = 1; step < parts; step *= 2) before += __shfl_xor_sync(everyone, before, step);
    if (part == 0 && own < p.experts && before < p.experts_per_token) row.ids[before] = own;
  }
  __syncthreads();
  if (thread < lanes) weigh(p, logits, row, ids, weights, thread);
}

}  // namespace motley::kernels::cuda::routing
