// Pairs of a head on their way round. Files that include this are compiled without fused products.
#pragma once

#include "kernels/cuda/fours.cuh"

namespace motley::kernels::cuda {

// Four turned pairs of a head, and where their fours stand.
struct TurnedPairs {
  Four first, second;
  std::int64_t first_at, second_at;  // from the first turned number on
};

// Pairs [at, at + 4) of x; cosines is a row of the rope's table. Pair i is (i, i + pairs), or (2i,
// 2i + 1) where interleaved: then four pairs are two fours side by side. `whole` as for read_four.
template <bool whole, class X>
__device__ TurnedPairs turned_pairs(const X* x, const float* cosines, std::int64_t pairs,
                                    bool interleaved, std::int64_t at) {
  const auto turn = [](float& a, float& b, float c, float s) {
    const float turned = a * c + -b * s;
    b = b * c + a * s;
    a = turned;
  };
  const Four c = read_four<whole>(cosines, at, pairs);
  const Four s = read_four<whole>(cosines + pairs, at, pairs);
  TurnedPairs four;
  four.first_at = interleaved ? 2 * at : at;
  four.second_at = interleaved ? 2 * at + 4 : pairs + at;
  const std::int64_t first_end = interleaved ? 2 * pairs : pairs;
  four.first = read_four<whole>(x, four.first_at, first_end);
  four.second = read_four<whole>(x, four.second_at, 2 * pairs);
  if (interleaved) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      turn(four.first.at[2 * i], four.first.at[2 * i + 1], c.at[i], s.at[i]);
      turn(four.second.at[2 * i], four.second.at[2 * i + 1], c.at[2 + i], s.at[2 + i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) turn(four.first.at[i], four.second.at[i], c.at[i], s.at[i]);
  }
  return four;
}

// The same a number at a time: number `at` of the turned ones.
template <class X>
__device__ float turned_number(const X* x, const float* cosines, std::int64_t pairs,
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

// Numbers [at, at + 4) of the turned ones, which are `own` before the turn; whole fours only.
template <class X>
__device__ Four turned_four(const X* x, const float* cosines, std::int64_t pairs, bool interleaved,
                            std::int64_t at, const Four& own) {
  Four turned;
  if (interleaved) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float c = cosines[at / 2 + i / 2];
      const float s = cosines[pairs + at / 2 + i / 2];
      turned.at[i] = own.at[i] * c + -own.at[i + 1] * s;
      turned.at[i + 1] = own.at[i + 1] * c + own.at[i] * s;
    }
    return turned;
  }
  const bool second = at >= pairs;
  const std::int64_t pair = second ? at - pairs : at;
  const Four other = read_four<true>(x, second ? pair : at + pairs, 2 * pairs);
  const Four c = read_four<true>(cosines, pair, pairs);
  const Four s = read_four<true>(cosines + pairs, pair, pairs);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    turned.at[i] = own.at[i] * c.at[i] + (second ? other.at[i] : -other.at[i]) * s.at[i];
  return turned;
}

template <bool whole, class To>
__device__ void write_pairs(To* to, std::int64_t pairs, bool interleaved, const TurnedPairs& four) {
  write_four<whole>(to, four.first_at, interleaved ? 2 * pairs : pairs, four.first);
  write_four<whole>(to, four.second_at, 2 * pairs, four.second);
}

}  // namespace motley::kernels::cuda
