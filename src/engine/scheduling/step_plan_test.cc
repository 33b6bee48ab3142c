#include "engine/scheduling/step_plan.h"

#include <gtest/gtest.h>

#include "engine/sequences/test_sequences.h"

namespace motley::engine::test {
namespace {

Executor::Limits limits_with(std::int64_t state_slots) {
  Executor::Limits limits = WorldOptions{}.limits;
  limits.state_slots = state_slots;
  return limits;
}

StepPlan plan_of(std::int64_t rows) { return StepPlan({.rows = rows, .sequences = 8}); }

TEST(StepPlan, OnlyTheEndOfAPromptDraws) {
  Sequences sequences;
  const auto running = sequences.running({.tokens = prompt(10)});
  StepPlan plan = plan_of(16);
  plan.start(0);
  plan.add(*running, 6).value();
  plan.finish();
  EXPECT_EQ(plan.rows_left(), 10);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan.chunks()[0].tokens.size(), 6U);
  EXPECT_EQ(plan.chunks()[0].logits, runner::LogitsOf::none);
  EXPECT_TRUE(plan.outputs()[0].draws.empty());

  running->computed = 6;
  plan.start(0);
  EXPECT_TRUE(plan.empty());
  plan.add(*running, 4).value();
  plan.finish();
  EXPECT_EQ(plan.chunks()[0].length, 6);
  EXPECT_EQ(plan.chunks()[0].tokens[0], running->sequence.tokens[6]);
  EXPECT_EQ(plan.chunks()[0].logits, runner::LogitsOf::last);
  ASSERT_EQ(plan.outputs()[0].draws.size(), 1U);
  EXPECT_EQ(plan.outputs()[0].draws[0].sampler, running->sequence.sampler.get());
  EXPECT_EQ(plan.outputs()[0].draws[0].prompt_tokens, 10);
}

TEST(StepPlan, DrawsOfEachSequenceAreItsOwn) {
  Sequences sequences;
  const auto first = sequences.running({.tokens = prompt(3, 1)});
  const auto second = sequences.running({.tokens = prompt(9, 2)});
  const auto third = sequences.running({.tokens = prompt(2, 3)});
  StepPlan plan = plan_of(16);
  plan.start(0);
  plan.add(*first, 3).value();
  plan.add(*second, 5).value();
  plan.add(*third, 2).value();
  plan.finish();
  EXPECT_EQ(plan.rows_left(), 6);
  EXPECT_EQ(plan.part(0).output.draws[0].sampler, first->sequence.sampler.get());
  EXPECT_TRUE(plan.part(1).output.draws.empty());
  EXPECT_EQ(plan.part(2).output.draws[0].sampler, third->sequence.sampler.get());
  EXPECT_EQ(&plan.part(2).running, third.get());
}

TEST(StepPlan, ARequestForkedIntoAsManyAsThereAreFreeSequences) {
  struct Row {
    std::int64_t free = 0;
    std::vector<int> choices;  // that draw
  };
  const std::vector<Row> rows = {{0, {0}}, {1, {0, 2}}, {2, {0, 2, 3}}, {9, {0, 2, 3}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.free);
    Sequences sequences;
    const auto running = sequences.running({.tokens = prompt(3), .choices = 4});
    running->sequence.job->closed[1] = true;
    StepPlan plan = plan_of(16);
    plan.start(row.free);
    plan.add(*running, 3).value();
    plan.finish();
    const StepPlan::Part part = plan.part(0);
    ASSERT_EQ(part.output.draws.size(), row.choices.size());
    ASSERT_EQ(part.forked_samplers.size(), row.choices.size());
    for (std::size_t i = 0; i < row.choices.size(); ++i) {
      EXPECT_EQ(part.output.draws[i].sampler, part.forked_samplers[i].get());
      EXPECT_EQ(dynamic_cast<FakeSampler&>(*part.forked_samplers[i]).choice, row.choices[i]);
    }
  }
}

TEST(StepPlan, AScoredPromptAsksForTheTokensThatFollow) {
  Sequences sequences;
  const auto running = sequences.running(
      {.tokens = prompt(5), .max_tokens = 0, .prompt_logprobs = true, .prompt_top = 2});
  const std::vector<std::int32_t>& tokens = running->sequence.tokens;
  StepPlan plan = plan_of(16);
  plan.start(0);
  plan.add(*running, 3).value();
  plan.finish();
  EXPECT_EQ(plan.chunks()[0].logits, runner::LogitsOf::all);
  EXPECT_TRUE(std::ranges::equal(plan.outputs()[0].scored, std::span(tokens).subspan(1, 3)));
  EXPECT_EQ(plan.outputs()[0].top, 2);
  running->computed = 3;
  plan.start(0);
  plan.add(*running, 2).value();
  plan.finish();
  EXPECT_TRUE(std::ranges::equal(plan.outputs()[0].scored, std::span(tokens).subspan(4)))
      << "nothing follows the last token";
  EXPECT_TRUE(plan.outputs()[0].draws.empty()) << "no token is asked for";
}

TEST(StepPlan, NoLogitsAreComputedBeforeTheFirstTokenThatIsScored) {
  Sequences sequences;
  const auto running =
      sequences.running({.tokens = prompt(8),
                         .max_tokens = 0,
                         .prompt_logprobs = true,
                         .prompt_first = 5,
                         .prompt_named = {.width = 2, .ids = {10, 11, 12, 13, 14, -1}}});
  StepPlan plan = plan_of(16);
  const auto planned = [&](std::int64_t computed, std::int64_t rows) {
    running->computed = computed;
    plan.start(0);
    plan.add(*running, rows).value();
    plan.finish();
    return plan.outputs()[0];
  };
  EXPECT_EQ(planned(0, 4).logits(), runner::LogitsOf::none);
  const ChunkOutput last = planned(3, 5);
  EXPECT_EQ(plan.chunks()[0].logits, runner::LogitsOf::all);
  EXPECT_EQ(plan.chunks()[0].first_logits, 1U);
  EXPECT_TRUE(std::ranges::equal(last.scored, std::span(running->sequence.tokens).subspan(5, 3)));
  EXPECT_TRUE(std::ranges::equal(last.named, std::vector{10, 11, 12, 13, 14, -1}));
  const ChunkOutput middle = planned(5, 1);
  EXPECT_EQ(middle.first_scored, 0U);
  EXPECT_TRUE(std::ranges::equal(middle.named, std::vector{12, 13}));
}

TEST(StepPlan, ARowThatMayHaveToBeDrawnAgainIsNotCertain) {
  for (const bool grammar : {false, true}) {
    Sequences sequences(limits_with(4));
    const auto running = sequences.running({.tokens = prompt(10)});
    running->sequence.sampler = std::make_unique<FakeSampler>(0, grammar);
    running->anchor = 4;
    running->computed = 5;
    StepPlan plan = plan_of(16);
    plan.start(0);
    plan.add(*running, 3).value();
    plan.finish();
    EXPECT_EQ(plan.chunks()[0].state.slot, running->slot.number());
    EXPECT_EQ(plan.chunks()[0].state.anchor, 4);
    EXPECT_EQ(plan.chunks()[0].state.certain, 3);
    plan.start(0);
    plan.add(*running, 5).value();
    plan.finish();
    EXPECT_EQ(plan.chunks()[0].state.certain, grammar ? 4 : 5);
    EXPECT_FALSE(plan.part(0).saves_state);
  }
}

TEST(StepPlan, AStateThatIsSavedTakesInNoRowAfterItsPlace) {
  for (const bool grammar : {false, true}) {
    Sequences sequences(limits_with(4));
    const auto running = sequences.running({.tokens = prompt(10)});
    running->sequence.sampler = std::make_unique<FakeSampler>(0, grammar);
    StepPlan plan = plan_of(16);
    plan.start(0);
    plan.add(*running, 10).value();
    plan.save_state(7);
    plan.finish();
    EXPECT_EQ(plan.chunks()[0].state.certain, 7);
    EXPECT_TRUE(plan.part(0).saves_state);
  }
}

TEST(StepPlan, SaysWhatRuns) {
  Sequences sequences;
  const auto first = sequences.running({.tokens = prompt(3)});
  const auto second = sequences.running({.tokens = prompt(5)});
  StepPlan plan = plan_of(16);
  plan.start(0);
  plan.add(*first, 3).value();
  plan.add(*second, 4).value();
  plan.finish();
  EXPECT_EQ(plan.describe(), "7 rows of 2 sequences, adapters: none");
}

}  // namespace
}  // namespace motley::engine::test
