// Prepares heads for attention in registers: a lane has a vec4 and the one half a head behind it.
// Files that include this are compiled without fused multiply-add.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/elementary.h"
#include "kernels/kv_codes.h"

namespace motley::kernels::cuda {

// Where a row stands in KV memory.
struct PagePlace {
  std::int64_t page = -1;  // -1: the row has no sequence
  std::int32_t token = 0;

  __device__ bool stored() const { return page >= 0; }
  __device__ std::int64_t in(const Pages& pages) const {
    return page * pages.page_stride + token * pages.token_stride;
  }
  // The exponent of a head's codes.
  __device__ std::uint8_t* exponent(const Pages& pages, const BlockTable& table,
                                    std::int64_t head) const {
    return pages.exponents + page * pages.page_stride + head * table.page_tokens + token;
  }
};

// A whole warp calls it.
__device__ inline PagePlace place_in_pages(const Sequences& sequences, const BlockTable& table,
                                           int row) {
  const std::int32_t position = sequences.positions[row];
  const auto count = static_cast<int>(sequences.count);
  int before = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i <= count; i += 32)
    before += sequences.seq_begin[i] <= row ? 1 : 0;
  const int sequence = static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, before)) - 1;
  if (sequence < 0 || sequence >= count) return {};
  const auto page_tokens = static_cast<std::int32_t>(table.page_tokens);
  return {.page = table.pages[sequence * table.stride + position / page_tokens],
          .token = position % page_tokens};
}

// How a head's numbers become codes.
struct CodeScale {
  float fixed;  // numbers are divided by it; 0: multiplied by `inverse`
  float inverse;
  std::uint8_t exponent;

  __device__ CodeScale(const Pages& pages, std::uint32_t largest)
      : fixed(pages.fixed_scale),
        exponent(pages.fixed_scale > 0 ? kv_exponent_of_fixed(largest) : kv_exponent(largest)) {
    inverse = kv_inverse_power(exponent);
  }
  // As kv_code() does for numbers that are finite.
  __device__ std::uint8_t code(float x) const {
    return __nv_cvt_float_to_fp8(scaled(x), __NV_SATFINITE, __NV_E4M3);
  }
  __device__ std::uint32_t codes(const Vec4& x) const {
    const auto two = [&](int i) -> std::uint32_t {
      return __nv_cvt_float2_to_fp8x2(make_float2(scaled(x.at[i]), scaled(x.at[i + 1])),
                                      __NV_SATFINITE, __NV_E4M3);
    };
    return two(0) | two(2) << 16;
  }

 private:
  __device__ float scaled(float x) const { return fixed > 0 ? __fdiv_rn(x, fixed) : x * inverse; }
};
__device__ inline std::uint32_t largest_of(std::uint32_t largest, const Vec4& x) {
#pragma unroll
  for (const float number : x.at) largest = kv_largest(largest, number);
  return largest;
}

inline constexpr int held_width = 256;

// The norm sums in the order of a warp with one vec4 per lane: numbers half a head apart are added
// first. Of heads of 256 a lane of that warp would have two vec4s.
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
__device__ inline float sum_of_halves(const Halves& head, int width) {
  if (width <= 128) return sum_of_vec4(head.low) + sum_of_vec4(head.high);
  const auto both = [&](int i) {
    return head.low.at[i] * head.low.at[i] + head.high.at[i] * head.high.at[i];
  };
  return (both(0) + both(1)) + (both(2) + both(3));
}

template <class X>
__device__ void round_as(Vec4& value) {
  if constexpr (sizeof(X) == 2) {
#pragma unroll
    for (float& number : value.at) number = widen(narrow<X>(number));
  }
}

template <class X>
__device__ void add_bias(Halves& head, const Halves& bias) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    head.low.at[i] += bias.low.at[i];
    head.high.at[i] += bias.high.at[i];
  }
  round_as<X>(head.low);
  round_as<X>(head.high);
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

// Rotates the first 2 * pairs numbers of a head, all in its first half: a lane has one half of its
// pairs, and the lane `pairs` numbers on or back the other. All lanes call it.
template <class X>
__device__ void rotate_first(Halves& head, const Halves& cos_sin, int at, int pairs) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float other = __shfl_xor_sync(0xFFFFFFFFU, head.low.at[i], pairs / 4);
    if (at >= 2 * pairs) continue;
    const float turned = other * cos_sin.high.at[i];
    head.low.at[i] = head.low.at[i] * cos_sin.low.at[i] + (at < pairs ? -turned : turned);
  }
  round_as<X>(head.low);
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

// Writes the codes of a head of `lanes` lanes and their exponent; every lane has its place in the
// head. All lanes of the head call it.
__device__ inline void write_codes(const Pages& pages, const BlockTable& table,
                                   const PagePlace& place, std::int64_t head, int at, int half,
                                   int lanes, const Halves& value) {
  std::uint32_t largest = largest_of(largest_of(0, value.low), value.high);
  for (int step = lanes / 2; step > 0; step /= 2)
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, step));
  if (!place.stored() || head < 0) return;
  const CodeScale scale(pages, largest);
  auto* const codes =
      static_cast<std::uint8_t*>(pages.data) + place.in(pages) + head * pages.head_stride + at;
  *reinterpret_cast<std::uint32_t*>(codes) = scale.codes(value.low);
  *reinterpret_cast<std::uint32_t*>(codes + half) = scale.codes(value.high);
  if (at == 0) *place.exponent(pages, table, head) = scale.exponent;
}

// Whether a projection's heads fit into registers: they are rotated as a whole, each number with
// the one half a head after it, or within their first half, or not at all.
bool lanes_hold(const Heads& heads);

}  // namespace motley::kernels::cuda
