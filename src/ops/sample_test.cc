#include "ops/sample.h"

#include <array>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/elementary.h"
#include "tensor/arena.h"
#include "tensor/device/cpu_device.h"

namespace motley::ops {
namespace {

template <class T>
tensor::Tensor table(std::vector<T>& numbers, std::int64_t rows) {
  const auto width = static_cast<std::int64_t>(numbers.size()) / rows;
  return {std::as_writable_bytes(std::span(numbers)).data(), tensor::dtype_of<T>, {rows, width}};
}

TEST(Sample, ReadsTablesByTheirStridesAndGivesScratchBack) {
  tensor::CpuDevice device({.threads = 1});
  tensor::Arena arena(device.allocate(4096).value());
  const Context context{.kernels = &kernels::cpu_table(), .scratch = &arena};
  constexpr std::int64_t width = 5;
  std::vector<float> logits = {1, 2, 3, 4, 5, -1, 5, 4, 3, 2, 1, -1};
  std::vector<std::int32_t> masks = {0b01111, 0, 0b11111, 0};
  std::vector<std::int32_t> tokens = {0, 0, 0};
  std::vector<std::int32_t> counts(12, 0);
  const tensor::Tensor counts_table = table(counts, 2);
  count_tokens(context, tokens.data(), 1, 2, counts_table.select(1));
  const std::array<kernels::SampleChoice, 2> choices = {
      {{.mask_row = 0, .top_log_probabilities = 0}, {.presence = 1.5F, .counts_row = 1}}};
  std::array<std::int32_t, 2> ids{};
  std::array<float, 2> log_probabilities{};
  sample(context, table(logits, 2).slice(1, 0, width),
         {.choices = choices.data(), .masks = table(masks, 2), .counts = counts_table},
         {.ids = ids.data(), .log_probabilities = log_probabilities.data()});
  EXPECT_EQ(ids, (std::array<std::int32_t, 2>{3, 1}));
  EXPECT_NEAR(log_probabilities[0], -1.45191F, 1e-5);
  EXPECT_EQ(counts, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0}));
  EXPECT_EQ(arena.used(), 0U);
}

}  // namespace
}  // namespace motley::ops
