// What runs together on a GPU, and what `inspect --kernels` says of it.

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "score/golden_model.h"

namespace motley::score_tests {
namespace {

GoldenModel::Options on_gpu(bool exact, bool fusion) {
  return {.exact = exact,
          .device = {.kind = tensor::DeviceChoice::Kind::cuda},
          .graphs = false,
          .fusion = fusion};
}

class GpuLaunches : public testing::TestWithParam<std::string> {};

// The plain list is the definition: fused launches differ by the order of a product's sums alone.
TEST_P(GpuLaunches, WithoutFusionTheAnswersAreClose) {
  for (const bool exact : {true, false}) {
    GoldenModel fused(GetParam(), on_gpu(exact, true));
    GoldenModel plain(GetParam(), on_gpu(exact, false));
    double largest = 0;
    double sum = 0;
    std::int64_t count = 0;
    for (const runner::ScoreLine& line : fused.read_lines("decided.jsonl")) {
      const auto got = fused.score({line}, {fused.mix(line.adapters)});
      const auto wanted = plain.score({line}, {plain.mix(line.adapters)});
      for (std::size_t t = 1; t < line.tokens.size(); ++t) {
        const double apart =
            std::abs(double{got[0].token_logprobs[t]} - double{wanted[0].token_logprobs[t]});
        largest = std::isnan(apart) ? INFINITY : std::max(largest, apart);
        sum += apart;
        ++count;
      }
    }
    ASSERT_GT(count, 0);
    // In float32 the goldens' own tolerance; in bf16 what two orders of sums may make of a token.
    if (exact) {
      EXPECT_LE(largest, 1e-3) << GetParam();
    } else {
      EXPECT_LE(sum / static_cast<double>(count), 2.5e-2) << GetParam();
    }
  }
}

// The launches that a traced step names are the nodes of its captured graph, one for one.
TEST_P(GpuLaunches, ATracedStepNamesAllThatItsGraphHolds) {
  for (const bool fusion : {true, false}) {
    GoldenModel golden(GetParam(), on_gpu(false, fusion));
    runner::Runner& runner = golden.runner();
    const std::vector<std::int32_t> tokens(16, 1);
    for (const json::Value& each : cases_of(golden.golden())) {
      const lora::Mix mix = golden.mix_of(each);
      for (const auto& [sequences, count] : {std::pair(1, 1), std::pair(5, 1), std::pair(2, 16)}) {
        runner::ConsecutivePages all_pages(runner.kv());
        std::vector<std::vector<std::int32_t>> pages;
        std::vector<runner::Chunk> chunks;
        for (int i = 0; i < sequences; ++i) pages.push_back(all_pages.take(count));
        for (int i = 0; i < sequences; ++i)
          chunks.push_back({.pages = pages[static_cast<std::size_t>(i)],
                            .length = 0,
                            .tokens = std::span(tokens).first(static_cast<std::size_t>(count)),
                            .mix = mix,
                            .state = runner::SequenceState::certain_rows(i, 0, count)});
        runner.step(chunks, [](const auto&, const auto&) { return Result<void>(); }).value();
        const runner::Runner::Trace trace = runner.trace(chunks).value();
        std::int64_t named = 0;
        for (const model::TracedLaunch& launch : trace.launches)
          named += static_cast<std::int64_t>(launch.kernels.size());
        EXPECT_EQ(named, trace.captured)
            << GetParam() << ", case " << *at(each, "name").if_string() << ", " << sequences
            << " x " << count << (fusion ? "" : ", without fusion");
      }
    }
  }
}

// Families whose attention has maps with a bias.
constexpr std::array<std::string_view, 3> biased_families{"glm4_moe", "gpt_oss", "qwen2_moe"};
bool has_biases(std::string_view model) {
  return !model.starts_with("glm4_moe_lite") &&
         std::ranges::any_of(biased_families,
                             [&](std::string_view family) { return model.starts_with(family); });
}

std::vector<model::TracedLaunch> launches_of_step(GoldenModel& golden, std::size_t count) {
  runner::Runner& runner = golden.runner();
  const std::vector<std::int32_t> pages = runner::ConsecutivePages(runner.kv()).take(16);
  const std::vector<std::int32_t> tokens(count, 1);
  const std::vector<runner::Chunk> chunks{
      {.pages = pages,
       .length = 0,
       .tokens = std::span(tokens),
       .state = runner::SequenceState::certain_rows(0, 0, std::ssize(tokens))}};
  runner.step(chunks, [](const auto&, const auto&) { return Result<void>(); }).value();
  return runner.trace(chunks).value().launches;
}

std::int64_t biases_of(const model::TracedLaunch& launch) {
  return std::ranges::count(launch.ops, std::string_view("bias"));
}

// A step without adapters adds the biases of attention's maps in the launches that follow them:
// each op of the plain list is in a launch with others.
TEST_P(GpuLaunches, ABiasIsNoLaunchOfItsOwn) {
  GoldenModel fused(GetParam(), on_gpu(false, true));
  GoldenModel plain(GetParam(), on_gpu(false, false));
  for (const std::size_t count : {1, 16}) {
    std::int64_t wanted = 0;
    for (const model::TracedLaunch& launch : launches_of_step(plain, count))
      wanted += biases_of(launch);
    EXPECT_EQ(wanted > 0, has_biases(GetParam()));
    std::int64_t together = 0;
    for (const model::TracedLaunch& launch : launches_of_step(fused, count)) {
      if (biases_of(launch) == 0) continue;
      together += biases_of(launch);
      EXPECT_GT(launch.ops.size(), 1U) << GetParam() << ", " << launch.pattern;
      ASSERT_FALSE(launch.kernels.empty());
      EXPECT_NE(launch.kernels.front(), "round_to") << GetParam() << ", " << launch.pattern;
    }
    EXPECT_EQ(together, wanted) << GetParam() << ", " << count << " rows";
  }
}

TEST(GpuLaunchesOfBiases, EveryBiasedFamilyHasAGolden) {
  const std::vector<std::string> models = golden_models();
  for (const std::string_view family : biased_families)
    EXPECT_TRUE(std::ranges::any_of(models, [&](const std::string& model) {
      return model.starts_with(family);
    })) << family;
}

// Of quantised activations: a norm rounds its result for the products behind it, so a layer has a
// launch less for each such norm.
class GpuRoundedLaunches : public testing::TestWithParam<std::string> {};

TEST_P(GpuRoundedLaunches, ANormRoundsForTheProductsBehindIt) {
  GoldenModel::Options options = on_gpu(false, true);
  options.exact_inputs = false;
  GoldenModel golden(GetParam(), options);
  runner::Runner& runner = golden.runner();
  const std::vector<std::int32_t> tokens(16, 1);
  for (const std::size_t count : {1, 16}) {
    const std::vector<std::int32_t> pages =
        runner::ConsecutivePages(runner.kv()).take(static_cast<std::int64_t>(count));
    const std::array chunks{
        runner::Chunk{.pages = pages, .length = 0, .tokens = std::span(tokens).first(count)}};
    runner.step(chunks, [](const auto&, const auto&) { return Result<void>(); }).value();
    int fused = 0;
    for (const model::TracedLaunch& launch : runner.trace(chunks).value().launches) {
      if (!launch.pattern.ends_with("norm_linears")) continue;
      ++fused;
      for (const auto& kernel : launch.kernels) {
        EXPECT_NE(kernel, "arrange_inputs");
        EXPECT_NE(kernel, "code_rows");
      }
    }
    EXPECT_GE(fused, 2) << count << " rows of two layers";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuRoundedLaunches,
                         testing::Values("qwen3_moe_w8a8", "qwen3_moe_modelopt_fp8",
                                         "llama_fp8_static", "glm4_moe_fp8_channel",
                                         "olmoe_w8a8_static", "deepseek_v3_fp8"),
                         [](const auto& model) { return model.param; });

INSTANTIATE_TEST_SUITE_P(Models, GpuLaunches, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::score_tests
