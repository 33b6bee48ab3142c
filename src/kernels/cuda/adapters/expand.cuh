// The expand for many rows, by one warp without its block: outputs are the M = 16 side of the MMA,
// rows its N = 8 side, so sums are transposed. A warp has 8 rows and 32 outputs at a time; a lane
// has 4 consecutive outputs of 2 rows.
#pragma once

#include "kernels/cuda/adapters/rank_panels.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int warp_rows = 8;
inline constexpr int warp_outputs = 32;

// The rows and outputs of the warp's tile that a lane holds.
__device__ inline int lane_row(int half) { return 2 * (static_cast<int>(threadIdx.x) % 4) + half; }
__device__ inline int lane_outputs() { return 4 * (static_cast<int>(threadIdx.x) % 32 / 4); }
// The row whose ranks a lane loads.
__device__ inline int lane_rank_row() { return static_cast<int>(threadIdx.x) % 32 / 4; }

// Keeps later loads from being hoisted above this point: registers hold the numbers of one tile,
// not of all.
__device__ inline void keep_order() { asm volatile("" ::: "memory"); }

// Sums a row over the lanes that hold its outputs, by pairs of neighbouring vec4s.
__device__ inline float sum_of_row(float sum) {
#pragma unroll
  for (int step = 16; step >= 4; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  return sum;
}

// 16 ranks of 8 rows, each as three bf16 that add up to the float32. A lane has 4 ranks of one row.
struct RankTile {
  uint2 parts[3];

  // `row`: the lane's own row, at the panel's first rank. Ranks from `ranks` on are zeros.
  __device__ void load(const float* row, bool there, int rank, int ranks) {
    const int own = rank + 4 * (static_cast<int>(threadIdx.x) % 4);
    float4 vec4{0, 0, 0, 0};
    if (there && own < ranks) vec4 = *reinterpret_cast<const float4*>(row + own);
    split_in_three(vec4, parts);
  }
};

// 16 ranks of 32 rows of B. A lane has 4 ranks of each of its 4 outputs.
struct BTile {
  uint2 numbers[4];

  // Where a panel ends after 8 of the 16 ranks, its last 8 are loaded twice: the missing ranks are
  // zeros in rank space.
  template <class FactorType>
  __device__ void load(const FactorEntry& factor, int first_output, int rank) {
    const int own = rank + 4 * (static_cast<int>(threadIdx.x) % 4);
    load_at<FactorType>(factor.b,
                        std::int64_t{first_output + lane_outputs()} * factor.split +
                            (own < factor.split ? own : own - 8),
                        factor.split);
  }
  // A row has `split` ranks; `at` is the index of the lane's first rank in B.
  template <class FactorType>
  __device__ void load_at(const void* b, std::int64_t at, int split) {
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers[i] = vec4_of<FactorType>(b, at + i * split);
  }
};

// 8 rows of 32 floats, staged through shared memory: copied row by row, and swizzled so that lanes
// read their own vec4s without bank conflicts.
struct RowsTile {
  float4 vec4s[warp_rows][warp_outputs / 4];

  // The row of which a lane copies a vec4, by copy.
  static constexpr int copies = 2;
  static __device__ int copied_row(int copy) {
    return 4 * copy + static_cast<int>(threadIdx.x) % 32 / 8;
  }
  static __device__ int copied_output() { return 4 * (static_cast<int>(threadIdx.x) % 8); }
  // `from`: the address of the copied output in that row. `there`: whether the row exists.
  __device__ void copy(int copy, const float* from, bool there) {
    const int row = copied_row(copy);
    copy_16_or_zero(smem_addr(&vec4s[row][place(row, copied_output() / 4)]), from, there);
  }
  // Call after the copies of all lanes have arrived.
  __device__ float4 own(int half) const {
    const int row = lane_row(half);
    return vec4s[row][place(row, lane_outputs() / 4)];
  }

 private:
  static __device__ int place(int row, int vec4) { return vec4 ^ (row & 6); }
};

// sums[p] += outputs 2p and 2p + 1 of a lane's four outputs, each of two rows.
__device__ inline void add_products(float (&sums)[2][4], const BTile& b, const RankTile& ranks) {
#pragma unroll
  for (int part = 2; part >= 0; --part) {
#pragma unroll
    for (int p = 0; p < 2; ++p)
      multiply_add(sums[p], b.numbers[2 * p].x, b.numbers[2 * p + 1].x, b.numbers[2 * p].y,
                   b.numbers[2 * p + 1].y, ranks.parts[part].x, ranks.parts[part].y);
  }
}

// A warp's accumulators: `tiles` x 32 outputs of 8 rows. output(j) is the first output of tile j.
template <int tiles>
struct WarpNumbers {
  float at[tiles][2][4];

  // Applies all passes to rows of one label. `ranks` points at the lane's own row in rank space, if
  // it exists; `first` holds the first 16 ranks of the first pass.
  template <class FactorType, class Output>
  __device__ void adapt(const Passes& passes, const float* ranks, bool there, int out,
                        const Output& output, const RankTile& first) {
    if (passes.count == 1 && passes.all[0].ranks <= 16) {
      // The common case: one adapter of rank 16 or less.
      const Pass& pass = passes.all[0];
      if (pass.factor.split == 16) {
        add_sixteen<FactorType, 16>(pass.factor, out, output, first);
      } else {
        add_sixteen<FactorType, 8>(pass.factor, out, output, first);
      }
      if (pass.scale != 0) add_bias(pass, out, output);
    } else {
#pragma unroll 1
      for (int i = 0; i < passes.count; ++i) {
        const Pass& pass = passes.all[i];
        add_panel<FactorType>(pass, ranks + pass.place, there, out, output);
        if (pass.scale != 0) add_bias(pass, out, output);
      }
    }
    const Finish& finish = passes.finish;
    if (finish.gain == nullptr && finish.bias == nullptr) return;
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        apply<true>(finish, output(j) + lane_outputs(), out, at[j][half]);
      keep_order();
    }
  }

 private:
  using Sums = float[2][4];

  // A factor of at most 16 ranks; `split` includes padding.
  template <class FactorType, int split, class Output>
  __device__ void add_sixteen(const FactorEntry& factor, int out, const Output& output,
                              const RankTile& ranks) {
    const int own = 4 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      BTile b;
      b.template load_at<FactorType>(
          factor.b,
          std::int64_t{output(j) + lane_outputs()} * split + (own < split ? own : own - 8), split);
      Sums sums = {};
      add_products(sums, b, ranks);
      add_sums<FactorType>(factor, output(j), out, sums, at[j]);
    }
  }
  template <class FactorType, class Output>
  __device__ void add_panel(const Pass& pass, const float* ranks, bool there, int out,
                            const Output& output) {
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      Sums sums = {};
#pragma unroll 1
      for (int rank = 0; rank < pass.ranks; rank += 16) {
        RankTile more;
        more.load(ranks, there, rank, pass.ranks);
        BTile b;
        b.template load<FactorType>(pass.factor, output(j), pass.panel + rank);
        add_products(sums, b, more);
      }
      add_sums<FactorType>(pass.factor, output(j), out, sums, at[j]);
    }
  }
  template <class FactorType>
  static __device__ void add_sums(const FactorEntry& factor, int output, int out, const Sums& sums,
                                  Sums& to) {
    const float4 by = b_scales<FactorType, true>(factor, output + lane_outputs(), out);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      add_scaled(to[half], by, sums[0][half], sums[0][2 + half], sums[1][half], sums[1][2 + half]);
  }
  template <class Output>
  __device__ void add_bias(const Pass& pass, int out, const Output& output) {
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const float4 more = load_floats<true>(pass.bias, output(j) + lane_outputs(), out);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_scaled(at[j][half], more, pass.scale, pass.scale, pass.scale, pass.scale);
      keep_order();
    }
  }
};

}  // namespace motley::kernels::cuda::adapter_tiles
