// Scheduling for models that keep a state for each sequence. The fake executor's states are hashes:
// one that is copied late, restored elsewhere or advanced twice changes the answer, and aborts.

#include <gtest/gtest.h>

#include "engine/scheduling/scheduler.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

WorldOptions with_states(std::int64_t slots, std::int64_t snapshots) {
  WorldOptions options;
  options.limits.state_slots = slots;
  options.limits.sequences = std::min(options.limits.sequences, slots);
  options.limits.snapshots = snapshots;
  return options;
}

Stats stats_of(const World& world) {
  Stats stats;
  world.scheduler.fill(stats);
  return stats;
}

// Requests with prompts of their own, the first the shortest.
class Several {
 public:
  Several(World& world, std::int32_t count, std::int32_t shortest, std::int64_t max_tokens)
      : world_(world) {
    for (std::int32_t i = 0; i < count; ++i) {
      requests_.push_back({.tokens = prompt(shortest + i, i), .max_tokens = max_tokens});
      sinks_.push_back(world.submit(requests_.back()));
    }
  }
  void expect_right_answers() const {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      EXPECT_EQ(sinks_[i]->tokens[0], world_.expected(requests_[i])) << "request " << i;
  }

 private:
  World& world_;
  std::vector<Request> requests_;
  std::vector<std::shared_ptr<MemorySink>> sinks_;
};

TEST(SchedulerStates, RunAsManySequencesAsThereAreSlots) {
  World world(with_states(3, 4));
  const Several requests(world, 7, 5, 9);
  world.run(2);
  EXPECT_EQ(world.scheduler.running(), 3);
  world.run();
  requests.expect_right_answers();
}

TEST(SchedulerStates, TheSamePromptBeginsAtItsLastBorder) {
  World world(with_states(2, 4));
  const Request request{.tokens = prompt(11), .max_tokens = 1};
  world.submit(request);
  world.run();
  const auto again = world.submit(request);
  world.run();
  // Pages of 4: the state stood at 8, and one token at least is computed.
  EXPECT_EQ(again->start->cached_tokens, 8);
  EXPECT_EQ(again->tokens[0], world.expected(request));
  EXPECT_EQ(world.executor.restores, 1);
}

// However far the prompt goes on after the place at which its state is saved.
TEST(SchedulerStates, SavingAPromptsStateCostsNoStep) {
  for (std::int32_t after = 1; after <= 13; ++after) {
    World world(with_states(2, 4));
    Request request{.tokens = prompt(20 + after), .conversation_tokens = 20, .max_tokens = 3};
    const auto first = world.submit(request);
    world.run(1);
    // The rows that the state leaves out are in its log, which has room for 3 and 8 of them.
    EXPECT_EQ(first->tokens[0].size(), after <= 11 ? 1U : 0U) << after;
    world.run();
    EXPECT_EQ(first->tokens[0], world.expected(request));
    request.tokens.resize(20);
    request.tokens.insert(request.tokens.end(), {1, 2, 3});
    const auto second = world.submit(request);
    world.run();
    EXPECT_EQ(second->start->cached_tokens, 20);
    EXPECT_EQ(second->tokens[0], world.expected(request));
  }
}

TEST(SchedulerStates, TheNextTurnBeginsWhereTheAnswerEnded) {
  World world(with_states(2, 4));
  Request request{.tokens = prompt(6), .max_tokens = 12};
  const auto first = world.submit(request);
  world.run();
  Request next = request;
  next.tokens.insert(next.tokens.end(), first->tokens[0].begin(), first->tokens[0].end());
  next.tokens.insert(next.tokens.end(), {1, 2, 3});
  const auto second = world.submit(next);
  world.run();
  // The last token of 18 was drawn, and never computed.
  EXPECT_EQ(second->start->cached_tokens, 16);
  EXPECT_EQ(second->tokens[0], world.expected(next));
  EXPECT_EQ(stats_of(world).prefix_state_missed_tokens, 0);
}

