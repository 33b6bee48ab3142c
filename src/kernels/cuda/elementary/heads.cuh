// Prepares heads for attention in registers: a lane has a vec4 and the one half a head behind it.
// Files that include this are compiled without fused multiply-add.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// The place of a row's numbers in KV memory, or none if the row has no sequence. A whole warp calls
// it.
__device__ inline std::int64_t place_in_pages(const Sequences& sequences, const BlockTable& table,
                                              const Pages& pages, int row) {
  const std::int32_t position = sequences.positions[row];
  const auto count = static_cast<int>(sequences.count);
  int before = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i <= count; i += 32)
    before += sequences.seq_begin[i] <= row ? 1 : 0;
  const int sequence = static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, before)) - 1;
  if (sequence < 0 || sequence >= count) return -1;
  const auto page_tokens = static_cast<std::int32_t>(table.page_tokens);
  const std::int64_t page = table.pages[sequence * table.stride + position / page_tokens];
  return page * pages.page_stride + position % page_tokens * pages.token_stride;
}

inline constexpr int held_width = 128;

// The norm sums in the order of a warp with one vec4 per lane: numbers half a head apart are added
// first.
__device__ inline float sum_of_lanes(float sum, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  return sum;
}
__device__ inline float sum_of_vec4(const Vec4& value) {
  return (value.at[0] * value.at[0] + value.at[1] * value.at[1]) +
         (value.at[2] * value.at[2] + value.at[3] * value.at[3]);
}

struct Halves {
  Vec4 low, high;
};

template <class X>
__device__ void round_as(Vec4& value) {
  if constexpr (sizeof(X) == 2) {
#pragma unroll
    for (float& number : value.at) number = widen(narrow<X>(number));
  }
}

template <class X>
__device__ void rotate(Halves& head, const Halves& cos_sin) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float c = cos_sin.low.at[i];
    const float s = cos_sin.high.at[i];
    const float low = head.low.at[i] * c + -head.high.at[i] * s;
    head.high.at[i] = head.high.at[i] * c + head.low.at[i] * s;
    head.low.at[i] = low;
  }
  round_as<X>(head.low);
  round_as<X>(head.high);
}

__device__ inline void write_halves(void* to, DType type, std::int64_t begin, int at, int half,
                                    const Halves& head) {
  if (type == DType::f32) {
    auto* const out = static_cast<float*>(to) + begin;
    store_vec4<true>(out, at, half, head.low);
    store_vec4<true>(out + half, at, half, head.high);
    return;
  }
  const auto pack = [](const Vec4& vec4) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(vec4.at[0], vec4.at[1]);
    const __nv_bfloat162 high = __floats2bfloat162_rn(vec4.at[2], vec4.at[3]);
    return make_uint2(*reinterpret_cast<const unsigned*>(&low),
                      *reinterpret_cast<const unsigned*>(&high));
  };
  auto* const out = static_cast<bf16*>(to) + begin + at;
  *reinterpret_cast<uint2*>(out) = pack(head.low);
  *reinterpret_cast<uint2*>(out + half) = pack(head.high);
}

// Whether a projection's heads fit into registers: they are rotated as a whole, each number with
// the one half a head behind it, or not at all.
bool lanes_hold(const Heads& heads);

}  // namespace motley::kernels::cuda
