// The experts of tokens through the engine: what Hugging Face's routers choose, and the same
// whatever runs beside.

#include <gtest/gtest.h>

#include "engine/golden_answers.h"
#include "engine/routed_answers.h"

namespace motley::engine_tests {
namespace {

using score_tests::GoldenModel;

// Prompts in pieces, and adapters of all kinds in one step.
constexpr GoldenEngine::Options in_pieces{
    .max_rows = 16, .max_sequences = 8, .routed_experts = true};

class RoutedExperts : public testing::TestWithParam<std::string> {};

TEST_P(RoutedExperts, OfAllAdaptersInOneBatchAreAsRecorded) {
  GoldenModel golden(GetParam(), {});
  GoldenEngine world(golden, in_pieces);
  world.load_adapters();
  expect_recorded_experts(world, GetParam());
  expect_all_given_back(world);
}

INSTANTIATE_TEST_SUITE_P(Models, RoutedExperts, testing::ValuesIn(models_with_routed_experts()),
                         [](const auto& model) { return model.param; });

class RoutedExpertsOfRanks : public testing::TestWithParam<std::string> {};

TEST_P(RoutedExpertsOfRanks, AreAsRecordedWhereverExpertsAre) {
  for (const int groups : {1, 2}) {
    GoldenModel golden(GetParam(), {.threads = 1, .ranks = 2, .expert_groups = groups});
    GoldenEngine world(golden, in_pieces);
    world.load_adapters();
    expect_recorded_experts(world, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RoutedExpertsOfRanks, testing::Values("qwen3_moe", "deepseek_v3"),
                         [](const auto& model) { return model.param; });

// Without pages enough for all at once, so that some are preempted.
TEST(RoutedExpertsOfAnAnswer, AreThoseThatItHasAlone) {
  GoldenModel golden("qwen3_moe", {});
  std::vector<engine::Request> requests = greedy_requests(golden);
  requests.resize(10);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_tokens = 40;
    requests[i].choices = i % 3 == 0 ? 2 : 1;
    requests[i].routed_experts_from = static_cast<std::int64_t>(i % 4);
  }
  std::vector<std::shared_ptr<Answer>> alone;
  {
    GoldenEngine world(golden, {.prefix_cache = false, .routed_experts = true});
    world.load_adapters();
    for (const engine::Request& request : requests)
      alone.push_back(answers_of(world, {request})[0]);
  }
  GoldenEngine world(golden,
                     {.max_rows = 7, .max_sequences = 6, .pages = 7, .routed_experts = true});
  world.load_adapters();
  const std::vector<std::shared_ptr<Answer>> beside = answers_of(world, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t choice = 0; choice < beside[i]->tokens.size(); ++choice) {
      EXPECT_EQ(beside[i]->tokens[choice], alone[i]->tokens[choice]) << i;
      EXPECT_EQ(routed_of(*beside[i], choice), routed_of(*alone[i], choice)) << i;
      const std::size_t tokens =
          requests[i].tokens.size() + beside[i]->tokens[choice].size() - 1 - i % 4;
      EXPECT_EQ(routed_of(*beside[i], choice).size(),
                tokens * world.engine().routed_experts().bytes_of_token());
    }
  }
  EXPECT_GT(world.engine().stats().preemptions, 0U);
}

TEST(RoutedExpertsOfAnAnswer, BeginWhereTheRequestSaysAndWhatIsBeforeIsFound) {
  GoldenModel golden("qwen3_moe", {});
  GoldenEngine world(golden, in_pieces);
  engine::Request request = greedy_requests(golden)[0];
  while (request.tokens.size() < 40)
    request.tokens.push_back(request.tokens[request.tokens.size() - 9]);
  request.routed_experts_from = 0;
  const auto whole = answers_of(world, {request})[0];
  request.routed_experts_from = 20;
  const auto later = answers_of(world, {request})[0];
  EXPECT_EQ(later->cached_tokens, 16);
  EXPECT_EQ(later->tokens, whole->tokens);
  const std::size_t left_out = 20 * world.engine().routed_experts().bytes_of_token();
  const std::vector<std::uint8_t> all = routed_of(*whole, 0);
  EXPECT_EQ(
      routed_of(*later, 0),
      std::vector<std::uint8_t>(all.begin() + static_cast<std::ptrdiff_t>(left_out), all.end()));
}

TEST(RoutedExpertsOfAnAnswer, AreRefusedWhereTheyAreNotKeptOrBeginBehindThePrompt) {
  GoldenModel golden("qwen3_moe", {});
  engine::Request request = greedy_requests(golden)[0];
  request.routed_experts_from = 0;
  {
    GoldenEngine world(golden, {});
    EXPECT_FALSE(world.engine().routed_experts().kept());
    const auto answer = world.submit(request);
    ASSERT_TRUE(answer->error);
    EXPECT_NE(answer->error->message().find("--enable-return-routed-experts"), std::string::npos)
        << answer->error->message();
  }
  GoldenEngine world(golden, in_pieces);
  for (const std::int64_t from : {std::int64_t{-1}, std::ssize(request.tokens) + 1}) {
    request.routed_experts_from = from;
    const auto answer = world.submit(request);
    ASSERT_TRUE(answer->error);
    EXPECT_EQ(answer->error->where(), "routed_experts_prompt_start");
  }
  request.routed_experts_from = std::ssize(request.tokens);
  EXPECT_FALSE(answers_of(world, {request})[0]->error);
}

// A request that does not ask has the bits that it has where nothing is kept.
TEST(RoutedExpertsOfAnAnswer, ChangeNoBit) {
  GoldenModel golden("deepseek_v3", {});
  std::vector<std::vector<std::vector<float>>> logprobs;
  for (const bool kept : {false, true}) {
    GoldenEngine world(golden, {.routed_experts = kept});
    world.load_adapters();
    for (const auto& answer : answers_of(world, greedy_requests(golden)))
      logprobs.push_back(answer->logprobs);
  }
  const auto half = static_cast<std::ptrdiff_t>(logprobs.size() / 2);
  EXPECT_TRUE(std::equal(logprobs.begin(), logprobs.begin() + half, logprobs.begin() + half));
}

}  // namespace
}  // namespace motley::engine_tests
