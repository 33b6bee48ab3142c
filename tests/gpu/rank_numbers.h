#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/number_types.h"
#include "gpu/device_memory.h"

// What ranks compute sums of.
namespace motley::gpu_tests {

// Numbers whose sum depends on its order.
inline std::vector<float> numbers_of(int rank, std::size_t count, int seed = 0) {
  std::mt19937 random(static_cast<std::uint32_t>(rank * 7919 + seed * 104729) +
                      static_cast<std::uint32_t>(count));
  std::normal_distribution<float> normal(0, 1e3F);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

inline float as_it_crosses(float number, DType type) {
  return type == DType::bf16 ? bf16::from(number).to_float() : number;
}

inline std::vector<float> sum_in_order(int ranks, std::size_t count, DType type = DType::f32,
                                       int seed = 0) {
  std::vector<float> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> part = numbers_of(rank, count, seed);
    for (std::size_t i = 0; i < count; ++i) {
      const float own = as_it_crosses(part[i], type);
      sum[i] = rank == 0 ? own : sum[i] + own;
    }
  }
  for (float& number : sum) number = as_it_crosses(number, type);
  return sum;
}

inline std::span<float> span_of(const DeviceArray<float>& array) {
  return {array.data(), array.size()};
}

// Equal, or the first place that differs: arrays are long.
inline testing::AssertionResult same(const std::vector<float>& got,
                                     const std::vector<float>& expected) {
  if (got.size() != expected.size())
    return testing::AssertionFailure() << got.size() << " numbers, not " << expected.size();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i]))
      return testing::AssertionFailure()
             << got[i] << " at " << i << " of " << got.size() << ", not " << expected[i];
  return testing::AssertionSuccess();
}

}  // namespace motley::gpu_tests
