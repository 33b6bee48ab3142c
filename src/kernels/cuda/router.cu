#include "base/check.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/router.h"
#include "kernels/cuda/status.h"

namespace motley::kernels::cuda {
namespace {

constexpr int lanes = 32;
constexpr int rows_per_block = 4;  // a warp each
constexpr unsigned everyone = 0xFFFFFFFFU;

// Numbers whose order as integers is the order of choice: NaN and -infinity last, -0 equals +0.
// Never 0, which stands for what has been taken.
__device__ std::uint32_t key_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const std::uint32_t bits = __float_as_uint(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ float score_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

struct LaneBest {
  std::uint32_t key = 0;
  std::uint32_t at = everyone;
};

// The best of a lane's own entries: lane, lane + 32, ...
__device__ LaneBest best_of_lane(const std::uint32_t* keys, int count, int lane) {
  LaneBest best;
  for (int at = lane; at < count; at += lanes) {
    if (keys[at] > best.key) best = {keys[at], static_cast<std::uint32_t>(at)};
  }
  return best;
}

// Takes the `wanted` best of count keys, best first; the keys taken become 0.
__device__ void take_best(std::uint32_t* keys, int count, int wanted, int lane, std::int32_t* ids) {
  LaneBest mine = best_of_lane(keys, count, lane);
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

__device__ float sum_of_lanes(float value) {
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(everyone, value, step);
  return value;
}
__device__ float max_of_lanes(float value) {
  return score_of(__reduce_max_sync(everyone, key_of(value)));
}
__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// Shared memory of a row.
struct Row {
  std::uint32_t* keys;        // [experts]
  std::uint32_t* group_keys;  // [groups]
  std::int32_t* ids;          // [max(choices, kept groups)]
};

// Makes the keys of experts in groups that are not kept those of -infinity.
__device__ void mask_groups(const RouteTokens& p, const Row& row, int lane) {
  if (p.kept_groups == p.groups) return;
  const int size = p.experts / p.groups;
  for (int group = lane; group < p.groups; group += lanes) {
    float first = -INFINITY;
    float second = -INFINITY;
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
  for (int at = lane; at < p.experts; at += lanes) {
    if (row.group_keys[at / size] != 0) row.keys[at] = last;
  }
  __syncwarp();
}

// exp(logit - largest) / sum at the chosen ids, over all experts or the chosen ones.
__device__ void softmax_weights(const RouteTokens& p, const float* logits, const Row& row,
                                float* weights, int lane) {
  const bool all = p.scores == RouterScores::softmax;
  const int count = all ? p.experts : p.experts_per_token;
  const auto logit = [&](int at) { return logits[all ? at : row.ids[at]]; };
  float largest = -INFINITY;
  for (int at = lane; at < count; at += lanes) {
    if (logit(at) > largest) largest = logit(at);
  }
  largest = max_of_lanes(largest);
  float sum = 0;
  for (int at = lane; at < count; at += lanes) sum += expf(logit(at) - largest);
  sum = sum_of_lanes(sum);
  for (int slot = lane; slot < p.experts_per_token; slot += lanes)
    weights[slot] = expf(logits[row.ids[slot]] - largest) / sum;
}

__global__ void __launch_bounds__(rows_per_block* lanes) route_rows(RouteTokens p) {
  extern __shared__ std::uint32_t shared[];
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int warp = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t token = std::int64_t{blockIdx.x} * rows_per_block + warp;
  launch_dependents();
  wait_for_previous_grid();
  if (token >= p.tokens) return;

  const int id_places = max(p.experts_per_token, p.kept_groups);
  std::uint32_t* const mine = shared + warp * (p.experts + p.groups + id_places);
  const Row row{.keys = mine,
                .group_keys = mine + p.experts,
                .ids = reinterpret_cast<std::int32_t*>(mine + p.experts + p.groups)};
  const float* const logits = p.logits + token * p.experts;
  float* const weights = p.weights + token * p.experts_per_token;
  const bool is_sigmoid = p.scores == RouterScores::sigmoid;

  for (int at = lane; at < p.experts; at += lanes) {
    const float bias = is_sigmoid && p.bias != nullptr ? p.bias[at] : 0.0F;
    row.keys[at] = key_of(is_sigmoid ? sigmoid(logits[at]) + bias : logits[at]);
  }
  __syncwarp();
  mask_groups(p, row, lane);
  take_best(row.keys, p.experts, p.experts_per_token, lane, row.ids);
  if (is_sigmoid) {
    for (int slot = lane; slot < p.experts_per_token; slot += lanes)
      weights[slot] = sigmoid(logits[row.ids[slot]]);
  } else {
    softmax_weights(p, logits, row, weights, lane);
  }
  // Each lane goes on with the weights that it wrote.
  float sum = 0;
  for (int slot = lane; slot < p.experts_per_token; slot += lanes) sum += weights[slot];
  sum = p.renormalise ? sum_of_lanes(sum) + p.sum_floor : 1.0F;
  for (int slot = lane; slot < p.experts_per_token; slot += lanes) {
    weights[slot] = weights[slot] / sum * p.scale;
    p.ids[token * p.experts_per_token + slot] = row.ids[slot];
  }
}

}  // namespace

void route(const RouteTokens& params, StreamHandle stream) {
  MOTLEY_CHECK(params.experts >= 1 && params.experts <= max_routed_experts, "experts");
  MOTLEY_CHECK(params.experts_per_token >= 1 && params.experts_per_token <= params.experts &&
                   params.experts_per_token <= max_routed_choices,
               "choices");
  MOTLEY_CHECK(params.groups >= 1 && params.experts % params.groups == 0 &&
                   params.kept_groups >= 1 && params.kept_groups <= params.groups,
               "groups");
  const int id_places = std::max(params.experts_per_token, params.kept_groups);
  const LaunchShape shape{
      .grid = static_cast<unsigned>((params.tokens + rows_per_block - 1) / rows_per_block),
      .threads = rows_per_block * lanes,
      .shared_bytes = sizeof(std::uint32_t) * rows_per_block *
                      static_cast<std::size_t>(params.experts + params.groups + id_places)};
  keep_error(launch("route", route_rows, shape, stream, params));
}

}  // namespace motley::kernels::cuda