TEST(SchedulerStates, AnAnswerThatIsCutOffIsContinuedToo) {
  World world(with_states(2, 4));
  Request request{.tokens = prompt(6), .max_tokens = 40};
  const auto first = world.submit(request);
  world.run(8);
  world.scheduler.cancel(world.last_id);
  ASSERT_GE(first->tokens[0].size(), 7U);
  request.tokens.insert(request.tokens.end(), first->tokens[0].begin(),
                        first->tokens[0].begin() + 7);
  const auto second = world.submit(request);
  world.run();
  EXPECT_EQ(second->start->cached_tokens, 12) << "all that was computed";
  EXPECT_EQ(second->tokens[0], world.expected(request));
}

// Of all lengths, so also where the answer's last row ends a page. With a grammar that row's draw
// might have had to wait, and the state stays a page before.
TEST(SchedulerStates, AnAnswerMayEndAtABorder) {
  for (const bool grammar : {false, true}) {
    for (std::int64_t length = 1; length <= 8; ++length) {
      World world(with_states(2, 4));
      Request request{.tokens = prompt(6), .max_tokens = length};
      const auto first = world.submit(request, std::make_unique<FakeSampler>(0, grammar));
      world.run();
      Request next = request;
      next.tokens.insert(next.tokens.end(), first->tokens[0].begin(), first->tokens[0].end());
      next.tokens.insert(next.tokens.end(), {1, 2, 3});
      const auto second = world.submit(next);
      world.run();
      // The last token was drawn, and never computed.
      const std::int64_t computed = 6 + length - 1;
      EXPECT_EQ(second->start->cached_tokens, (computed - (grammar ? 1 : 0)) / 4 * 4) << length;
      EXPECT_EQ(second->tokens[0], world.expected(next));
      EXPECT_EQ(stats_of(world).prefix_state_missed_tokens, grammar && computed % 4 == 0 ? 4 : 0);
    }
  }
}

// The template writes the answer without what the generation prompt has begun.
TEST(SchedulerStates, AConversationGoesOnBeforeItsGenerationPrompt) {
  World world(with_states(2, 4));
  Request request{.tokens = prompt(22), .conversation_tokens = 15, .max_tokens = 5};
  const auto first = world.submit(request);
  world.run();
  EXPECT_EQ(first->tokens[0], world.expected(request));
  request.tokens.resize(15);
  request.tokens.insert(request.tokens.end(), {1, 2, 3, 4, 5, 6});
  request.conversation_tokens = 21;
  const auto second = world.submit(request);
  world.run();
  EXPECT_EQ(second->start->cached_tokens, 12);
  EXPECT_EQ(second->tokens[0], world.expected(request));
}

// What a stop string has ended goes on with tokens that the answer does not have.
TEST(SchedulerStates, AnAnswerIsSavedOnlyIfAllOfItIsKept) {
  for (const std::int64_t kept : {5, 6}) {
    World world(with_states(2, 4));
    Request request{.tokens = prompt(6), .max_tokens = 40};
    const auto first = world.submit(request);
    world.run(8);
    world.scheduler.cancel(world.last_id, 0, kept);
    // 12 tokens were computed, and the state stands there.
    EXPECT_EQ(world.executor.saves, kept < 6 ? 1 : 2) << "place 1 at 4, and the answer's end";
    request.tokens.insert(request.tokens.end(), first->tokens[0].begin(),
                          first->tokens[0].begin() + 7);
    const auto second = world.submit(request);
    world.run();
    EXPECT_EQ(second->start->cached_tokens, kept < 6 ? 4 : 12);
  }
}

TEST(SchedulerStates, PagesWithoutAStateAreComputedAgain) {
  World world(with_states(2, 1));
  const Request one{.tokens = prompt(30, 1), .max_tokens = 1};
  const Request other{.tokens = prompt(30, 2), .max_tokens = 1};
  world.submit(one);
  world.run();
  world.submit(other);  // takes the only place
  world.run();
  const auto again = world.submit(one);
  world.run();
  EXPECT_EQ(again->start->cached_tokens, 0);
  EXPECT_EQ(again->tokens[0], world.expected(one));
  EXPECT_EQ(stats_of(world).prefix_state_missed_tokens, 28);
}

