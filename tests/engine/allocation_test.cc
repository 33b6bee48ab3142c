// What a step takes from the heap and from the device once it is warm: nothing, except for the
// alternatives to a token that its event owns.

#include <gtest/gtest.h>

#include "engine/golden_engine.h"
#include "engine/recurrent_mixers.h"
#include "engine/scheduling/scheduler.h"
#include "engine/steady_steps.h"
#include "support/allocations.h"

namespace motley::engine_tests {
namespace {

class CountingSink final : public engine::EventSink {
 public:
  void take(engine::Event event) override {
    if (std::holds_alternative<engine::TokenEvent>(event)) ++tokens;
    if (const auto* const error = std::get_if<Error>(&event)) FAIL() << error->message();
  }

  int tokens = 0;
};

class StepAllocations : public testing::TestWithParam<std::string> {};

void expect_none_in_steps(score_tests::GoldenModel& golden) {
  SteadySteps steps(golden);
  steps.run();
  const std::int64_t heap = test::counted_allocations();
  const std::uint64_t device = golden.device().usage().allocations;
  const std::uint64_t pinned = golden.device().pinned_usage().allocations;
  steps.run();
  EXPECT_EQ(test::counted_allocations() - heap, 0);
  EXPECT_EQ(golden.device().usage().allocations - device, 0);
  EXPECT_EQ(golden.device().pinned_usage().allocations - pinned, 0);
}

TEST_P(StepAllocations, StepsOfEveryKindTakeNone) {
  score_tests::GoldenModel golden(GetParam(), {.pages = 512});
  expect_none_in_steps(golden);
}

INSTANTIATE_TEST_SUITE_P(Models, StepAllocations, testing::ValuesIn(score_tests::golden_models()),
                         [](const auto& model) { return model.param; });

TEST(RecurrentAllocations, StepsOfEveryKindTakeNone) {
  score_tests::GoldenModel golden("qwen3_moe", {.pages = 512, .mixer = load_recurrent_mixer});
  expect_none_in_steps(golden);
}

// The scheduler's part is none either.
void expect_none_in_scheduled_steps(score_tests::GoldenModel& golden) {
  const auto pool =
      lora::Pool::create(golden.device(), {.bytes = std::uint64_t{16} << 20, .page_bytes = 4096})
          .value();
  engine::SamplerMaker samplers(std::nullopt, 1);
  const auto executor =
      engine::RunnerExecutor::create(golden.runner(), golden.model().config().vocabulary).value();
  engine::PoolStore store({.base = &golden.model().base_view(), .pool = pool.get()});
  const SteadyClock clock;
  engine::Scheduler scheduler(executor.get(), &store, &clock,
                              {.prefix_cache = true, .snapshot_interval = 16});

  std::vector<engine::Request> requests;
  for (const json::Value& each : score_tests::cases_of(golden.golden())) {
    if (requests.size() == 6) break;
    if (each.if_object()->find("greedy") == nullptr) continue;
    engine::Request request = greedy_request(each);
    for (const lora::ScaledAdapter& adapter : request.adapters) {
      scheduler.residency().load({.name = adapter.name,
                                  .path = golden.folder() / "adapters" / adapter.name,
                                  .load = score_tests::load_options(score_tests::at(each, "load"))},
                                 true, [](const Result<void>& loaded) { loaded.value(); });
      while (scheduler.residency().jobs() > 0) scheduler.residency().collect();
    }
    request.max_tokens = 40;
    // Some greedy, some not, some with alternatives.
    if (requests.size() % 2 == 1) request.sampling.temperature = 0.7F;
    if (requests.size() % 3 == 0) request.sampling.top_logprobs = 3;
    requests.push_back(std::move(request));
  }
  const auto sink = std::make_shared<CountingSink>();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    samplers.prepare(requests[i], [&](Result<std::unique_ptr<engine::Sampler>> sampler) {
      scheduler.submit({.id = i + 1,
                        .request = requests[i],
                        .sink = sink,
                        .sampler = *std::move(sampler),
                        .accepted = clock.now()});
    });
  }
  while (scheduler.waiting() > 0) scheduler.step().value();
  for (int i = 0; i < 4; ++i) scheduler.step().value();
  const int tokens = sink->tokens;
  const std::int64_t before = test::counted_allocations();
  // Pages are taken and published on the way.
  for (int i = 0; i < 24; ++i) {
    if (!scheduler.step().ok()) break;
  }
  const int with_alternatives = 24 * 2;
  EXPECT_EQ(test::counted_allocations() - before, with_alternatives);
  EXPECT_EQ(sink->tokens - tokens, 24 * 6);
  scheduler.cancel_all();
}

TEST(EngineAllocations, ADecodingStepTakesNone) {
  score_tests::GoldenModel golden("qwen3_moe", {});
  expect_none_in_scheduled_steps(golden);
}

// States are saved on the way.
TEST(RecurrentAllocations, ADecodingStepTakesNone) {
  score_tests::GoldenModel golden("qwen3_moe", {.mixer = load_recurrent_mixer});
  expect_none_in_scheduled_steps(golden);
}

}  // namespace
}  // namespace motley::engine_tests
