// The codes of rows of inputs, by the arithmetic of input_rounding.h. A thread takes pieces of 16
// inputs; 8 threads beside each other have the inputs of 128 columns. A row has a warp or a block.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_fp8.h>

#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/input_rounding.h"

namespace motley::kernels::cuda::input_codes {

inline constexpr int threads = 128;
inline constexpr int warps = threads / 32;
inline constexpr int piece = 16;
inline constexpr int block_pieces = 128 / piece;

// 16 inputs as they stand in memory.
struct PieceBits {
  uint4 halves[2]{};

  __device__ static PieceBits load(const Bf16* from) {
    return {{*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + 8)}};
  }
};
struct Piece {
  float at[piece]{};

  Piece() = default;
  __device__ explicit Piece(const PieceBits& bits) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(bits.halves);
#pragma unroll
    for (int i = 0; i < piece / 2; ++i) {
      at[2 * i] = __uint_as_float(words[i] << 16);
      at[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
    }
  }
  __device__ static Piece load(const Bf16* from) { return Piece(PieceBits::load(from)); }
  // The largest magnitude; a NaN does not count.
  __device__ float largest() const {
    float most = 0;
#pragma unroll
    for (const float x : at) most = fmaxf(most, fabsf(x));
    return most;
  }
  __device__ bool has_nan() const {
    bool found = false;
#pragma unroll
    for (const float x : at) found = found || isnan(x);
    return found;
  }
};

// Codes of two ratios, the first in the low byte.
template <DType type>
__device__ std::uint32_t codes_of(float first, float second) {
  if constexpr (type == DType::f8_e4m3)
    return __nv_cvt_float2_to_fp8x2({first, second}, __NV_SATFINITE, __NV_E4M3);
  const auto code = [](float ratio) {
    return static_cast<std::uint32_t>(max(-128, min(127, __float2int_rn(ratio)))) & 0xFFU;
  };
  return code(first) | code(second) << 8;
}

// x / scale, rounded as a division is, with one reciprocal for all of a scale's inputs: a quotient
// that is nearly right, mended by its remainder (Markstein); for quotients from 2^-12 on, which is
// what has a code. Both sides are multiplied by a power of two that keeps the reciprocal and the
// remainder normal: where x leaves float32 by it, its code is the largest, or zero.
class Divisor {
 public:
  __device__ explicit Divisor(float scale)
      : unit_(fabsf(scale) < 0x1p-60F  ? 0x1p80F
              : fabsf(scale) > 0x1p60F ? 0x1p-80F
                                       : 1.0F),
        // An infinite scale makes zeros of finite inputs; as it is, it would leave a remainder of
        // NaN.
        scale_(isinf(scale) ? 0 : scale * unit_),
        reciprocal_(1 / (scale * unit_)) {}
  __device__ float operator()(float x) const {
    x *= unit_;
    const float near = x * reciprocal_;
    const float remainder = fmaf(-near, scale_, x);
    // An infinite quotient leaves no remainder.
    return isinf(near) ? near : fmaf(remainder, reciprocal_, near);
  }

 private:
  float unit_, scale_, reciprocal_;
};

// Codes of 4 inputs.
template <DType type>
__device__ std::uint32_t codes_of_four(const float (&x)[4], float scale) {
  if (scale == 0) return 0;
  const Divisor divide(scale);
  return codes_of<type>(divide(x[0]), divide(x[1])) | codes_of<type>(divide(x[2]), divide(x[3]))
                                                          << 16;
}

template <DType type>
__device__ uint4 codes_of(const Piece& x, float scale) {
  if (scale == 0) return {};
  const Divisor divide(scale);
  const auto word = [&](int c) {
    const auto ratio = [&](int k) { return divide(x.at[4 * c + k]); };
    return codes_of<type>(ratio(0), ratio(1)) | codes_of<type>(ratio(2), ratio(3)) << 16;
  };
  return {word(0), word(1), word(2), word(3)};
}

// What a row's inputs share: the largest magnitude, and, of INT8, whether there is a NaN, which has
// no code and so becomes the scale.
struct RowTraits {
  float largest;
  bool has_nan;
};
// `row_threads` threads call it, of which this is number t.
template <int row_threads>
__device__ RowTraits traits_of(const Bf16* x, int pieces, int t) {
  float largest = 0;
  bool has_nan = false;
  for (int i = t; i < pieces; i += row_threads) {
    const Piece mine = Piece::load(x + i * piece);
    largest = fmaxf(largest, mine.largest());
    has_nan = has_nan || mine.has_nan();
  }
  largest = warp_max(largest);
  if constexpr (row_threads == 32) return {largest, __any_sync(0xFFFFFFFF, has_nan) != 0};
  __shared__ float largest_of_warp[warps];
  if (t % 32 == 0) largest_of_warp[t / 32] = largest;
  has_nan = __syncthreads_or(has_nan ? 1 : 0) != 0;
#pragma unroll
  for (const float other : largest_of_warp) largest = fmaxf(largest, other);
  return {largest, has_nan};
}

// Whole warps call it: the largest magnitude of 8 lanes' inputs.
__device__ inline float largest_of_block(float largest) {
#pragma unroll
  for (int apart = 1; apart < block_pieces; apart *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, apart));
  return largest;
}

}  // namespace motley::kernels::cuda::input_codes
