// The weighted sum of a token's experts, in the order of its slots. Results of earlier grids are
// read by loads that the compiler cannot move above the wait for those grids (not by __ldg).
#pragma once

#include "kernels/cuda/experts/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// The number of a token's pairs that have an expert.
__device__ inline int routed_slots(const LayerParams& p, int token) {
  int count = 0;
#pragma unroll 8
  for (int slot = 0; slot < p.top_k; ++slot) {
    const int id = __ldcg(&p.ids[token * p.top_k + slot]);
    count += id >= 0 && id < p.experts ? 1 : 0;
  }
  return count;
}

// out[token][column .. column + 8) = sum over slots of weight * partial, in float32 from zero on.
// `ahead`: the number of slots whose loads are in flight together.
template <int ahead>
__device__ inline void combine_chunk(const LayerParams& p, const int* places, int routed, int token,
                                     int column) {
  float sum[8] = {};
  for (int first = 0; first < p.top_k; first += ahead) {
    uint4 v[ahead];
    float weight[ahead];
    bool there[ahead];
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
      const int slot = first + j;
      const int pair = token * p.top_k + slot;
      const int place = slot < p.top_k ? places[pair] : routed;
      there[j] = place < routed;
      if (!there[j]) continue;
      weight[j] = __ldcg(&p.routing_weights[pair]);
      v[j] = __ldcg(reinterpret_cast<const uint4*>(
          p.partial + static_cast<std::size_t>(place) * p.hidden + column));
    }
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
      if (!there[j]) continue;
      const std::uint32_t w[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[2 * i] = fmaf(weight[j], __uint_as_float(w[i] << 16), sum[2 * i]);
        sum[2 * i + 1] = fmaf(weight[j], __uint_as_float(w[i] & 0xFFFF0000), sum[2 * i + 1]);
      }
    }
  }
  const std::size_t at = static_cast<std::size_t>(token) * p.hidden + column;
  if (p.out_f32) {
    auto* const out = reinterpret_cast<float4*>(static_cast<float*>(p.out) + at);
    out[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    out[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    return;
  }
  std::uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
    packed[i] = *reinterpret_cast<const std::uint32_t*>(&two);
  }
  *reinterpret_cast<uint4*>(static_cast<Bf16*>(p.out) + at) =
      make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

// Zeroes the rows of tokens without experts, which no tile writes. One warp calls it.
__device__ inline void clear_unrouted(const LayerParams& p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int bytes = p.hidden * (p.out_f32 ? 4 : 2);
  for (int token = static_cast<int>(blockIdx.x); token < p.tokens;
       token += static_cast<int>(gridDim.x)) {
    if (routed_slots(p, token) > 0) continue;
    auto* const row = static_cast<unsigned char*>(p.out) + static_cast<std::size_t>(token) * bytes;
    for (int i = lane * 16; i < bytes; i += 32 * 16)
      *reinterpret_cast<uint4*>(row + i) = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace motley::kernels::cuda::grouped
