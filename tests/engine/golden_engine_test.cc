// Whole models through the engine: what was recorded, and the same bits whatever runs beside.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "engine/golden_answers.h"
#include "score/failing_rank.h"

namespace motley::engine_tests {
namespace {

using score_tests::at;
using score_tests::cases_of;
using score_tests::GoldenModel;

#ifdef MOTLEY_SANITIZED
constexpr int soak_requests = 60;
#else
constexpr int soak_requests = 300;
#endif
constexpr std::uint64_t few_adapters = std::uint64_t{1} << 20;

void expect_all_adapters_as_recorded(GoldenModel& golden) {
  GoldenEngine world(golden, {});
  world.load_adapters();
  const double tolerance = at(golden.golden(), "tolerance").as_number("tolerance").value();
  expect_recorded_answers(world, golden, tolerance);
  expect_all_given_back(world);
}

// In few rows and few pages, with adapters that don't all fit.
void expect_same_bits_in_little_room(GoldenModel& golden, std::int64_t max_tokens) {
  const GoldenEngine::Options room{
      .max_rows = 7, .max_sequences = 6, .pages = 7, .adapter_bytes = few_adapters};
  const std::uint64_t preempted = expect_same_bits_beside_others(
      golden, {.room = room, .requests = 10, .max_tokens = max_tokens});
  EXPECT_GT(preempted, 0U);
}

class GoldenContinuations : public testing::TestWithParam<std::string> {};

TEST_P(GoldenContinuations, AllAdaptersInOneBatchAreAsRecorded) {
  GoldenModel golden(GetParam(), {});
  expect_all_adapters_as_recorded(golden);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenContinuations,
                         testing::ValuesIn(score_tests::golden_models()),
                         [](const auto& model) { return model.param; });

// A plain model and one with latents: whatever runs beside, however prompts are cut and whatever is
// pushed back, each answer has the tokens and bits that it has alone.
class GoldenBits : public testing::TestWithParam<std::string> {};

TEST_P(GoldenBits, NothingBesideChangesABit) {
  GoldenModel golden(GetParam(), {});
  expect_same_bits_in_little_room(golden, 40);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenBits, testing::Values("qwen3_moe", "deepseek_v3"),
                         [](const auto& model) { return model.param; });

// Ranks that are threads.
class GoldenRanks : public testing::TestWithParam<std::string> {};

TEST_P(GoldenRanks, AllAdaptersInOneBatchAreAsRecorded) {
  GoldenModel golden(GetParam(), {.threads = 1, .ranks = 3});
  expect_all_adapters_as_recorded(golden);
}

TEST_P(GoldenRanks, NothingBesideChangesABit) {
  GoldenModel golden(GetParam(), {.threads = 1, .ranks = 2});
  expect_same_bits_in_little_room(golden, 20);
}

TEST_P(GoldenRanks, ExpertsOnGroupsOfRanksAnswerAsRecorded) {
  GoldenModel golden(GetParam(), {.threads = 1, .ranks = 2, .expert_groups = 2});
  expect_all_adapters_as_recorded(golden);
}

// With one gate, as engines on GPUs have.
TEST_P(GoldenRanks, EnginesOfSeveralRanksAnswerBesideEachOther) {
  const auto gate = std::make_shared<dist::LaunchGate>();
  const GoldenModel::Options options{.threads = 1, .ranks = 2, .gate = gate};
  GoldenModel first(GetParam(), options);
  GoldenModel second(GetParam(), options);
  expect_same_bits_beside_other_engines(std::vector{&first, &second});
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenRanks, testing::Values("qwen3_moe", "deepseek_v3"),
                         [](const auto& model) { return model.param; });

class GoldenHostTier : public testing::TestWithParam<std::string> {};

TEST_P(GoldenHostTier, AdaptersThatComeBackHaveTheBitsOfBefore) {
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(cat(ranks, " ranks"));
    GoldenModel golden(GetParam(), {.threads = 1, .ranks = ranks});
    expect_same_bits_from_the_host(golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenHostTier, testing::ValuesIn(models_with_many_adapters()),
                         [](const auto& model) { return model.param; });

TEST(GoldenEngine, ExpertsOfGroupsComeBackFromTheHost) {
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 2, .expert_groups = 2});
  expect_same_bits_from_the_host(golden);
}

TEST(GoldenEngine, ARankThatFailsEndsTheEngineWithItsLine) {
  std::vector<std::unique_ptr<score_tests::FailingRank>> made;
  GoldenModel golden("qwen3_moe",
                     {.threads = 1, .ranks = 3, .wrap = [&](auto& ranks) {
                        const int sums = ranks.rank() == 2 ? 40 : std::numeric_limits<int>::max();
                        made.push_back(std::make_unique<score_tests::FailingRank>(ranks, sums));
                        return made.back().get();
                      }});
  GoldenEngine world(golden, {});
  const json::Value& first = cases_of(golden.golden()).front();
  for (int request = 0; request < 2; ++request) {
    const auto answer = world.submit(greedy_request(first));
    answer->wait();
    ASSERT_TRUE(answer->error.has_value());
    EXPECT_EQ(answer->error->message(), "the device is gone (rank 2)");
  }
}

// As replicas on GPUs of one process.
TEST(GoldenEngine, AnEngineWhoseRankFailsLeavesTheOthersBehindTheGate) {
  const auto gate = std::make_shared<dist::LaunchGate>();
  std::vector<std::unique_ptr<score_tests::FailingRank>> made;
  GoldenModel lost("qwen3_moe",
                   {.threads = 1, .ranks = 2, .gate = gate, .wrap = [&](auto& ranks) {
                      const int sums = ranks.rank() == 1 ? 40 : std::numeric_limits<int>::max();
                      made.push_back(std::make_unique<score_tests::FailingRank>(ranks, sums));
                      return made.back().get();
                    }});
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 2, .gate = gate});
  GoldenEngine lost_world(lost, {});
  GoldenEngine world(golden, {});
  const json::Value& first = cases_of(golden.golden()).front();
  const auto failed = lost_world.submit(greedy_request(first));
  const auto answer = world.submit(greedy_request(first));
  EXPECT_TRUE(failed->wait().error.has_value());
  EXPECT_FALSE(answer->wait().error.has_value());
  EXPECT_FALSE(world.submit(greedy_request(first))->wait().error.has_value());
}

