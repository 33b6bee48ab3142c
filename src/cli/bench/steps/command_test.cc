#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "cli/bench/steps/peers.h"
#include "cli/run_motley.h"
#include "model/config/shapes.h"
#include "model/weights/random_weights.h"

namespace motley::cli {
namespace {

using testing::HasSubstr;

Outcome bench(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench", "--shape",    "tiny", "--device",  "cpu", "--compute",
                                    "f32",   "--batch",    "2,8",  "--context", "24",  "--prefill",
                                    "4x16",  "--adapters", "0,2",  "--steps",   "1"};
  words.insert(words.end(), more.begin(), more.end());
  return motley(words);
}

TEST(Bench, EveryCaseIsALineOfJson) {
  const Outcome outcome = bench({"--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<json::Value> cases = lines(outcome.output);
  ASSERT_EQ(cases.size(), 6U) << outcome.output;
  for (const json::Value& each : cases) {
    EXPECT_GT(number(each, "step_seconds"), 0);
    // Random weights choose uniformly; a few steps of few rows deviate by some per cent.
    EXPECT_NEAR(number(each, "experts_a_layer") / number(each, "experts_expected"), 1, 0.2);
  }
  // Adapters add the factors that their rows read.
  EXPECT_GT(number(cases[1], "bytes"), number(cases[0], "bytes"));
  EXPECT_GT(number(cases[1], "operations"), number(cases[0], "operations"));

  const Outcome shared = bench({"--json", "--shared-outer"});
  EXPECT_EQ(shared.status, 0) << shared.errors;
  EXPECT_LT(number(lines(shared.output)[5], "bytes"), number(cases[5], "bytes"));
}

// Rows of a long prompt attend to almost the same positions, but choose experts like rows of many
// prompts.
TEST(Bench, RowsOfOnePromptChooseEvenly) {
  const Outcome outcome =
      motley({"bench", "--shape", "tiny", "--device", "cpu", "--compute", "f32", "--batch", "none",
              "--prefill", "256", "--adapters", "0,1", "--steps", "1", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<json::Value> cases = lines(outcome.output);
  ASSERT_EQ(cases.size(), 2U);
  for (const json::Value& each : cases)
    EXPECT_NEAR(number(each, "experts_a_layer") / number(each, "experts_expected"), 1, 0.02);
}

TEST(Bench, PrintsATable) {
  const Outcome outcome = bench({"--ranks", "8-16", "--format", "w4a16"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  for (const char* text :
       {"ceilings: reads", "2 adapters of rank 8, 16", "decode", "4x16", "vLLM+sampling"})
    EXPECT_THAT(outcome.output, HasSubstr(text));
}

TEST(Bench, RanksMayShareOutTheExperts) {
  const Outcome cut = bench({"--json", "--tp", "2"});
  const Outcome dealt = bench({"--json", "--tp", "2", "--ep", "2"});
  EXPECT_EQ(dealt.status, 0) << dealt.errors;
  const std::vector<json::Value> cases = lines(dealt.output);
  ASSERT_EQ(cases.size(), lines(cut.output).size());
  EXPECT_EQ(number(cases[0], "expert_groups"), 2);
  // A half of the experts, or a half of each.
  EXPECT_NEAR(number(cases[0], "operations"), number(lines(cut.output)[0], "operations"),
              1e-6 * number(cases[0], "operations"));
  EXPECT_THAT(bench({"--ep", "2"}).output, HasSubstr("2 groups"));
}

TEST(Bench, EveryFormatHasSteps) {
  for (const auto& [name, experts] : model::RandomWeights::names) {
    const Outcome outcome = motley({"bench", "--shape", "tiny", "--layers", "1", "--device", "cpu",
                                    "--batch", "1", "--prefill", "none", "--adapters", "0",
                                    "--steps", "1", "--format", std::string(name)});
    EXPECT_EQ(outcome.status, 0) << name << ": " << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr(cat("experts in ", name)));
  }
}

TEST(Bench, RefusesByName) {
  EXPECT_THAT(motley({"bench"}).errors, HasSubstr("--shape"));
  EXPECT_THAT(motley({"bench", "--shape", "nope"}).errors, HasSubstr("unknown shape 'nope'"));
  EXPECT_THAT(bench({"--layers", "3"}).errors, HasSubstr("use 1 to 2"));
  EXPECT_THAT(bench({"--adapter-dtype", "fp4"}).errors, HasSubstr("--adapter-dtype"));
  EXPECT_THAT(bench({"--ranks", "0"}).errors, HasSubstr("--ranks"));
}

TEST(Bench, EveryShapeIsAModel) {
  for (const model::NamedShape& shape : model::named_shapes()) {
    const auto config = model::shape_config(shape.name, std::nullopt);
    ASSERT_TRUE(config.ok()) << shape.name << ": " << config.error().message();
    EXPECT_EQ(config->layers, shape.layers);
    EXPECT_TRUE(config->has_experts());
  }
}

TEST(Bench, KnowsWhatAPeerTookOnTheSameCard) {
  const std::string_view card = "NVIDIA H200";
  EXPECT_EQ(peer_ms({"qwen3-30b-a3b", "bf16", 48, 64, 1, 4, card}), 24.91);
  EXPECT_EQ(peer_ms({"qwen3-30b-a3b", "bf16", 48, 1, 1, 4, card}), std::nullopt);
  EXPECT_EQ(peer_ms({"olmoe", "bf16", 16, 64, 1, 0, card}), std::nullopt);
  // Times of another card say nothing about this one.
  for (const std::string_view other : {"NVIDIA H100 80GB HBM3", "NVIDIA H200 NVL", ""})
    EXPECT_EQ(peer_ms({"qwen3-30b-a3b", "bf16", 48, 64, 1, 4, other}), std::nullopt) << other;
}

}  // namespace
}  // namespace motley::cli
