// The CPU's exponential (cpu/lanes.h), operation for operation, so that both devices have the same
// bits. Files that include this are compiled without fused multiply-add.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

__device__ inline float exponential(float x) {
  const float held = x > 88.37F ? 88.37F : x;
  const float bounded = held < -87.3F ? -87.3F : held;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const float shifted = bounded * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = (bounded - n * 0.693359375F) - n * -2.12194440e-4F;
  float series = 1.0F / 5040;
  series = series * r + 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r + 1.0F;
  series = series * r + 1.0F;
  const float power =
      __uint_as_float((static_cast<std::uint32_t>(__float_as_uint(shifted)) + 127U) << 23);
  const float value = series * power;
  return held < -87.3F ? 0.0F : value;
}

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

}  // namespace motley::kernels::cuda