// What several requests begin with gets a snapshot when the second one comes.
TEST(SchedulerStates, ASharedBeginningGetsASnapshot) {
  World world(with_states(2, 8));
  std::vector<std::int32_t> shared = prompt(80, 1);
  const auto ask = [&](std::int32_t last) {
    Request request{.tokens = shared, .max_tokens = 1};
    for (std::int32_t i = 0; i < 20; ++i) request.tokens.push_back(last);
    const auto sink = world.submit(request);
    world.run();
    EXPECT_EQ(sink->tokens[0], world.expected(request));
    return sink->start->cached_tokens;
  };
  EXPECT_EQ(ask(11), 0);
  EXPECT_EQ(ask(12), 0);
  EXPECT_EQ(ask(13), 80);
  EXPECT_EQ(stats_of(world).prefix_state_missed_tokens, 80);
}

// Two prompts that part in the middle of a long one.
TEST(SchedulerStates, LongSequencesAreSavedOnTheWay) {
  WorldOptions options = with_states(2, 8);
  options.snapshot_interval = 24;
  options.limits.rows = 10;
  World world(options);
  Request request{.tokens = prompt(100, 1), .max_tokens = 1};
  world.submit(request);
  world.run();
  request.tokens[70] = 5;
  const auto other = world.submit(request);
  world.run();
  // After steps of 10 rows the state stands at 28, and 24 positions later at 60.
  EXPECT_EQ(other->start->cached_tokens, 60);
  EXPECT_EQ(other->tokens[0], world.expected(request));
}

TEST(SchedulerStates, ChoicesGoOnWithCopies) {
  World world(with_states(4, 8));
  const Request request{.tokens = prompt(10), .max_tokens = 20, .choices = 6};
  const auto sink = world.submit(request);
  world.run();
  for (int choice = 0; choice < request.choices; ++choice)
    EXPECT_EQ(sink->tokens[static_cast<std::size_t>(choice)], world.expected(request, choice));
  // Four at first, and the two that had to wait.
  EXPECT_EQ(world.executor.state_copies, 3 + 1);
  EXPECT_EQ(world.executor.restores, 1);
}

TEST(SchedulerStates, PreemptedSequencesGoOnFromTheirLastBorder) {
  WorldOptions options = with_states(6, 12);
  options.limits.rows = 32;
  options.limits.sequence_tokens = 64;
  options.limits.pages = 18;
  World world(options);
  const Several requests(world, 6, 6, 100);
  world.run();
  EXPECT_GT(stats_of(world).preemptions, 0);
  EXPECT_GT(world.executor.restores, 0);
  requests.expect_right_answers();
}

// Prompts that differ, one after the other: more than there are places on the device.
class OnTheHost : public testing::TestWithParam<std::int64_t> {
 protected:
  static WorldOptions options(std::int64_t host_places) {
    WorldOptions all = with_states(3, 2);
    all.limits.host_snapshots = host_places;
    return all;
  }
  void SetUp() override { world.executor.copies_take = GetParam(); }

  static Request request_of(std::int32_t i) {
    return {.tokens = prompt(30 + i, i), .max_tokens = 5};
  }
  std::shared_ptr<MemorySink> ask(std::int32_t i) {
    const Request request = request_of(i);
    const auto sink = world.submit(request);
    world.run();
    EXPECT_EQ(sink->tokens[0], world.expected(request)) << i;
    copy_all();
    return sink;
  }
  // Until no snapshot is left that the host does not have.
  void copy_all() {
    for (int i = 0; i < 2; ++i) {
      world.executor.finish_state_copies().value();
      world.run();
    }
  }

  World world{options(16)};
};

