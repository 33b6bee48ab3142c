// A warp's products of a stage of weights. Warps split k; each has the same k of a matrix whatever
// the batch is, so a row's sums do not depend on other rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/tensor_core.cuh"
#include "shape.h"

namespace motley::bench::half_step {

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

__device__ inline void multiply_tile(float (&d)[4], const uint4& a, const uint2& b) {
  kernels::cuda::multiply_add(d, a.x, a.y, a.z, a.w, b.x, b.y);
}

// `count` tiles of a stage; `x` holds the warp's inputs of them.
template <int count>
__device__ void multiply_bf16(const unsigned char* stage, const uint2* x, const Lane& l,
                              Sums& sums) {
  const uint4* const a = reinterpret_cast<const uint4*>(stage) + l.warp * count * 32 + l.lane;
#pragma unroll
  for (int i = 0; i < count; ++i) multiply_tile(i % 2 == 0 ? sums.even : sums.odd, a[32 * i], x[i]);
}
// A stage of 8 rows x 1024 k. The other 8 rows of the tensor core's operand are zero.
__device__ inline void multiply_unit(const unsigned char* stage, const uint2* x, const Lane& l,
                                     Sums& sums) {
  const uint4* const a = reinterpret_cast<const uint4*>(stage) + l.lane;
#pragma unroll
  for (int chunk = 0; chunk < 2; ++chunk) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 v = a[32 * (chunk * stage_tiles / 2 + 2 * l.warp + i)];
      const uint2* const b = x + 4 * chunk + 2 * i;
      multiply_tile(sums.even, {v.x, 0, v.y, 0}, b[0]);
      multiply_tile(sums.odd, {v.z, 0, v.w, 0}, b[1]);
    }
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

// Which tile of `hidden` inputs is number i of the warp's 16 in gate_up; and of the inner inputs in
// down, where the warp has 6 of an expert.
template <class Format>
struct ExpertProducts;

template <>
struct ExpertProducts<Bf16Experts> {
  __device__ static int gate_up_tile(int warp, int i) {
    return i / 4 * stage_tiles + 4 * warp + i % 4;
  }
  __device__ static int down_tile(int warp, int i) {
    return i / 3 * (inner / tile / 2) + 3 * warp + i % 3;
  }
  __device__ static void gate_up(const unsigned char* stage, const uint2* x, const Lane& l,
                                 Sums& sums) {
    multiply_bf16<4>(stage, x, l, sums);
  }
  __device__ static void down(const unsigned char* stage, const uint2* x, const Lane& l,
                              Sums& sums) {
    multiply_bf16<3>(stage, x, l, sums);
  }
  static constexpr int gate_up_step = 4;  // tiles of a warp in a stage
  static constexpr int down_step = 3;
};

template <>
struct ExpertProducts<Int4Experts> {
  using F = Int4Experts;
  // Two whole groups in gate_up, one step of each group in down.
  __device__ static int gate_up_tile(int warp, int i) {
    return (i / F::group_steps * consumer_warps + warp) * F::group_steps + i % F::group_steps;
  }
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
  __device__ static void gate_up(const unsigned char* stage, const uint2* x, const Lane& l,
                                 Sums& sums) {
#pragma unroll
    for (int i = 0; i < hidden / F::group / consumer_warps; ++i) {
      const unsigned char* const group = stage + (i * consumer_warps + l.warp) * F::group_bytes;
      const uint4* const words = reinterpret_cast<const uint4*>(group) + l.lane;
      const uint4 low = words[0];
      const uint4 high = words[32];
      const std::uint32_t steps[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      Sums of_group;
#pragma unroll
      for (int s = 0; s < F::group_steps; ++s)
        multiply_tile(s % 2 == 0 ? of_group.even : of_group.odd, decode(steps[s]),
                      x[F::group_steps * i + s]);
      add_scaled(of_group, group, l, sums);
    }
  }
  __device__ static void down(const unsigned char* stage, const uint2* x, const Lane& l,
                              Sums& sums) {
#pragma unroll
    for (int i = 0; i < inner / F::group; ++i) {
      const unsigned char* const group = stage + i * F::group_bytes;
      const std::uint32_t word =
          reinterpret_cast<const std::uint32_t*>(group)[32 * l.warp + l.lane];
      Sums of_group;
      multiply_tile(of_group.even, decode(word), x[i]);
      add_scaled(of_group, group, l, sums);
    }
  }
  static constexpr int gate_up_step = 16;
  static constexpr int down_step = 6;
};

}  // namespace motley::bench::half_step
