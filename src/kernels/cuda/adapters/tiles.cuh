// Deltas through the tensor cores, for rows and pages of bf16 and FP8: rows of x on the side of 16,
// ranks or outputs on the side of 8. Numbers of pages are exact in bf16, and a row in rank space is
// the sum of three bf16 that hold all of its float32.
//
// One order of sums, whatever kernel works a row off, so that its bits are its own: K is cut into
// runs, as many as its length says. A run's products go one after the other into the tensor core's
// sums, eight runs are added in order, which makes a slice, and then the slices. Ranks of a term
// come in panels of 64: a panel's products go into one sum, which is added to the result.
#pragma once

#include <algorithm>

#include "kernels/cuda/adapters/delta_launches.h"
#include "kernels/cuda/adapters/groups.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int max_slices = 8;  // of K
inline constexpr int step_inputs = 64;

struct Cut {
  int slices;
  int run;  // inputs of a warp: a multiple of 32
};
inline Cut cut_of(std::int64_t in) {
  constexpr std::int64_t enough = std::int64_t{warps} * step_inputs;
  const std::int64_t slices = std::min<std::int64_t>((in + enough - 1) / enough, max_slices);
  const std::int64_t parts = slices * warps * 32;
  return {.slices = static_cast<int>(slices),
          .run = static_cast<int>((in + parts - 1) / parts * 32)};
}

// Two numbers of e4m3, the first in the low byte, as bf16: exactly, for 2^120 makes up for the
// difference of the exponents' biases.
__device__ inline std::uint32_t widen_two(std::uint32_t two) {
  const std::uint32_t x = __byte_perm(two, 0, 0x4140);
  const std::uint32_t bits = (x & 0x00800080U) << 8 | (x & 0x007F007FU) << 4;
  const std::uint32_t exponent = 0x7B807B80;
  const __nv_bfloat162 value = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                                       *reinterpret_cast<const __nv_bfloat162*>(&exponent));
  return *reinterpret_cast<const std::uint32_t*>(&value);
}

// 8 or 4 numbers of a factor as bf16. `index` is a multiple of as many.
template <class FactorType>
__device__ uint4 vec8_of(const void* from, std::int64_t index) {
  const auto* const at = static_cast<const typename FactorType::Number*>(from) + index;
  if constexpr (!FactorType::scaled) return *reinterpret_cast<const uint4*>(at);
  const uint2 vec8 = *reinterpret_cast<const uint2*>(at);
  return {widen_two(vec8.x), widen_two(vec8.x >> 16), widen_two(vec8.y), widen_two(vec8.y >> 16)};
}
template <class FactorType>
__device__ uint2 vec4_of(const void* from, std::int64_t index) {
  const auto* const at = static_cast<const typename FactorType::Number*>(from) + index;
  if constexpr (!FactorType::scaled) return *reinterpret_cast<const uint2*>(at);
  const std::uint32_t vec4 = *reinterpret_cast<const std::uint32_t*>(at);
  return {widen_two(vec4), widen_two(vec4 >> 16)};
}

// A warp's run of a slice's inputs.
struct Run {
  std::int64_t begin;
  std::int64_t end;
};
__device__ inline Run run_of(std::int64_t in, int run, int slice) {
  const std::int64_t begin = (std::int64_t{slice} * warps + threadIdx.x / 32) * run;
  return {.begin = begin, .end = min(begin + run, in)};
}

// Rows of x, sixteen a tile: 64 inputs from one on. A lane has eight inputs of each 32.
template <int tiles>
struct XTiles {
  uint4 numbers[tiles][2][2];  // [tile][half of the inputs][row g, row g + 8]