TEST(GoldenEngine, StepsOfSeveralRanksWaitAtTheGate) {
  const auto gate = std::make_shared<dist::LaunchGate>();
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 2, .gate = gate});
  GoldenEngine world(golden, {});
  std::optional<dist::LaunchGate::Pass> pass(gate->enter(dist::LaunchGate::Way::together));
  const auto answer = world.submit(greedy_request(cases_of(golden.golden()).front()));
  // A step that asked for no pass would give the answer.
  test::wait_for("the step is at the gate",
                 [&] { return gate->waiting() > 0 || answer->closed(); });
  EXPECT_EQ(gate->waiting(), 1U);
  EXPECT_FALSE(answer->closed());
  pass.reset();
  EXPECT_FALSE(answer->wait().error.has_value());
}

TEST(GoldenEngine, AnAdapterThatOverflowsFailsAlone) {
  GoldenModel golden("qwen3_moe", {});
  expect_overflow_ends_alone(golden);
}

void expect_prefix_hit_changes_no_bit(GoldenModel& golden) {
  GoldenEngine world(golden, {});
  engine::Request request = greedy_requests(golden)[0];
  while (request.tokens.size() < 40)
    request.tokens.push_back(request.tokens[request.tokens.size() - 9]);
  const auto first = world.submit(request);
  first->wait();
  const auto second = world.submit(request);
  second->wait();
  EXPECT_EQ(first->cached_tokens, 0);
  EXPECT_EQ(second->cached_tokens, 32);
  EXPECT_EQ(first->tokens, second->tokens);
  EXPECT_EQ(first->logprobs, second->logprobs);
}

TEST(GoldenEngine, APrefixHitChangesNoBit) {
  GoldenModel golden("qwen3_moe", {});
  expect_prefix_hit_changes_no_bit(golden);
}

void expect_equal_choices_and_scored_prompts(GoldenModel& golden) {
  GoldenEngine world(golden, {.max_rows = 16, .max_sequences = 8});
  const std::vector<runner::ScoreLine> lines = golden.lines_of(cases_of(golden.golden())[0]);
  const runner::ScoreResult scored = golden.score({lines[0]}, {lora::Mix()})[0];
  const auto answer = world.submit({.tokens = lines[0].tokens,
                                    .sampling = {.temperature = 0, .logprobs = true},
                                    .max_tokens = 8,
                                    .choices = 3,
                                    .prompt_logprobs = true});
  answer->wait();
  ASSERT_FALSE(answer->error) << answer->error->message();
  EXPECT_TRUE(
      std::ranges::equal(answer->prompt_logprobs, std::span(scored.token_logprobs).subspan(1)));
  EXPECT_EQ(answer->tokens[0].size(), 8);
  for (const std::size_t choice : {1U, 2U}) {
    EXPECT_EQ(answer->tokens[choice], answer->tokens[0]);
    EXPECT_EQ(answer->logprobs[choice], answer->logprobs[0]);
  }
  expect_all_given_back(world);
}

