// A warp's products of stages of weights. Warps split k, in slices of down the rows; each has the
// same part of a matrix whatever the batch is, so a row's sums do not depend on other rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/tensor_core.cuh"
#include "shape.h"

namespace motley::bench::HALF_STEP_NAMESPACE {

struct Lane {
  int warp;
  int lane;
  __device__ int group() const { return lane / 4; }
  __device__ int quad() const { return lane % 4; }
};

// Accumulators of even and odd tiles: two chains of products.
struct Sums {
  float even[4] = {};
  float odd[4] = {};
  __device__ float at(int i) const { return even[i] + odd[i]; }
};

template <int count>
using Stages = const unsigned char* [count];

// The inputs of a tile's k for the tensor core; zeros in the columns that have no row.
struct Inputs {
  const Bf16* row;  // of the lane, at its k; null: none
  __device__ uint2 operator()(int at) const {
    return row == nullptr ? uint2{} : *reinterpret_cast<const uint2*>(row + tile * at);
  }
};

// The compiler moves no load from after it to before it: fewer registers.
__device__ inline void keep_order() { asm volatile("" ::: "memory"); }

__device__ inline void multiply_tile(float (&d)[4], const uint4& a, const uint2& b) {
  kernels::cuda::multiply_add(d, a.x, a.y, a.z, a.w, b.x, b.y);
}

// `count` tiles of a stage; `input(i)` is that of the warp's tile i.
template <int count, class Input>
__device__ void multiply_bf16(const unsigned char* stage, const Input& input, const Lane& l,
                              Sums& sums) {
  const uint4* const a = reinterpret_cast<const uint4*>(stage) + l.warp * count * 32 + l.lane;
#pragma unroll
  for (int i = 0; i < count; ++i)
    multiply_tile(i % 2 == 0 ? sums.even : sums.odd, a[32 * i], input(i));
}
// A stage of 8 rows x 1024 k. The other 8 rows of the tensor core's operand are zero.
template <class Input>
__device__ void multiply_unit(const unsigned char* stage, const Input& input, const Lane& l,
                              Sums& sums) {
  const uint4* const a = reinterpret_cast<const uint4*>(stage) + l.lane;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 v = a[32 * (4 * l.warp + i)];
    multiply_tile(sums.even, {v.x, 0, v.y, 0}, input(2 * i));
    multiply_tile(sums.odd, {v.z, 0, v.w, 0}, input(2 * i + 1));
  }
}

// The two numbers of nibbles j and j + 4, minus 8: exact in bf16.
__device__ inline std::uint32_t decode_pair(std::uint32_t word, int j) {
  std::uint32_t pair;
  asm("lop3.b32 %0, %1, 0x000F000F, 0x43004300, 0xEA;" : "=r"(pair) : "r"(word >> 4 * j));
  const __nv_bfloat162 numbers = *reinterpret_cast<const __nv_bfloat162*>(&pair);
  const __nv_bfloat162 zero = __float2bfloat162_rn(136.0F);
  const __nv_bfloat162 difference = __hsub2(numbers, zero);
  return *reinterpret_cast<const std::uint32_t*>(&difference);
}
__device__ inline uint4 decode(std::uint32_t word) {
  return {decode_pair(word, 0), decode_pair(word, 1), decode_pair(word, 2), decode_pair(word, 3)};
}

// What a block's slices have added to each output so far: of a warp's 16 row tiles, those
// accumulators of the tensor core that belong to a row of the batch.
template <int rows>
struct Parts {
  static constexpr int of_tile = rows == 1 ? 2 : 4;
  float v[warp_tiles][of_tile] = {};
  // Accumulator i of a tile: output row group + 8 (i / 2), batch row 2 quad + i % 2.
  __device__ void add(int at, const float (&d)[4], const float (&weights)[2], float low,
                      float high) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (rows == 1 && i % 2 == 1) continue;
      float& to = v[at][rows == 1 ? i / 2 : i];
      to = fmaf(weights[i % 2] * (i < 2 ? low : high), d[i], to);
    }
  }
};

template <class Format>
struct ExpertProducts;