  __device__ void load(const AdaptLinears& call, const std::int32_t* rows, int count,
                       std::int64_t from, std::int64_t end) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half + lane / 4;
        const bool there = row < count;
        const auto* const x = static_cast<const Bf16*>(call.x) +
                              (there ? std::int64_t{rows[row]} * call.x_stride : 0);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const std::int64_t k = from + 32 * step + 8 * (lane % 4);
          numbers[m][step][half] =
              there && k < end ? *reinterpret_cast<const uint4*>(x + k) : uint4{0, 0, 0, 0};
        }
      }
    }
  }
};

// Rows of A, eight a tile, at the same inputs; those behind the true rank are zeros.
template <class FactorType, int tiles>
struct ATiles {
  uint4 numbers[tiles][2];

  __device__ void load(const FactorEntry& factor, std::int64_t in, int first_rank,
                       std::int64_t from, std::int64_t end) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      const int rank = first_rank + 8 * n + lane / 4;
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const std::int64_t k = from + 32 * step + 8 * (lane % 4);
        numbers[n][step] = rank < factor.rank && k < end
                               ? vec8_of<FactorType>(factor.a, rank * in + k)
                               : uint4{0, 0, 0, 0};
      }
    }
  }
};

// Floats from one row of a warp's products to the next, so that what it writes meets no bank twice.
inline constexpr int sums_pitch = panel_ranks + 8;

// A warp's products for ranks [first, first + ranks) of a factor: x holds the rows at the run's
// begin, `to` points at their first rank, rows sums_pitch apart.
template <class FactorType, int tiles, int at_once>
__device__ void shrink_run(const AdaptLinears& call, const FactorEntry& factor, int first,
                           int ranks, const Run& run, const std::int32_t* rows, int count,
                           XTiles<tiles>& x, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool many_steps = run.end - run.begin > step_inputs;
#pragma unroll 1
  for (int r = 0; r < ranks; r += 8 * at_once) {
    float sums[at_once][tiles][4] = {};
#pragma unroll 1
    for (std::int64_t k = run.begin; k < run.end; k += step_inputs) {
      ATiles<FactorType, at_once> a;
      a.load(factor, call.in, first + r, k, run.end);
      if (many_steps) x.load(call, rows, count, k, run.end);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const uint4 low = x.numbers[m][step][0];
          const uint4 high = x.numbers[m][step][1];
#pragma unroll
          for (int n = 0; n < at_once; ++n) {
            const uint4 b = a.numbers[n][step];
            multiply_add(sums[n][m], low.x, high.x, low.y, high.y, b.x, b.y);
            multiply_add(sums[n][m], low.z, high.z, low.w, high.w, b.z, b.w);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < at_once; ++n) {
      if (r + 8 * n >= ranks) break;
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(to + (16 * m + 8 * half + lane / 4) * sums_pitch + r + 8 * n +
                                     2 * (lane % 4)) =
              make_float2(sums[n][m][2 * half], sums[n][m][2 * half + 1]);
      }
    }
  }
}

__device__ inline void add(float4& sum, const float4& more) {
  sum.x += more.x;
  sum.y += more.y;
  sum.z += more.z;
  sum.w += more.w;
}

// Four ranks of a row, summed over a block's runs, which lie `stride` floats apart.
__device__ inline float4 sum_of_runs(const float* runs, int stride) {
  auto sum = *reinterpret_cast<const float4*>(runs);
#pragma unroll
  for (int w = 1; w < warps; ++w) add(sum, *reinterpret_cast<const float4*>(runs + w * stride));
  return sum;
}

// Four ranks of a row times what the factor's scales are; zeros behind the true rank, where x may
// have been infinite.
template <class FactorType>
__device__ float4 scaled_ranks(const float4& sum, const FactorEntry& factor, std::int64_t in,
                               float scale, int rank) {
  float vec4[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool there = rank + i < factor.rank;
    const float by =
        there ? scale * row_scale<FactorType>(factor.a, factor.split, in, rank + i) : 0.0F;
    vec4[i] = there ? by * vec4[i] : 0.0F;
  }
  return {vec4[0], vec4[1], vec4[2], vec4[3]};
}

