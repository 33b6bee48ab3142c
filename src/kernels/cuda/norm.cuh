// The norm of a row's part, and who works on it together. Files that include this are compiled
// without fused products.
#pragma once

#include "kernels/cuda/fours.cuh"

namespace motley::kernels::cuda {

inline constexpr int most_norm_threads = 512;

// Threads that share a part, a power of two that its width alone decides, and parts of a block.
struct NormTeam {
  int threads = 32;
  int parts = 1;
};
inline NormTeam norm_team(std::int64_t width) {
  NormTeam team;
  while (team.threads < most_norm_threads && 8 * team.threads < width) team.threads *= 2;
  team.parts = 256 / team.threads > 1 ? 256 / team.threads : 1;
  return team;
}

// A thread's share of a sum of squares, in four partial sums: fours thread, thread + threads, ...
struct Squares {
  Four sums{};

  __device__ void add(const Four& value) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums.at[i] += value.at[i] * value.at[i];
  }
  // The warp's sum, in pairs of lanes.
  __device__ float of_warp() const {
    float sum = (sums.at[0] + sums.at[1]) + (sums.at[2] + sums.at[3]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    return sum;
  }
  // What the part is to be multiplied with, in every thread of its team; warps are summed in order.
  __device__ float factor(std::int64_t width, float eps, const NormTeam& team,
                          float* warp_sums) const {
    float sum = of_warp();
    if (team.threads > 32) {
      const int warps = team.threads / 32;
      if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
      __syncthreads();
      const int first = static_cast<int>(threadIdx.x) / team.threads * warps;
      sum = warp_sums[first];
      for (int i = 1; i < warps; ++i) sum += warp_sums[first + i];
    }
    return factor_of(sum, width, eps);
  }
  __device__ static float factor_of(float sum, std::int64_t width, float eps) {
    return 1.0F / sqrtf(sum / static_cast<float>(width) + eps);
  }
};

// RmsNorm's product with the factor and the weight, for a result of type Out.
template <class Out>
__device__ Four normed(Four value, const Four& weight, float factor, bool weight_in_f32) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float scaled = value.at[i] * factor;
    if (sizeof(Out) == 2 && !weight_in_f32) scaled = bf16::from(scaled).to_float();
    value.at[i] = scaled * weight.at[i];
  }
  return value;
}

}  // namespace motley::kernels::cuda
