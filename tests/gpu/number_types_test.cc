#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/number_types_conversions.h"
#include "gpu/number_types_kernels.h"

namespace motley::gpu_tests {
namespace {

struct Case {
  const char* name;
  Format format;
  std::uint32_t codes;
};

class NumberTypesOnGpu : public testing::TestWithParam<Case> {};

TEST_P(NumberTypesOnGpu, WidensEveryCodeAsTheCpuDoes) {
  const auto [name, format, codes] = GetParam();
  const std::vector<std::uint32_t> wide = widen_on_gpu(format, codes);
  for (std::uint32_t code = 0; code < codes; ++code)
    ASSERT_EQ(wide[code], widen_one(format, code)) << name << " code " << code;
}

TEST_P(NumberTypesOnGpu, NarrowsAsTheCpuDoes) {
  const Format format = GetParam().format;
  // Every sign, exponent and upper mantissa with the lower bits at and around a tie, and random
  // ones.
  std::vector<std::uint32_t> floats;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      floats.push_back(upper << 16 | lower);
  }
  std::mt19937 random(11);
  for (int i = 0; i < 1'000'000; ++i) floats.push_back(static_cast<std::uint32_t>(random()));
  const std::vector<std::uint32_t> narrow = narrow_on_gpu(format, floats);
  for (std::size_t i = 0; i < floats.size(); ++i)
    ASSERT_EQ(narrow[i], narrow_one(format, floats[i])) << std::hex << "float32 bits " << floats[i];
}

INSTANTIATE_TEST_SUITE_P(
    Formats, NumberTypesOnGpu,
    testing::Values(Case{"f16", Format::f16, 65536}, Case{"bf16", Format::bf16, 65536},
                    Case{"f8_e4m3", Format::f8_e4m3, 256}, Case{"f8_e5m2", Format::f8_e5m2, 256},
                    Case{"f8_e8m0", Format::f8_e8m0, 256}, Case{"f4_e2m1", Format::f4_e2m1, 16}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace motley::gpu_tests
