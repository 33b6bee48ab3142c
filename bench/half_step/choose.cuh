// A row's experts, by one warp.
#pragma once

#include "kernels/cuda/primitives/warp.cuh"
#include "producer.cuh"

namespace motley::bench::half_step {

constexpr unsigned all_lanes = 0xFFFFFFFF;

// Integers in the order of the logits; NaN is last; never 0.
__device__ inline std::uint32_t key_of(std::uint32_t bits) {
  if ((bits & 0x7FFFFFFF) > 0x7F800000) bits = 0xFF800000;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float score_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

// Lane l of the first `chosen` holds choice number l, best first.
struct Best {
  int id = 0;
  float score = 0;
};
// A lane has the logits of experts 4 lane ... 4 lane + 3.
__device__ inline Best take_best(const uint4& logits, int lane) {
  std::uint32_t keys[] = {key_of(logits.x), key_of(logits.y), key_of(logits.z), key_of(logits.w)};
  Best best;
#pragma unroll
  for (int slot = 0; slot < chosen; ++slot) {
    const std::uint32_t mine = max(max(keys[0], keys[1]), max(keys[2], keys[3]));
    const std::uint32_t key = __reduce_max_sync(all_lanes, mine);
    std::uint32_t at = all_lanes;
#pragma unroll
    for (int i = 3; i >= 0; --i) {
      if (keys[i] == key) at = static_cast<std::uint32_t>(4 * lane + i);
    }
    const std::uint32_t id = __reduce_min_sync(all_lanes, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (id == static_cast<std::uint32_t>(4 * lane + i)) keys[i] = 0;
    }
    if (lane == slot) best = {static_cast<int>(id), score_of(key)};
  }
  return best;
}

// Writes a row's choice; of a single row the list too.
template <int rows>
__device__ void write_choice(Choice<rows>& choice, const Best& best, int row, int lane) {
  const float first = __shfl_sync(all_lanes, best.score, 0);
  const bool has = lane < chosen;
  const float weight = has ? __expf(best.score - first) : 0.0F;
  const float sum = kernels::cuda::warp_sum(weight);
  if (has) {
    choice.weights[row][lane] = weight / sum;
    choice.slots[row][best.id] = static_cast<signed char>(lane);
  }
  if constexpr (rows == 1) {
    int rank = 0;
#pragma unroll
    for (int i = 0; i < chosen; ++i) {
      if (__shfl_sync(all_lanes, best.id, i) < best.id) ++rank;
    }
    if (has) choice.list[rank] = best.id;
    if (lane == 0) choice.count = chosen;
  } else {
    if (has) atomicOr(choice.live + best.id / 32, 1U << best.id % 32);
  }
}

// The list of several rows' experts, by at least `experts` threads.
template <int rows>
__device__ void write_list(Choice<rows>& choice, int thread) {
  if (thread >= experts) return;
  int before = 0;
  for (int word = 0; word < thread / 32; ++word) before += __popc(choice.live[word]);
  const std::uint32_t word = choice.live[thread / 32];
  before += __popc(word & ((1U << thread % 32) - 1));
  const bool is_live = (word >> thread % 32 & 1) != 0;
  if (is_live) choice.list[before] = thread;
  if (thread == experts - 1) choice.count = before + (is_live ? 1 : 0);
}

}  // namespace motley::bench::half_step
