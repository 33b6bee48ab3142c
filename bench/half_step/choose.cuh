// A row's experts.
#pragma once

#include "kernels/cuda/primitives/warp.cuh"
#include "pipeline.cuh"

namespace motley::bench::HALF_STEP_NAMESPACE {

constexpr unsigned all_lanes = 0xFFFFFFFF;
constexpr int lane_logits = experts / 32;  // lane l has those of experts lane_logits l and on
constexpr int live_words = (all_experts + 31) / 32;

// Which experts each row has, and all of them: the shared one, then the others in ascending order.
// A row's slots are its chosen experts in ascending order, then the shared one.
template <int rows>
struct Choice {
  static constexpr int max_live = rows * chosen + shared_experts;
  float weights[rows][taken];
  signed char slots[rows][all_experts];  // of an expert among the row's, or -1
  std::uint32_t live[live_words];
  std::uint32_t ranks[consumer_warps][32];  // partial ranks of a lane's experts, a byte each
  int count;
  int list[max_live];
};

// Integers in the order of the logits; NaN is last; never 0, never the largest integer.
__device__ inline std::uint32_t key_of(std::uint32_t bits) {
  if ((bits & 0x7FFFFFFF) > 0x7F800000) bits = 0xFF800000;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float score_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

struct Keys {
  std::uint32_t of[lane_logits];
};
// Waits for a row's logits.
__device__ inline Keys read_keys(const std::uint32_t* logits, int lane, int pause_ns,
                                 Watch& watch) {
  uint4 v[lane_logits / 4];
  read_cells(v, reinterpret_cast<const uint4*>(logits) + lane * (lane_logits / 4), 1, pause_ns,
             watch, Place::logits, [](int, const uint4& words) { return is_written(words); });
  Keys keys;
#pragma unroll
  for (int i = 0; i < lane_logits / 4; ++i) {
    keys.of[4 * i] = key_of(v[i].x);
    keys.of[4 * i + 1] = key_of(v[i].y);
    keys.of[4 * i + 2] = key_of(v[i].z);
    keys.of[4 * i + 3] = key_of(v[i].w);
  }
  return keys;
}

// ---- several rows: a warp chooses for a row, the best one after the other ----
// A bit for each of the lane's experts that is chosen.
__device__ inline std::uint32_t take_best(Keys keys, int lane) {
  std::uint32_t taken_bits = 0;
#pragma unroll
  for (int n = 0; n < chosen; ++n) {
    std::uint32_t mine = keys.of[0];
#pragma unroll
    for (int i = 1; i < lane_logits; ++i) mine = max(mine, keys.of[i]);
    const std::uint32_t best = __reduce_max_sync(all_lanes, mine);
    const unsigned lanes = __ballot_sync(all_lanes, mine == best);
    bool free = lane == __ffs(static_cast<int>(lanes)) - 1;
#pragma unroll
    for (int i = 0; i < lane_logits; ++i) {
      const bool now = free && keys.of[i] == best;
      if (now) keys.of[i] = 0;
      if (now) taken_bits |= 1U << i;
      free = free && !now;
    }
  }
  return taken_bits;
}

// ---- one row: all warps count for each expert those that are better ----
// How many of the experts of four lanes are better, a byte for each of this lane's experts.
__device__ inline std::uint32_t count_better(const Keys& keys, int warp, int lane) {
  static_assert(lane_logits == 4 || lane_logits == 8);
  constexpr int lanes = 32 / consumer_warps;
  std::uint32_t counts = 0;
#pragma unroll
  for (int s = 0; s < lanes; ++s) {
    const int other = warp * lanes + s;
#pragma unroll
    for (int j = 0; j < lane_logits; ++j) {
      const std::uint32_t key = __shfl_sync(all_lanes, keys.of[j], other);
      const std::uint32_t before = key + (other < lane ? 1 : 0);  // of equals the first is better
      const std::uint32_t before_or_same = key + (other <= lane ? 1 : 0);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        counts += ((j < i ? before_or_same : before) > keys.of[i] ? 1U : 0U) << 8 * i;
    }
  }
  return counts;
}
__device__ inline std::uint32_t best_by_counts(std::uint32_t counts) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if ((counts >> 8 * i & 0xFF) < chosen) bits |= 1U << i;
  }
  return bits;
}

// The number of chosen experts before the lane's first one. By a whole warp.
__device__ inline int chosen_before(std::uint32_t bits, int lane) {
  int before = 0;
#pragma unroll
  for (int i = 0; i < lane_logits; ++i)
    before += __popc(__ballot_sync(all_lanes, (bits >> i & 1) != 0) & ((1U << lane) - 1));
  return before;
}

// Writes a row's slots, and of a single row the list.
template <int rows>
__device__ void write_slots(Choice<rows>& choice, std::uint32_t bits, int row, int lane) {
  int slot = chosen_before(bits, lane);
#pragma unroll
  for (int i = 0; i < lane_logits; ++i) {
    if ((bits >> i & 1) == 0) continue;
    const int id = lane * lane_logits + i;
    choice.slots[row][id] = static_cast<signed char>(slot);
    if constexpr (rows == 1) {
      choice.list[shared_experts + slot] = id;
    } else {
      atomicOr(choice.live + id / 32, 1U << id % 32);
    }
    ++slot;
  }
  if (lane != 0) return;
  if (shared_experts != 0) choice.slots[row][all_experts - 1] = taken - 1;
  if (rows == 1) choice.count = taken;
}
// The weights of a row's slots; `gate` is the shared expert's logit.
template <int rows>
__device__ void write_weights(Choice<rows>& choice, const Keys& keys, std::uint32_t bits, int row,
                              int lane, float gate) {
  std::uint32_t mine = keys.of[0];
#pragma unroll
  for (int i = 1; i < lane_logits; ++i) mine = max(mine, keys.of[i]);
  const float best = score_of(__reduce_max_sync(all_lanes, mine));
  float weights[lane_logits];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < lane_logits; ++i) {
    weights[i] = (bits >> i & 1) != 0 ? __expf(score_of(keys.of[i]) - best) : 0.0F;
    sum += weights[i];
  }
  sum = kernels::cuda::warp_sum(sum);
  int slot = chosen_before(bits, lane);
#pragma unroll
  for (int i = 0; i < lane_logits; ++i) {
    if ((bits >> i & 1) != 0) choice.weights[row][slot++] = weights[i] / sum;
  }
  if (shared_experts != 0 && lane == 0)
    choice.weights[row][taken - 1] = 1.0F / (1.0F + __expf(-gate));
}

// The list of several rows' experts, by `consumers` threads.
template <int rows>
__device__ void write_list(Choice<rows>& choice, int thread) {
  if (thread >= experts) return;
  int before = shared_experts;
  for (int word = 0; word < thread / 32; ++word) before += __popc(choice.live[word]);
  const std::uint32_t word = choice.live[thread / 32];
  before += __popc(word & ((1U << thread % 32) - 1));
  const bool is_live = (word >> thread % 32 & 1) != 0;
  if (is_live) choice.list[before] = thread;
  if (thread == experts - 1) choice.count = before + (is_live ? 1 : 0);
}

}  // namespace motley::bench::HALF_STEP_NAMESPACE
