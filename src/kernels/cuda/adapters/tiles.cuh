// Deltas on tensor cores, for rows in bf16 and factors in bf16 or FP8. Rows of x are the M = 16
// side, ranks or outputs the N = 8 side. FP8 factors are exact in bf16; a row in rank space is the
// sum of three bf16, which hold all of its float32.
//
// All kernels here sum in one order, so that a row's bits do not depend on the kernel. K is cut
// into runs, as many as its length says. A run is accumulated in order in the tensor core; eight
// runs are added in order and make a slice; slices are added in order. The ranks of a term are cut
// into panels of 64: a panel is accumulated in one sum, which is added to the result.
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

// Converts two e4m3 numbers, the first in the low byte, to bf16. Exact: the factor 2^120 makes up
// for the difference of exponent biases.
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

// The rows of x of a group.
struct InputRows {
  const AdaptLinears& call;
  const std::int32_t* rows;
  int count;
};

// Rows of x, 16 per tile, at 64 inputs. A lane has 8 of every 32 inputs.
template <int tiles>
struct XTiles {
  uint4 numbers[tiles][2][2];  // [tile][half of the inputs][row g, row g + 8]

  __device__ void load(const InputRows& of, std::int64_t from, std::int64_t end) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half + lane / 4;
        const bool there = row < of.count;
        const auto* const x = static_cast<const Bf16*>(of.call.x) +
                              (there ? std::int64_t{of.rows[row]} * of.call.x_stride : 0);
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

// Rows of A, 8 per tile, at the same inputs. Rows behind the true rank are zeros.
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

// Distance between rows of a warp's products, in floats; padded to write without bank conflicts.
inline constexpr int sums_pitch = panel_ranks + 8;

// Ranks [first, first + count) of a factor.
struct FactorRanks {
  const FactorEntry& factor;
  int first;
  int count;
};

// A warp's products for some ranks. x holds the rows at the run's begin; `to` points at their first
// rank, rows sums_pitch apart.
template <class FactorType, int tiles, int at_once>
__device__ void shrink_run(const InputRows& rows, const FactorRanks& ranks, const Run& run,
                           XTiles<tiles>& x, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool many_steps = run.end - run.begin > step_inputs;
#pragma unroll 1
  for (int r = 0; r < ranks.count; r += 8 * at_once) {
    float sums[at_once][tiles][4] = {};
#pragma unroll 1
    for (std::int64_t k = run.begin; k < run.end; k += step_inputs) {
      ATiles<FactorType, at_once> a;
      a.load(ranks.factor, rows.call.in, ranks.first + r, k, run.end);
      if (many_steps) x.load(rows, k, run.end);
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
      if (r + 8 * n >= ranks.count) break;
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

// 4 ranks of a row, summed over a block's runs, which are `stride` floats apart.
__device__ inline float4 sum_of_runs(const float* runs, int stride) {
  auto sum = *reinterpret_cast<const float4*>(runs);
#pragma unroll
  for (int w = 1; w < warps; ++w) add(sum, *reinterpret_cast<const float4*>(runs + w * stride));
  return sum;
}

// 4 ranks of a row times the factor's scales. Zeros behind the true rank, where the sum may be NaN
// because x was infinite.
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

// Splits 4 float32 into three bf16 each that add up to it.
__device__ inline void split_in_three(const float4& vec4, uint2 (&parts)[3]) {
  float left[4] = {vec4.x, vec4.y, vec4.z, vec4.w};
#pragma unroll
  for (uint2& part : parts) {
    std::uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits[i] = __float_as_uint(left[i]) & 0xFFFF0000U;
      // Infinity is entirely in its first part.
      left[i] = isfinite(left[i]) ? left[i] - __uint_as_float(bits[i]) : 0.0F;
    }
    part = make_uint2(bits[0] >> 16 | bits[1], bits[2] >> 16 | bits[3]);
  }
}

// Rows in rank space, split into three bf16.
template <int rows>
struct RankRows {
  // padded: a warp reads rows without bank conflicts
  static constexpr int pitch = panel_ranks + 16;
  Bf16 parts[3][rows][pitch];

  // Stores 4 ranks of a row; zeros pad them to 16.
  __device__ void store(int row, int rank, const float4& vec4) {
    uint2 split[3];
    split_in_three(vec4, split);
#pragma unroll
    for (int part = 0; part < 3; ++part)
      *reinterpret_cast<uint2*>(&parts[part][row][rank]) = split[part];
  }
};

// Rows of B: 16 outputs at 16 ranks. A lane has 4 ranks of one output in each 8; columns are
// permuted so that a lane gets 4 consecutive outputs.
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

// sums[j] += rows g and g + 8 times B at 16 ranks, of which a lane has 4 of each row.
__device__ inline void multiply_parts(const uint2 (&low)[3], const uint2 (&high)[3],
                                      const BTiles& b, float (&sums)[2][4]) {
#pragma unroll
  for (int part = 2; part >= 0; --part)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      multiply_add(sums[j], low[part].x, high[part].x, low[part].y, high[part].y, b.numbers[j].x,
                   b.numbers[j].y);
}
// The same for rows of a 16-row tile in shared memory.
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

// 4 consecutive numbers, as far as o < end. `whole`: end is a multiple of 4, and they are aligned
// for one access.
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

// To 4 outputs from `o` on.
template <bool whole>
__device__ inline void apply(const Finish& finish, int o, int end, float (&vec4)[4]) {
  if (finish.gain != nullptr) {
    const float4 by = load_floats<whole>(finish.gain, o, end);
    vec4[0] = __fmul_rn(vec4[0], by.x);
    vec4[1] = __fmul_rn(vec4[1], by.y);
    vec4[2] = __fmul_rn(vec4[2], by.z);
    vec4[3] = __fmul_rn(vec4[3], by.w);
  }
  if (finish.bias != nullptr) {
    const float4 more = load_floats<whole>(finish.bias, o, end);
    vec4[0] = __fadd_rn(vec4[0], more.x);
    vec4[1] = __fadd_rn(vec4[1], more.y);
    vec4[2] = __fadd_rn(vec4[2], more.z);
    vec4[3] = __fadd_rn(vec4[3], more.w);
  }
}

// acc += by * delta for 4 outputs; `by` holds the scale of each.
__device__ inline void add_scaled(float (&acc)[4], const float4& by, float d0, float d1, float d2,
                                  float d3) {
  acc[0] = __fmaf_rn(by.x, d0, acc[0]);
  acc[1] = __fmaf_rn(by.y, d1, acc[1]);
  acc[2] = __fmaf_rn(by.z, d2, acc[2]);
  acc[3] = __fmaf_rn(by.w, d3, acc[3]);
}

// The scales of 4 rows of B.
template <class FactorType, bool whole>
__device__ float4 b_scales(const FactorEntry& factor, int o, int out) {
  if constexpr (!FactorType::scaled) return {1, 1, 1, 1};
  const std::int64_t numbers = (std::int64_t{out} * factor.split + 15) / 16 * 16;
  const auto* const scales =
      reinterpret_cast<const float*>(static_cast<const char*>(factor.b) + numbers);
  return load_floats<whole>(scales, o, out);
}

}  // namespace motley::kernels::cuda::adapter_tiles
