#include "ops/rope.h"

#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/elementary.h"

namespace motley::ops {
namespace {

using Places = std::vector<std::pair<std::size_t, double>>;

void expect_frequencies(const RopeSpec& spec, const Places& expected) {
  const RopeFrequencies frequencies = rope_frequencies(spec);
  ASSERT_EQ(static_cast<std::int64_t>(frequencies.inverse_frequencies.size()), spec.dims / 2);
  for (const auto& [i, value] : expected) {
    ASSERT_NEAR(frequencies.inverse_frequencies[i] / value, 1.0, 1e-6) << "pair " << i;
  }
}

TEST(RopeFrequencies, WithoutScalingArePowersOfTheBase) {
  const RopeSpec spec{.dims = 8, .base = 10000};
  expect_frequencies(spec, {{0, 1}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  EXPECT_EQ(rope_frequencies(spec).attention_factor, 1.0F);
}

TEST(RopeFrequencies, LinearDividesByTheFactor) {
  expect_frequencies({.dims = 4, .base = 100, .scaling = RopeSpec::Scaling::linear, .factor = 4},
                     {{0, 0.25}, {1, 0.025}});
}

// Llama 3.1's numbers, from the definition in float64.
TEST(RopeFrequencies, Llama3KeepsShortWavesAndStretchesLongOnes) {
  expect_frequencies({.dims = 128,
                      .base = 500000,
                      .scaling = RopeSpec::Scaling::llama3,
                      .factor = 8,
                      .original_max_positions = 8192,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4},
                     {{0, 1.0},
                      {10, 0.12868737343265052},
                      {28, 0.0032114459947525913},
                      {30, 0.0013718935677611381},
                      {33, 0.00031269375038406517},
                      {40, 3.428102195952591e-05},
                      {63, 3.068925988914511e-07}});
}

// gpt-oss, whose ramp is not truncated to whole dimensions.
TEST(RopeFrequencies, YarnWithoutTruncation) {
  const RopeSpec spec{.dims = 64,
                      .base = 150000,
                      .scaling = RopeSpec::Scaling::yarn,
                      .factor = 32,
                      .original_max_positions = 4096,
                      .truncate = false};
  expect_frequencies(spec, {{0, 1.0},
                            {5, 0.15532298948448497},
                            {9, 0.03170569618466377},
                            {12, 0.006794959489732219},
                            {15, 0.0010526021013863359},
                            {20, 1.818833668168956e-05},
                            {31, 3.0235114281192144e-07}});
  EXPECT_NEAR(rope_frequencies(spec).attention_factor, 1.3465735902799727, 1e-6);
}

// DeepSeek-V3, whose two magnitudes cancel.
TEST(RopeFrequencies, YarnWithTruncationAndMagnitudes) {
  RopeSpec spec{.pairs = RopeSpec::Pairs::interleaved,
                .dims = 64,
                .base = 10000,
                .scaling = RopeSpec::Scaling::yarn,
                .factor = 40,
                .original_max_positions = 4096,
                .mscale = 1,
                .mscale_all_dim = 1};
  expect_frequencies(spec, {{0, 1.0},
                            {5, 0.23713737056616555},
                            {11, 0.03900692656714386},
                            {14, 0.01244795587027246},
                            {18, 0.002249365300761396},
                            {25, 1.8747355233311396e-05},
                            {31, 3.33380358040831e-06}});
  EXPECT_EQ(rope_frequencies(spec).attention_factor, 1.0F);
  EXPECT_TRUE(rope_frequencies(spec).interleaved);
  spec.mscale_all_dim = 0;
  EXPECT_NEAR(rope_frequencies(spec).attention_factor, yarn_magnitude(40, 1), 1e-6);
  spec.attention_factor = 1.5;
  EXPECT_EQ(rope_frequencies(spec).attention_factor, 1.5F);
  EXPECT_NEAR(yarn_magnitude(40, 0.707), 1.2608037774058554, 1e-9);
  EXPECT_EQ(yarn_magnitude(1, 1), 1.0);
}

TEST(Rope, TurnsAPartOfEachHead) {
  const Context context{.kernels = &kernels::cpu_table()};
  RopeFrequencies frequencies = rope_frequencies({.dims = 4, .base = 100});
  const std::vector<std::int32_t> positions = {0, 2};
  std::vector<float> angles(8);
  const tensor::Tensor cos_sin(reinterpret_cast<std::byte*>(angles.data()), DType::f32, {2, 4});
  const tensor::Tensor inverse(reinterpret_cast<std::byte*>(frequencies.inverse_frequencies.data()),
                               DType::f32, {2});
  rope_table(context, inverse, frequencies.attention_factor, positions.data(), cos_sin);

  // [2 rows, 2 heads, 7], of which elements 2 to 5 are rotated.
  std::vector<float> numbers;
  for (int i = 0; i < 28; ++i) numbers.push_back(static_cast<float>(i));
  const std::vector<float> before = numbers;
  const kernels::Heads heads{.heads = 2,
                             .width = 4,
                             .x = numbers.data() + 2,
                             .x_stride = 14,
                             .x_head_stride = 7,
                             .cos_sin = angles.data(),
                             .pairs = 2,
                             .out = numbers.data() + 2,
                             .out_stride = 14,
                             .out_head_stride = 7};
  context.kernels->prepare_heads({.rows = 2, .all = &heads, .count = 1}, context.stream);
  for (std::size_t i = 0; i < 14; ++i)
    EXPECT_EQ(numbers[i], before[i]) << "position 0 rotates nothing";
  for (std::size_t head = 2; head < 4; ++head) {
    const float* old = before.data() + 7 * head;
    const float* now = numbers.data() + 7 * head;
    for (const std::size_t i : {0, 1, 6}) EXPECT_EQ(now[i], old[i]);
    for (std::size_t pair = 0; pair < 2; ++pair) {
      const float angle = pair == 0 ? 2.0F : 0.2F;
      const float a = old[2 + pair];
      const float b = old[4 + pair];
      EXPECT_NEAR(now[2 + pair], a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(now[4 + pair], b * std::cos(angle) + a * std::sin(angle), 1e-5);
    }
  }
}

}  // namespace
}  // namespace motley::ops
