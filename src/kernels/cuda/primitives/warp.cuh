// Operations of a whole warp.
#pragma once

namespace motley::kernels::cuda {

// By pairs of lanes; those 16 apart are added first.
__device__ inline float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFF, value, distance);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
  return value;
}

}  // namespace motley::kernels::cuda
