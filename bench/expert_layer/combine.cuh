// The weighted sum of a token's experts, in the router's order.
#pragma once

#include "layer.cuh"

namespace expert_layer {

// out[token] = sum over j = 0..7, in this order, of gain[j] x partial[position(j)], in float32,
// rounded once.
__device__ inline void combine_chunk(const LayerParams& p, const int* position_of, int token,
                                     int col) {
  float sum[8] = {};
  uint4 v[kTopK];
  float gain[kTopK];
#pragma unroll
  for (int j = 0; j < kTopK; j++) {
    size_t position = position_of[token * kTopK + j];
    gain[j] = __ldg(&p.pair_gain[token * kTopK + j]);
    v[j] = __ldcg(reinterpret_cast<const uint4*>(p.partial + position * kHidden + col));
  }
#pragma unroll
  for (int j = 0; j < kTopK; j++) {
    const uint32_t w[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[2 * i] = fmaf(gain[j], __uint_as_float(w[i] << 16), sum[2 * i]);
      sum[2 * i + 1] = fmaf(gain[j], __uint_as_float(w[i] & 0xFFFF0000), sum[2 * i + 1]);
    }
  }
  uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    __nv_bfloat162 two = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
    packed[i] = *reinterpret_cast<uint32_t*>(&two);
  }
  *reinterpret_cast<uint4*>(p.out + static_cast<size_t>(token) * kHidden + col) =
      make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

}  // namespace expert_layer