template <>
struct ExpertProducts<Bf16Experts> {
  using F = Bf16Experts;
  // Tile of the inner inputs that is number i of the warp's in down.
  __device__ static int down_tile(int warp, int i) {
    constexpr int step = slices / F::down_stages / consumer_warps;
    return i / step * (slices / F::down_stages) + step * warp + i % step;
  }
  __device__ static void down(const Stages<F::down_stages>& stages, const uint2* x, const Lane& l,
                              Sums& sums) {
    constexpr int step = slices / F::down_stages / consumer_warps;
#pragma unroll
    for (int i = 0; i < F::down_stages; ++i)
      multiply_bf16<step>(
          stages[i], [&](int k) { return x[step * i + k]; }, l, sums);
  }
  static constexpr int slice_tiles = warp_tiles / F::slice_stages;  // of a warp in a stage
  __device__ static int slice_tile(int warp, int at) {
    return (at / slice_tiles * consumer_warps + warp) * slice_tiles + at % slice_tiles;
  }
  template <int rows>
  __device__ static void slice(const unsigned char* data, int stage, const uint2& x,
                               const float (&weights)[2], const Lane& l, Parts<rows>& parts) {
    const uint4* const a =
        reinterpret_cast<const uint4*>(data) + l.warp * slice_tiles * 32 + l.lane;
    keep_order();
#pragma unroll
    for (int i = 0; i < slice_tiles; ++i) {
      float d[4] = {};
      multiply_tile(d, a[32 * i], x);
      parts.add(stage * slice_tiles + i, d, weights, 1, 1);
    }
  }
};

template <>
struct ExpertProducts<Int4Experts> {
  using F = Int4Experts;
  // One step of each group in down.
  __device__ static int down_tile(int warp, int i) { return i * F::group_steps + warp; }

  __device__ static void add_scaled(const Sums& of_group, const unsigned char* group, const Lane& l,
                                    Sums& sums) {
    const float* const scales = reinterpret_cast<const float*>(group + F::group_codes);
    const float low = scales[l.group()];
    const float high = scales[l.group() + 8];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums.even[i] = fmaf(of_group.at(i), i < 2 ? low : high, sums.even[i]);
  }
  // `count` row tiles, a stage each; a warp has two whole groups.
  template <int count>
  __device__ static void gate_up(const Stages<count>& stages, const Inputs& x, const Lane& l,
                                 Sums (&sums)[count]) {
    // Not unrolled: two blocks on a multiprocessor leave 96 registers a thread.
#pragma unroll 1
    for (int i = 0; i < hidden / F::group / consumer_warps; ++i) {
      const int at = i * consumer_warps + l.warp;
      Sums of_group[count];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4 words[count];
#pragma unroll
        for (int n = 0; n < count; ++n)
          words[n] =
              reinterpret_cast<const uint4*>(stages[n] + at * F::group_bytes)[32 * half + l.lane];
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const uint2 b = x(at * F::group_steps + 4 * half + s);
#pragma unroll
          for (int n = 0; n < count; ++n) {
            const std::uint32_t word = s == 0   ? words[n].x
                                       : s == 1 ? words[n].y
                                       : s == 2 ? words[n].z
                                                : words[n].w;
            multiply_tile(s % 2 == 0 ? of_group[n].even : of_group[n].odd, decode(word), b);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < count; ++n)
        add_scaled(of_group[n], stages[n] + at * F::group_bytes, l, sums[n]);
    }
  }
  __device__ static void down(const Stages<F::down_stages>& stages, const uint2* x, const Lane& l,
                              Sums& sums) {
#pragma unroll
    for (int i = 0; i < inner / F::group; ++i) {
      const unsigned char* const group = stages[0] + i * F::group_bytes;
      const std::uint32_t word =
          reinterpret_cast<const std::uint32_t*>(group)[32 * l.warp + l.lane];
      Sums of_group;
      multiply_tile(of_group.even, decode(word), x[i]);
      add_scaled(of_group, group, l, sums);
    }
  }
  static constexpr int slice_tiles = F::slice_tiles / consumer_warps;  // of a warp in a stage
  __device__ static int slice_tile(int warp, int at) {
    return (at / slice_tiles * consumer_warps + warp) * slice_tiles + at % slice_tiles;
  }
  // A lane's words of four tiles lie side by side, and a row's scales of all of the warp's tiles.
  template <int rows>
  __device__ static void slice(const unsigned char* data, int stage, const uint2& x,
                               const float (&weights)[2], const Lane& l, Parts<rows>& parts) {
    const uint4* const a = reinterpret_cast<const uint4*>(data) + l.warp * 64 + l.lane;
    const uint4* const s =
        reinterpret_cast<const uint4*>(data + F::slice_codes) + (l.warp * 8 + l.group()) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keep_order();
      const uint4 four = a[32 * half];
      const uint4 scales = s[half];
      const std::uint32_t words[] = {four.x, four.y, four.z, four.w};
      const std::uint32_t pairs[] = {scales.x, scales.y, scales.z, scales.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float d[4] = {};
        multiply_tile(d, decode(words[i]), x);
        parts.add(stage * slice_tiles + 4 * half + i, d, weights, __uint_as_float(pairs[i] << 16),
                  __uint_as_float(pairs[i] & 0xFFFF0000));
      }
    }
  }
};

}  // namespace motley::bench::HALF_STEP_NAMESPACE