// A float32 as three bf16 that add up to it, of four numbers at once.
__device__ inline void split_in_three(const float4& vec4, uint2 (&parts)[3]) {
  float left[4] = {vec4.x, vec4.y, vec4.z, vec4.w};
#pragma unroll
  for (uint2& part : parts) {
    std::uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits[i] = __float_as_uint(left[i]) & 0xFFFF0000U;
      // An infinite one is all in its first part.
      left[i] = isfinite(left[i]) ? left[i] - __uint_as_float(bits[i]) : 0.0F;
    }
    part = make_uint2(bits[0] >> 16 | bits[1], bits[2] >> 16 | bits[3]);
  }
}

// Rows in rank space, so split.
template <int rows>
struct RankRows {
  static constexpr int pitch = panel_ranks + 16;  // rows that a warp reads meet no bank twice
  Bf16 parts[3][rows][pitch];

  // Four ranks of a row, and zeros for those that fill up sixteen.
  __device__ void store(int row, int rank, const float4& vec4) {
    uint2 split[3];
    split_in_three(vec4, split);
#pragma unroll
    for (int part = 0; part < 3; ++part)
      *reinterpret_cast<uint2*>(&parts[part][row][rank]) = split[part];
  }
};

// Rows of B: sixteen outputs from one on at sixteen ranks. A lane has four ranks of an output of
// each eight, and the products' columns stand so that it gets four outputs side by side.
struct BTiles {
  uint2 numbers[2];

  template <class FactorType>
  __device__ void load(const FactorEntry& factor, int from, int end, int rank) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int column = lane / 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int o = from + 4 * (column / 2) + 2 * j + column % 2;
      const int r = rank + 4 * (lane % 4);
      numbers[j] = o < end && r < round_up_8(factor.rank)
                       ? vec4_of<FactorType>(factor.b, std::int64_t{o} * factor.split + r)
                       : uint2{0, 0};
    }
  }
};

