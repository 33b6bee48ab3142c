// Out of rank space for many rows, by a warp alone: outputs on the side of sixteen and rows on the
// side of eight, which are the sums of the other way round. A warp has eight rows, and 32 outputs
// at a time: a lane has four side by side, of two rows.
#pragma once

#include "kernels/cuda/adapters/rank_panels.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int warp_rows = 8;
inline constexpr int warp_outputs = 32;

// Of a warp's rows and outputs those that a lane has.
__device__ inline int lane_row(int half) { return 2 * (static_cast<int>(threadIdx.x) % 4) + half; }
__device__ inline int lane_outputs() { return 4 * (static_cast<int>(threadIdx.x) % 32 / 4); }
// The row whose ranks a lane has.
__device__ inline int lane_rank_row() { return static_cast<int>(threadIdx.x) % 32 / 4; }

// Loads from behind this do not come before it: registers hold a tile's numbers, not all there is.
__device__ inline void keep_order() { asm volatile("" ::: "memory"); }

// A row of a warp's, summed over the lanes that have its outputs, in pairs of neighbours' vec4s.
__device__ inline float sum_of_row(float sum) {
#pragma unroll
  for (int step = 16; step >= 4; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  return sum;
}

// Sixteen ranks of eight rows, as three bf16 that add up to the float32: a lane has four of a row.
struct RankTile {
  uint2 parts[3];

  // `row`: the lane's own, at the panel's first rank, whose ranks are zeros from `ranks` on.
  __device__ void load(const float* row, bool there, int rank, int ranks) {
    const int own = rank + 4 * (static_cast<int>(threadIdx.x) % 4);
    float4 vec4{0, 0, 0, 0};
    if (there && own < ranks) vec4 = *reinterpret_cast<const float4*>(row + own);
    split_in_three(vec4, parts);
  }
};

// Sixteen ranks of 32 rows of B: a lane has four of the four rows whose outputs it has.
struct BTile {
  uint2 numbers[4];

  // Where a panel ends in the middle of sixteen ranks, its last ones stand for those that are not
  // there: those are zeros in rank space.
  template <class FactorType>
  __device__ void load(const FactorEntry& factor, int first_output, int rank) {
    const int own = rank + 4 * (static_cast<int>(threadIdx.x) % 4);
    load_at<FactorType>(factor.b,
                        std::int64_t{first_output + lane_outputs()} * factor.split +
                            (own < factor.split ? own : own - 8),
                        factor.split);
  }
  // A row has `split` ranks, the lane's first of this one being number `at` of them all.
  template <class FactorType>
  __device__ void load_at(const void* b, std::int64_t at, int split) {
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers[i] = vec4_of<FactorType>(b, at + i * split);
  }
};

// Eight rows of 32 floats on their way through shared memory: they come a row after the other, and
// stand so that lanes that read their own vec4s meet no bank twice.
struct RowsTile {
  float4 vec4s[warp_rows][warp_outputs / 4];

  // Of a lane's copies, the row that it has a vec4 of.
  static constexpr int copies = 2;
  static __device__ int copied_row(int copy) {
    return 4 * copy + static_cast<int>(threadIdx.x) % 32 / 8;
  }
  static __device__ int copied_output() { return 4 * (static_cast<int>(threadIdx.x) % 8); }
  // `from`: where the copied output of that row is, if it is there.
  __device__ void copy(int copy, const float* from, bool there) {
    const int row = copied_row(copy);
    copy_16_or_zero(smem_addr(&vec4s[row][place(row, copied_output() / 4)]), from, there);
  }
  // When all lanes' copies have come.
  __device__ float4 own(int half) const {
    const int row = lane_row(half);
    return vec4s[row][place(row, lane_outputs() / 4)];
  }

 private:
  static __device__ int place(int row, int vec4) { return vec4 ^ (row & 6); }
};

// sums[p] += outputs 2 p and 2 p + 1 of a lane's four, each of two rows.
__device__ inline void add_products(float (&sums)[2][4], const BTile& b, const RankTile& ranks) {
#pragma unroll
  for (int part = 2; part >= 0; --part) {
#pragma unroll
    for (int p = 0; p < 2; ++p)
      multiply_add(sums[p], b.numbers[2 * p].x, b.numbers[2 * p + 1].x, b.numbers[2 * p].y,
                   b.numbers[2 * p + 1].y, ranks.parts[part].x, ranks.parts[part].y);
  }
}

// A warp's numbers, `tiles` times 32 outputs of eight rows; output(j) is the first of a tile's.
template <int tiles>
struct WarpNumbers {
  float at[tiles][2][4];

  // All that is done to rows of one label. `ranks` are those of the lane's own row in rank space,
  // if it is there, and `first` the first pass's first sixteen.
  template <class FactorType, class Output>
  __device__ void adapt(const Passes& passes, const float* ranks, bool there, int out,
                        const Output& output, const RankTile& first) {
    if (passes.count == 1 && passes.all[0].ranks <= 16) {
      // As most adapters are.
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
        finish.apply<true>(output(j) + lane_outputs(), out, at[j][half]);
      keep_order();
    }
  }

 private:
  using Sums = float[2][4];

  // A factor of at most sixteen ranks, `split` with those that fill it up.
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
