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
    return clamped ? clamped_swiglu(gate, up) : silu_mul(gate, up);
  }
  __device__ static float silu_mul(float gate, float up) {
    return __fdividef(gate, 1.0F + __expf(-gate)) * up;
  }
  __device__ float clamped_swiglu(float gate, float up) const {
    // Written so that NaN stays NaN.
    if (gate > limit) gate = limit;
    if (up > limit) up = limit;
    if (up < -limit) up = -limit;
    return (up + 1.0F) * __fdividef(gate, 1.0F + __expf(-alpha * gate));
  }
};

}  // namespace motley::kernels::cuda::grouped
