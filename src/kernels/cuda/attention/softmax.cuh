// The online softmax of a thread's two rows, and the join of two ranges. Every sum and product is
// written out, so that all kernels round in the same way.
#pragma once

#include "kernels/cuda/attention/produce.cuh"

namespace motley::kernels::cuda::tiles {

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A row's softmax so far: the largest score (as a power of two) and the sum of weights.
struct Seen {
  float largest, total;
};

// Joins two ranges: sums * `before` + the other's sums * `after`.
struct Join {
  float before, after;
};

__device__ inline Join join(Seen& seen, const Seen& next) {
  const float largest = fmaxf(seen.largest, next.largest);
  const float least = largest == -INFINITY ? 0.0F : largest;
  const Join factors{power_of_two(seen.largest - least), power_of_two(next.largest - least)};
  seen.total = __fmaf_rn(next.total, factors.after, __fmul_rn(seen.total, factors.before));
  seen.largest = largest;
  return factors;
}
__device__ inline float joined(float sum, float next, const Join& factors) {
  return __fmaf_rn(next, factors.after, __fmul_rn(sum, factors.before));
}

// The state before any position: a sink is a score without a value.
__device__ inline Seen seen_at_first(const TileParams& p, int head) {
  if (p.sinks == nullptr) return {-INFINITY, 0.0F};
  constexpr float log2_e = 1.44269504088896340736F;
  return {__fmul_rn(p.sinks[head], log2_e), 1.0F};
}

// A thread has columns of two packed rows of its warpgroup: row lane / 4 of its warp's 16 rows, and
// the row 8 further.
struct ThreadRows {
  int low[2], end[2];  // range of positions that the rows attend to
  int head[2];
  int row[2];  // in the step, or -1
  Seen seen[2];

  __device__ void begin(const TileParams& p, const Item& item, int first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int packed = first + 8 * r;
      const bool there = packed < item.rows;
      const int token = token_of(p, packed);
      row[r] = there ? item.first_row + token : -1;
      head[r] = item.kv_head * p.group + packed - token * p.group;
      end[r] = there ? item.first_position + token + 1 : 0;
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

// Masks scores of positions that a row does not attend to, behind its end or before its window.
template <int count>
__device__ inline void hide_behind(float (&s)[count], const ThreadRows& rows, int base) {
  const int column = base + 2 * (static_cast<int>(threadIdx.x) % 4);
  const int end[2] = {rows.end[0] - column, rows.end[1] - column};
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (8 * (i / 4) + i % 2 >= end[i / 2 % 2]) s[i] = -INFINITY;
}
template <int count>
__device__ inline void hide_before(float (&s)[count], const ThreadRows& rows, int base) {
  const int column = base + 2 * (static_cast<int>(threadIdx.x) % 4);
  const int low[2] = {rows.low[0] - column, rows.low[1] - column};
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (8 * (i / 4) + i % 2 < low[i / 2 % 2]) s[i] = -INFINITY;
}

// Replaces the scores of a block by weights; `factor` rescales the sums so far. Sums of weights
// cover this thread's columns only; few.cuh sums in the same order with other threads.
template <int count>
__device__ inline void soften(float (&s)[count], ThreadRows& rows, float scale, float slack,
                              float (&factor)[2]) {
  float largest[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float each[2] = {s[2 * r], s[2 * r + 1]};
#pragma unroll
    for (int i = 4; i < count; i += 4) {
      each[0] = fmaxf(each[0], s[i + 2 * r]);
      each[1] = fmaxf(each[1], s[i + 2 * r + 1]);
    }
    largest[r] = fmaxf(each[0], each[1]);
  }
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
#pragma unroll
    for (float& each : largest) each = fmaxf(each, __shfl_xor_sync(0xFFFFFFFF, each, d));
  }
  float least[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float stands = rows.seen[r].largest;
    largest[r] = __fmul_rn(largest[r], scale);
    largest[r] = largest[r] > stands + slack ? largest[r] : stands;
    least[r] = largest[r] == -INFINITY ? 0.0F : largest[r];
    factor[r] = power_of_two(stands - least[r]);
    rows.seen[r].largest = largest[r];
  }
#pragma unroll
  for (int i = 0; i < count; ++i) s[i] = power_of_two(__fmaf_rn(s[i], scale, -least[i / 2 % 2]));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = 0;
#pragma unroll
    for (int first = 0; first < count; first += 32) {
      float part[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* const w = s + first + 2 * r + j;
        part[j] = __fadd_rn(__fadd_rn(__fadd_rn(w[0], w[4]), __fadd_rn(w[8], w[12])),
                            __fadd_rn(__fadd_rn(w[16], w[20]), __fadd_rn(w[24], w[28])));
      }
      const float both = __fadd_rn(part[0], part[1]);
      sum = first == 0 ? both : __fadd_rn(sum, both);
    }
    rows.seen[r].total = __fmaf_rn(rows.seen[r].total, factor[r], sum);
  }
}

// Weights in bf16, as the A operand of products over 16 positions.
template <int count>
__device__ inline void round_weights(const float (&s)[count],
                                     std::uint32_t (&weights)[count / 8][4]) {
#pragma unroll
  for (int i = 0; i < count / 2; ++i) weights[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
}

}  // namespace motley::kernels::cuda::tiles
