// A step after warm-up takes nothing from the heap.

#include <vector>

#include <gtest/gtest.h>

#include "score/golden_model.h"
#include "support/allocations.h"

namespace motley::score_tests {
namespace {

// What three steps take after warm-up.
std::int64_t allocations_of_steps(GoldenModel& golden) {
  // Base and adapters side by side: a prompt's piece and single tokens.
  std::vector<lora::Mix> mixes = {lora::Mix()};
  for (const json::Value& each : cases_of(golden.golden())) {
    mixes.push_back(golden.mix_of(each));
    if (mixes.size() == 4) break;
  }
  runner::ConsecutivePages all_pages(golden.runner().kv());
  std::vector<std::vector<std::int32_t>> pages;
  const std::vector<std::int32_t> tokens = {3, 14, 15, 92, 65, 35};
  std::vector<runner::Chunk> chunks;
  for (std::size_t i = 0; i < mixes.size(); ++i) {
    pages.push_back(all_pages.take(64));
    chunks.push_back({.pages = pages.back(),
                      .tokens = std::span(tokens).first(i == 0 ? 6 : 1),
                      .mix = mixes[i],
                      .logits = runner::LogitsOf::all});
  }
  double sum = 0;
  auto sink = [&sum](const tensor::Tensor& logits,
                     std::span<const runner::LogitRow>) -> Result<void> {
    sum += double{logits.data<float>()[0]};
    return {};
  };
  const auto step = [&] {
    for (std::size_t i = 0; i < chunks.size(); ++i)
      chunks[i].state = runner::SequenceState::certain_rows(
          static_cast<std::int32_t>(i), chunks[i].length, std::ssize(chunks[i].tokens));
    golden.runner().step(chunks, sink).value();
    for (runner::Chunk& chunk : chunks)
      chunk.length += static_cast<std::int64_t>(chunk.tokens.size());
  };
  for (int i = 0; i < 3; ++i) step();
  const std::int64_t before = test::counted_allocations();
  for (int i = 0; i < 3; ++i) step();
  return test::counted_allocations() - before;
}

class Allocations : public testing::TestWithParam<std::string> {};

TEST_P(Allocations, AStepTakesNoneAfterWarmUp) {
  GoldenModel golden(GetParam(), {});
  EXPECT_EQ(allocations_of_steps(golden), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Allocations, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

class AllocationsOfRanks : public testing::TestWithParam<std::string> {};

TEST_P(AllocationsOfRanks, AStepTakesNoneAfterWarmUp) {
  GoldenModel golden(GetParam(), {.threads = 1, .ranks = 3});
  EXPECT_EQ(allocations_of_steps(golden), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, AllocationsOfRanks,
                         testing::Values("qwen3_moe", "olmoe", "gpt_oss", "deepseek_v3"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::score_tests
