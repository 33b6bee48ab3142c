// RoPE on pairs of a head. Files that include this are compiled without fused multiply-add.
#pragma once

#include "kernels/cuda/primitives/vec4.cuh"

namespace motley::kernels::cuda {

// Four rotated pairs of a head, and the offsets of their vec4s.
struct RotatedPairs {
  Vec4 first, second;
  std::int64_t first_at, second_at;  // from the first rotated number
};

// Rotates pairs [at, at + 4) of x; `cosines` is a row of the RoPE table. Pair i is (i, i + pairs),
// or (2i, 2i + 1) if interleaved: then four pairs are two adjacent vec4s. `whole` as for load_vec4.
template <bool whole, class X>
__device__ RotatedPairs rotated_pairs(const X* x, const float* cosines, std::int64_t pairs,
                                      bool interleaved, std::int64_t at) {
  const auto rotate = [](float& a, float& b, float c, float s) {
    const float rotated = a * c + -b * s;
    b = b * c + a * s;
    a = rotated;
  };
  const Vec4 c = load_vec4<whole>(cosines, at, pairs);
  const Vec4 s = load_vec4<whole>(cosines + pairs, at, pairs);
  RotatedPairs vec4;
  vec4.first_at = interleaved ? 2 * at : at;
  vec4.second_at = interleaved ? 2 * at + 4 : pairs + at;
  const std::int64_t first_end = interleaved ? 2 * pairs : pairs;
  vec4.first = load_vec4<whole>(x, vec4.first_at, first_end);
  vec4.second = load_vec4<whole>(x, vec4.second_at, 2 * pairs);
  if (interleaved) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rotate(vec4.first.at[2 * i], vec4.first.at[2 * i + 1], c.at[i], s.at[i]);
      rotate(vec4.second.at[2 * i], vec4.second.at[2 * i + 1], c.at[2 + i], s.at[2 + i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) rotate(vec4.first.at[i], vec4.second.at[i], c.at[i], s.at[i]);
  }
  return vec4;
}

// The same for one number: number `at` of the rotated ones.
template <class X>
__device__ float rotated_number(const X* x, const float* cosines, std::int64_t pairs,
                                bool interleaved, std::int64_t at) {
  const std::int64_t pair = interleaved ? at / 2 : at % pairs;
  const bool second = interleaved ? at % 2 != 0 : at >= pairs;
  const std::int64_t other = interleaved ? at ^ 1 : second ? at - pairs : at + pairs;
  const float own = widen(x[at]);
  const float a = widen(x[other]);
  const float c = cosines[pair];
  const float s = cosines[pairs + pair];
  return second ? own * c + a * s : own * c + -a * s;
}

// Numbers [at, at + 4) of the rotated ones, whose values before are `own`; whole vec4s only.
template <class X>
__device__ Vec4 rotated_vec4(const X* x, const float* cosines, std::int64_t pairs, bool interleaved,
                             std::int64_t at, const Vec4& own) {
  Vec4 rotated;
  if (interleaved) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float c = cosines[at / 2 + i / 2];
      const float s = cosines[pairs + at / 2 + i / 2];
      rotated.at[i] = own.at[i] * c + -own.at[i + 1] * s;
      rotated.at[i + 1] = own.at[i + 1] * c + own.at[i] * s;
    }
    return rotated;
  }
  const bool second = at >= pairs;
  const std::int64_t pair = second ? at - pairs : at;
  const Vec4 other = load_vec4<true>(x, second ? pair : at + pairs, 2 * pairs);
  const Vec4 c = load_vec4<true>(cosines, pair, pairs);
  const Vec4 s = load_vec4<true>(cosines + pairs, pair, pairs);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    rotated.at[i] = own.at[i] * c.at[i] + (second ? other.at[i] : -other.at[i]) * s.at[i];
  return rotated;
}

template <bool whole, class To>
__device__ void write_pairs(To* to, std::int64_t pairs, bool interleaved,
                            const RotatedPairs& vec4) {
  store_vec4<whole>(to, vec4.first_at, interleaved ? 2 * pairs : pairs, vec4.first);
  store_vec4<whole>(to, vec4.second_at, 2 * pairs, vec4.second);
}

}  // namespace motley::kernels::cuda