TEST_P(OnTheHost, SnapshotsThatGiveUpTheirPlacesAreFound) {
  for (std::int32_t i = 0; i < 6; ++i) ask(i);
  EXPECT_GT(world.executor.offloads, 0);
  for (std::int32_t i = 0; i < 6; ++i)
    EXPECT_EQ(ask(i)->start->cached_tokens, 28 + (i > 2 ? 4 : 0));
  EXPECT_GT(world.executor.loads, 0);
  const Stats stats = stats_of(world);
  EXPECT_EQ(stats.prefix_state_missed_tokens, 0);
  EXPECT_EQ(stats.snapshots, 2);
  EXPECT_EQ(stats.snapshots_used, 2);
  EXPECT_EQ(stats.host_snapshots, 16);
  EXPECT_GE(stats.host_snapshots_used, 6);
  EXPECT_EQ(stats.snapshot_loads, static_cast<std::uint64_t>(world.executor.loads));
}

// A sequence whose state comes from the host has its slot, and others run.
TEST_P(OnTheHost, OthersRunMeanwhile) {
  for (std::int32_t i = 0; i < 6; ++i) ask(i);
  const std::int64_t loads = world.executor.loads;
  world.executor.copies_take = 1000;
  const Request other{.tokens = prompt(9, 9), .max_tokens = 20};
  const auto runs = world.submit(other);
  const auto waits = world.submit(request_of(0));
  world.run(10);
  EXPECT_EQ(world.executor.loads, loads + 1);
  EXPECT_GT(runs->tokens[0].size(), 5U);
  EXPECT_EQ(waits->start->cached_tokens, 28);
  EXPECT_TRUE(waits->tokens[0].empty());
  world.run();
  EXPECT_EQ(runs->tokens[0], world.expected(other));
  EXPECT_EQ(waits->tokens[0], world.expected(request_of(0)));
}

// Its slot is given out again when the copy to it has ended.
TEST_P(OnTheHost, ASequenceThatWaitsForItsStateMayBeCancelled) {
  for (std::int32_t i = 0; i < 6; ++i) ask(i);
  world.executor.copies_take = 1000;
  const Request other{.tokens = prompt(9, 9), .max_tokens = 20};
  const auto runs = world.submit(other);
  const std::int64_t loads = world.executor.loads;
  for (std::int32_t i = 0; i < 3; ++i) {
    world.submit(request_of(i));
    world.scheduler.step().value();
    world.scheduler.cancel(world.last_id);
  }
  EXPECT_EQ(world.executor.loads, loads + 2) << "of three slots one is the other's";
  world.run();
  EXPECT_EQ(runs->tokens[0], world.expected(other));
  for (std::int32_t i = 0; i < 6; ++i) ask(i);
}

INSTANTIATE_TEST_SUITE_P(Copies, OnTheHost, testing::Values(0, 1, 5),
                         [](const auto& asks) { return cat("after_", asks.param); });

TEST(SchedulerStates, TheHostGivesUpWhatWasUsedLongestAgo) {
  WorldOptions options = with_states(2, 1);
  options.limits.host_snapshots = 2;
  World world(options);
  const auto ask = [&](std::int32_t i) {
    const auto sink = world.submit({.tokens = prompt(11, i), .max_tokens = 1});
    world.run();
    return sink->start->cached_tokens;
  };
  for (std::int32_t i = 0; i < 4; ++i) EXPECT_EQ(ask(i), 0);
  EXPECT_EQ(ask(3), 8);
  EXPECT_EQ(ask(2), 8);
  EXPECT_EQ(ask(0), 0) << "three others came since";
}

TEST(SchedulerStates, WithoutPlacesNothingIsReused) {
  World world(with_states(2, 0));
  const Request request{.tokens = prompt(40), .max_tokens = 5};
  world.submit(request);
  world.run();
  const auto again = world.submit(request);
  world.run();
  EXPECT_EQ(again->start->cached_tokens, 0);
  EXPECT_EQ(again->tokens[0], world.expected(request));
}

}  // namespace
}  // namespace motley::engine::test