TEST(GoldenEngine, ChoicesAreEqualAndPromptsAreScored) {
  GoldenModel golden("qwen3_moe", {});
  expect_equal_choices_and_scored_prompts(golden);
}

// Keys and values in FP8: pages that are found again, forked and pushed back keep their bits.
class GoldenFp8Cache : public testing::TestWithParam<std::string> {};

TEST_P(GoldenFp8Cache, NothingBesideChangesABit) {
  GoldenModel golden(GetParam(), {.kv_codes = true});
  expect_same_bits_in_little_room(golden, 40);
}

TEST_P(GoldenFp8Cache, NothingBesideChangesABitOnTwoRanks) {
  GoldenModel golden(GetParam(), {.threads = 1, .kv_codes = true, .ranks = 2});
  expect_same_bits_in_little_room(golden, 20);
}

TEST_P(GoldenFp8Cache, APrefixHitChangesNoBit) {
  GoldenModel golden(GetParam(), {.kv_codes = true});
  expect_prefix_hit_changes_no_bit(golden);
}

TEST_P(GoldenFp8Cache, ChoicesAreEqualAndPromptsAreScored) {
  GoldenModel golden(GetParam(), {.kv_codes = true});
  expect_equal_choices_and_scored_prompts(golden);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenFp8Cache, testing::Values("qwen3_moe", "deepseek_v3"),
                         [](const auto& model) { return model.param; });

// Random lengths, cancels, loads and unloads, on memory that is too small.
void expect_own_answers_in_a_soak(GoldenModel& golden, bool host_tier) {
  const std::vector<engine::Request> requests = greedy_requests(golden);
  std::vector<std::shared_ptr<Answer>> alone;
  {
    GoldenEngine world(golden, {});
    world.load_adapters();
    alone = answers_of(world, requests);
  }
  GoldenEngine world(golden, {.max_rows = 12,
                              .max_sequences = 8,
                              .pages = 10,
                              .adapter_bytes = few_adapters,
                              .host_tier = host_tier});
  world.load_adapters();
  std::mt19937 random(1);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random()) % end; };
  struct Live {
    std::size_t which;
    std::shared_ptr<Answer> answer;
    bool cancelled;
  };
  std::vector<Live> live;
  std::string unloaded;
  for (int i = 0; i < soak_requests; ++i) {
    const std::size_t which = below(requests.size());
    engine::Request request = requests[which];
    request.max_tokens = static_cast<std::int64_t>(1 + below(16));
    request.choices = below(5) == 0 ? 3 : 1;
    auto answer = std::make_shared<Answer>(request.choices);
    const auto id = world.engine().submit(request, answer);
    if (id.ok()) {
      const bool cancel = below(10) == 0;
      if (cancel) world.engine().cancel(*id);
      live.push_back({which, answer, cancel});
    } else {
      EXPECT_EQ(id.error().code(), ErrorCode::not_found);
    }
    if (below(20) == 0) {
      if (unloaded.empty()) {
        const std::vector<engine::AdapterInfo> adapters = world.engine().adapters();
        unloaded = adapters[below(adapters.size())].name;
        EXPECT_TRUE(world.unload(unloaded).ok());
      } else {
        EXPECT_TRUE(world.load(std::exchange(unloaded, {}), false).ok());
      }
    }
    // Some requests in flight, not all of them at once.
    if (live.size() > 24) live[live.size() - 24].answer->wait();
  }
  for (const Live& each : live) {
    each.answer->wait();
    if (each.answer->error) {
      EXPECT_EQ(each.answer->error->code(), ErrorCode::not_found) << each.answer->error->message();
      continue;
    }
    const std::vector<std::int32_t>& expected = alone[each.which]->tokens[0];
    for (const std::vector<std::int32_t>& tokens : each.answer->tokens) {
      EXPECT_TRUE(std::ranges::equal(tokens, std::span(expected).first(tokens.size())));
      EXPECT_TRUE(each.cancelled || !tokens.empty());
    }
  }
  EXPECT_GT(world.engine().stats().adapter_loads, 0);
  EXPECT_GT(world.engine().stats().adapter_evictions, 0);
  expect_all_given_back(world);
}

TEST(GoldenEngine, SoakGivesEveryRequestItsOwnAnswer) {
  GoldenModel golden("qwen3_moe", {});
  expect_own_answers_in_a_soak(golden, false);
}

TEST(GoldenEngine, SoakOnRanksWithTheHostBehindGivesEveryRequestItsOwnAnswer) {
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 2});
  expect_own_answers_in_a_soak(golden, true);
}

}  // namespace
}  // namespace motley::engine_tests
