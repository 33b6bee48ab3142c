// The running softmax of a thread's two rows, and how its stretches are put together. Every sum and
// product is written out, so that all kernels round alike.
#pragma once

#include "kernels/cuda/attention/produce.cuh"

namespace motley::kernels::cuda::tiles {

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a row's softmax has seen: the largest score (in powers of two) and the sum of weights.
struct Seen {
  float most, total;
};

// How two stretches are put together: sums times `before` + the other's times `after`.
struct Join {
  float before, after;
};

__device__ inline Join join(Seen& seen, const Seen& next) {
  const float most = fmaxf(seen.most, next.most);
  const float least = most == -INFINITY ? 0.0F : most;
  const Join factors{power_of_two(seen.most - least), power_of_two(next.most - least)};
  seen.total = __fmaf_rn(next.total, factors.after, __fmul_rn(seen.total, factors.before));
  seen.most = most;
  return factors;
}
__device__ inline float joined(float sum, float next, const Join& factors) {
  return __fmaf_rn(next, factors.after, __fmul_rn(sum, factors.before));
}

// Before any position: a sink is a score without a value.
__device__ inline Seen seen_at_first(const TileParams& p, int head) {
  if (p.sinks == nullptr) return {-INFINITY, 0.0F};
  constexpr float log2_e = 1.44269504088896340736F;
  return {__fmul_rn(p.sinks[head], log2_e), 1.0F};
}

// A thread holds columns of two packed rows of its warpgroup: lane / 4 of its warp's sixteen, and 8
// further.
struct ThreadRows {
  int low[2], end[2];  // positions that the rows attend to
  int head[2];
  int row[2];  // of the step, or -1
  Seen seen[2];

  __device__ void begin(const TileParams& p, const Item& item, int first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int packed = first + 8 * r;
      const bool there = packed < item.rows;
      const int token = token_of(p, packed);
      row[r] = there ? item.first_row + token : -1;
      head[r] = item.kv_head * p.group + packed - token * p.group;
      end[r] = there ? p.positions[row[r]] + 1 : 0;
      low[r] = p.window > 0 ? end[r] - p.window : 0;
    }
    restart();
  }
  __device__ void restart() { seen[0] = seen[1] = {-INFINITY, 0.0F}; }
};

__device__ inline float over_quad(float x) {
  x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
  return __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
}

// Scores of a block become weights; `factor` is for what stands so far. `cut`: some of the block's
// positions are not for all rows. Sums of weights are this thread's columns' only.
__device__ inline void soften(float (&s)[32], ThreadRows& rows, int base, float scale, bool cut,
                              float (&factor)[2]) {
  if (cut) {
    const int column = base + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int position = column + 8 * (i / 4) + i % 2;
      const int r = i / 2 % 2;
      if (position >= rows.end[r] || position < rows.low[r]) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = fmaxf(s[2 * r], s[2 * r + 1]);
#pragma unroll
    for (int i = 4; i < 32; i += 4) most = fmaxf(most, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
    most = fmaxf(rows.seen[r].most, __fmul_rn(most, scale));
    const float least = most == -INFINITY ? 0.0F : most;
    factor[r] = power_of_two(rows.seen[r].most - least);
    rows.seen[r].most = most;
    float total = __fmul_rn(rows.seen[r].total, factor[r]);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
#pragma unroll
      for (int j = 2 * r; j < 2 * r + 2; ++j) {
        s[i + j] = power_of_two(__fmaf_rn(s[i + j], scale, -least));
        total = __fadd_rn(total, s[i + j]);
      }
    }
    rows.seen[r].total = total;
  }
}

// Weights in bf16, as the first operand of four products.
__device__ inline void round_weights(const float (&s)[32], std::uint32_t (&weights)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) weights[k][j] = pack(s[8 * k + 2 * j], s[8 * k + 2 * j + 1]);
  }
}

}  // namespace motley::kernels::cuda::tiles
