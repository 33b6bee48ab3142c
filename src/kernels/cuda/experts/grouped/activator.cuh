// h from gate and up, and how it is rounded.
#pragma once

#include "kernels/cuda/experts/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

__device__ inline std::uint32_t pack(float a, float b) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}

struct Activator {
  bool clamped;
  float limit, alpha;
  float gate_bias, up_bias;

  __device__ float operator()(float gate, float up) const {
    gate += gate_bias;
    up += up_bias;
    if (!clamped) return __fdividef(gate, 1.0F + __expf(-gate)) * up;
    // Written so that NaN stays NaN.
    if (gate > limit) gate = limit;
    if (up > limit) up = limit;
    if (up < -limit) up = -limit;
    return (up + 1.0F) * __fdividef(gate, 1.0F + __expf(-alpha * gate));
  }
};

}  // namespace motley::kernels::cuda::grouped