// sums[j] += rows g and g + 8 x B at sixteen ranks, of which a lane has four of each row.
__device__ inline void multiply_parts(const uint2 (&low)[3], const uint2 (&high)[3],
                                      const BTiles& b, float (&sums)[2][4]) {
#pragma unroll
  for (int part = 2; part >= 0; --part)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      multiply_add(sums[j], low[part].x, high[part].x, low[part].y, high[part].y, b.numbers[j].x,
                   b.numbers[j].y);
}
// The same, rows of a tile of sixteen that stand in shared memory.
template <int rows>
__device__ void expand_step(const RankRows<rows>& rank_rows, int tile, int rank, const BTiles& b,
                            float (&sums)[2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = 16 * tile + lane / 4;
#pragma unroll
  for (int part = 2; part >= 0; --part) {
    const auto low =
        *reinterpret_cast<const uint2*>(&rank_rows.parts[part][row][rank + 4 * (lane % 4)]);
    const auto high =
        *reinterpret_cast<const uint2*>(&rank_rows.parts[part][row + 8][rank + 4 * (lane % 4)]);
#pragma unroll
    for (int j = 0; j < 2; ++j)
      multiply_add(sums[j], low.x, high.x, low.y, high.y, b.numbers[j].x, b.numbers[j].y);
  }
}

// Four numbers side by side, as far as o < end; whole: end is a multiple of four, and they lie so
// that one access takes them.
template <bool whole>
__device__ float4 load_floats(const float* from, int o, int end) {
  if constexpr (whole) return *reinterpret_cast<const float4*>(from + o);
  return {o < end ? from[o] : 0.0F, o + 1 < end ? from[o + 1] : 0.0F,
          o + 2 < end ? from[o + 2] : 0.0F, o + 3 < end ? from[o + 3] : 0.0F};
}
template <bool whole>
__device__ void store_floats(float* to, int o, int end, const float (&vec4)[4]) {
  if constexpr (whole) {
    *reinterpret_cast<float4*>(to + o) = make_float4(vec4[0], vec4[1], vec4[2], vec4[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (o + i < end) to[o + i] = vec4[i];
  }
}

template <bool whole>
__device__ void load_acc(const AdaptedLinear& linear, std::int64_t row, int o, float (&vec4)[4]) {
  const float4 there =
      load_floats<whole>(linear.acc + row * linear.acc_stride, o, static_cast<int>(linear.out));
  vec4[0] = there.x;
  vec4[1] = there.y;
  vec4[2] = there.z;
  vec4[3] = there.w;
}
template <bool whole>
__device__ void store_acc(const AdaptedLinear& linear, std::int64_t row, int o,
                          const float (&vec4)[4]) {
  store_floats<whole>(linear.acc + row * linear.acc_stride, o, static_cast<int>(linear.out), vec4);
}
template <bool whole>
__device__ void store_result(const AdaptedLinear& linear, std::int64_t row, int o,
                             const float (&vec4)[4]) {
  const auto end = static_cast<int>(linear.out);
  if (linear.result_type != DType::bf16) {
    return store_floats<whole>(static_cast<float*>(linear.result) + row * linear.result_stride, o,
                               end, vec4);
  }
  auto* const to = static_cast<Bf16*>(linear.result) + row * linear.result_stride + o;
  if constexpr (whole) {
    const __nv_bfloat162 both[2] = {__floats2bfloat162_rn(vec4[0], vec4[1]),
                                    __floats2bfloat162_rn(vec4[2], vec4[3])};
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(both);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (o + i < end) to[i] = __float2bfloat16_rn(vec4[i]);
  }
}

// What comes behind all of a row's terms.
struct Finish {
  const float* gain = nullptr;
  const float* bias = nullptr;

  __device__ void take(const SiteEntry& entry) {
    if (entry.gain != nullptr) gain = entry.gain;
    if (entry.replaced_bias != nullptr) bias = entry.replaced_bias;
  }
  template <bool whole>
  __device__ void apply(int o, int end, float (&vec4)[4]) const {
    if (gain != nullptr) {
      const float4 by = load_floats<whole>(gain, o, end);
      vec4[0] = __fmul_rn(vec4[0], by.x);
      vec4[1] = __fmul_rn(vec4[1], by.y);
      vec4[2] = __fmul_rn(vec4[2], by.z);
      vec4[3] = __fmul_rn(vec4[3], by.w);
    }
    if (bias != nullptr) {
      const float4 more = load_floats<whole>(bias, o, end);
      vec4[0] = __fadd_rn(vec4[0], more.x);
      vec4[1] = __fadd_rn(vec4[1], more.y);
      vec4[2] = __fadd_rn(vec4[2], more.z);
      vec4[3] = __fadd_rn(vec4[3], more.w);
    }
  }
};

// acc += by x delta, four outputs; by is a scale of each.
__device__ inline void add_scaled(float (&acc)[4], const float4& by, float d0, float d1, float d2,
                                  float d3) {
  acc[0] = __fmaf_rn(by.x, d0, acc[0]);
  acc[1] = __fmaf_rn(by.y, d1, acc[1]);
  acc[2] = __fmaf_rn(by.z, d2, acc[2]);
  acc[3] = __fmaf_rn(by.w, d3, acc[3]);
}

// The scales of four rows of B.
template <class FactorType, bool whole>
__device__ float4 b_scales(const FactorEntry& factor, int o, int out) {
  if constexpr (!FactorType::scaled) return {1, 1, 1, 1};
  const std::int64_t numbers = (std::int64_t{out} * factor.split + 15) / 16 * 16;
  const auto* const scales =
      reinterpret_cast<const float*>(static_cast<const char*>(factor.b) + numbers);
  return load_floats<whole>(scales, o, out);
}

}  // namespace motley::kernels::cuda::adapter_tiles
