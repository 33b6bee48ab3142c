// Conversion of FP8 to bf16.
#pragma once

#include "kernels/cuda/primitives/ptx.cuh"

namespace motley::kernels::cuda::grouped {

// Converts two e4m3 numbers, the first in the low byte, to bf16 and scales them. Exact if the scale
// is a power of two.
__device__ inline std::uint32_t widen_f8(std::uint32_t two, __nv_bfloat162 scale) {
  const std::uint32_t x = __byte_perm(two, 0, 0x4140);
  const std::uint32_t bits = (x & 0x00800080U) << 8 | (x & 0x007F007FU) << 4;
  // 2^120: exponents of e4m3 begin at -7, of bf16 at -127
  const std::uint32_t exponent = 0x7B807B80;
  __nv_bfloat162 value = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                                 *reinterpret_cast<const __nv_bfloat162*>(&exponent));
  value = __hmul2(value, scale);
  return *reinterpret_cast<const std::uint32_t*>(&value);
}

__device__ inline uint4 widen_f8_x8(uint2 vec8, __nv_bfloat162 scale) {
  return make_uint4(widen_f8(vec8.x, scale), widen_f8(vec8.x >> 16, scale), widen_f8(vec8.y, scale),
                    widen_f8(vec8.y >> 16, scale));
}

}  // namespace motley::kernels::cuda::grouped
