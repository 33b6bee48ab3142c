// Pauses of the scheduler: requests in every state, and both ways to their end.

#include <algorithm>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduling/scheduler.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using testing::Each;
using testing::Optional;

constexpr RequestId all_requests = ~RequestId{0};

struct Asked {
  Request request;
  std::shared_ptr<MemorySink> sink;
};

WorldOptions with_limits(std::int64_t rows, std::int64_t sequences, std::int64_t pages) {
  return {.limits = {.rows = rows,
                     .sequences = sequences,
                     .sequence_tokens = 64,
                     .pages = pages,
                     .page_tokens = 4,
                     .vocabulary = 97}};
}

Asked ask(World& world, Request request) {
  Asked asked{.request = std::move(request), .sink = nullptr};
  asked.sink = world.submit(asked.request);
  return asked;
}

// Running, in the middle of a prompt, waiting, preempted, and with several choices; on pages for a
// few of them.
std::vector<Asked> ask_of_every_kind(World& world) {
  std::vector<Asked> asked;
  for (std::int32_t i = 0; i < 4; ++i)
    asked.push_back(ask(world, {.tokens = prompt(6 + i, i), .max_tokens = 40}));
  world.run(12);
  asked.push_back(ask(world, {.tokens = prompt(5, 7), .max_tokens = 9, .choices = 3}));
  asked.push_back(ask(world, {.tokens = prompt(40, 8), .max_tokens = 4}));
  for (std::int32_t i = 0; i < 6; ++i)
    asked.push_back(ask(world, {.tokens = prompt(9 + i, 20 + i), .max_tokens = 5}));
  world.run(4);
  return asked;
}

void expect_whole(const World& world, const Asked& asked) {
  for (int choice = 0; choice < asked.request.choices; ++choice)
    EXPECT_EQ(asked.sink->tokens[static_cast<std::size_t>(choice)],
              world.expected(asked.request, choice));
  EXPECT_THAT(asked.sink->reasons, Each(Optional(FinishReason::length)));
  EXPECT_TRUE(asked.sink->usage);
}

bool is_beginning_of(const std::vector<std::int32_t>& some, const std::vector<std::int32_t>& all) {
  return some.size() <= all.size() && std::equal(some.begin(), some.end(), all.begin());
}

TEST(PausedScheduler, AbortEndsAllWithWhatTheyHave) {
  World world(with_limits(16, 6, 20));
  const std::vector<Asked> asked = ask_of_every_kind(world);
  EXPECT_GT(world.scheduler.running(), 0);
  EXPECT_GT(world.scheduler.waiting(), 0);
  world.scheduler.pause({.mode = PauseMode::abort}).value();
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_FALSE(world.scheduler.has_requests("", all_requests));
  std::size_t tokens = 0;
  for (const auto& [request, sink] : asked) {
    ASSERT_TRUE(sink->usage);
    for (int choice = 0; choice < request.choices; ++choice) {
      const auto& had = sink->tokens[static_cast<std::size_t>(choice)];
      EXPECT_TRUE(is_beginning_of(had, world.expected(request, choice)));
      tokens += had.size();
    }
  }
  EXPECT_GT(tokens, 40);
  EXPECT_EQ(asked.back().sink->reasons[0], FinishReason::aborted);
  EXPECT_EQ(world.scheduler.pages().used(), 0);
  world.scheduler.check().value();
}

// A request that was accepted before the pause, and whose sampler is ready after it.
TEST(PausedScheduler, AbortEndsWhatArrivesLater) {
  World world;
  world.scheduler.pause({.mode = PauseMode::abort}).value();
  const Asked late = ask(world, {.tokens = prompt(5), .max_tokens = 3});
  EXPECT_EQ(late.sink->reasons[0], FinishReason::aborted);
  EXPECT_TRUE(late.sink->usage);
  world.scheduler.resume("");
  const Asked next = ask(world, {.tokens = prompt(5), .max_tokens = 3});
  world.run();
  expect_whole(world, next);
}

// An answer with scores for a part of its prompt would look like a whole one.
TEST(PausedScheduler, AbortFailsARequestWhosePromptIsNotScored) {
  World world(with_limits(8, 4, 60));
  const Asked asked = ask(world, {.tokens = prompt(40), .max_tokens = 2, .prompt_logprobs = true});
  world.run(2);
  world.scheduler.pause({.mode = PauseMode::abort}).value();
  ASSERT_TRUE(asked.sink->error);
  EXPECT_EQ(asked.sink->error->code(), ErrorCode::unavailable);
}

TEST(PausedScheduler, WaitRunsAllToTheirEnd) {
  World world(with_limits(16, 6, 20));
  const std::vector<Asked> asked = ask_of_every_kind(world);
  world.scheduler.pause({.mode = PauseMode::wait}).value();
  EXPECT_TRUE(world.scheduler.has_requests("", all_requests));
  EXPECT_FALSE(world.scheduler.has_requests("", 1));
  world.run();
  EXPECT_FALSE(world.scheduler.has_requests("", all_requests));
  for (const Asked& each : asked) expect_whole(world, each);
}

TEST(PausedScheduler, KeptRequestsStandStillAndGoOnWithTheSameBits) {
  World never_paused(with_limits(16, 6, 20));
  const std::vector<Asked> reference = ask_of_every_kind(never_paused);
  never_paused.run();

  World world(with_limits(16, 6, 20));
  const std::vector<Asked> asked = ask_of_every_kind(world);
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_GT(stats.preemptions, 0);
  const std::size_t running = world.scheduler.running();
  const std::int64_t pages = world.scheduler.pages().used();
  for (int pauses = 0; pauses < 3; ++pauses) {
    world.scheduler.pause({.mode = PauseMode::keep}).value();
    const std::int64_t steps = world.executor.steps;
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
      world.clock.advance(std::chrono::seconds(10));
    }
    EXPECT_EQ(world.executor.steps, steps);
    if (pauses == 0) {
      EXPECT_EQ(world.scheduler.running(), running);
      EXPECT_EQ(world.scheduler.pages().used(), pages);
    }
    world.scheduler.check().value();
    world.scheduler.resume("");
    world.run(2);
  }
  world.run();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    expect_whole(world, asked[i]);
    if (asked[i].request.choices > 1) continue;
    EXPECT_EQ(asked[i].sink->logprobs, reference[i].sink->logprobs);
  }
}

TEST(PausedScheduler, RequestsQueueInKeepAndBeginWithTheNewContent) {
  World world;
  world.add_adapter("a", 1, 1);
  const Asked before = ask(world, {.tokens = prompt(6), .adapters = {{"a", 1}}, .max_tokens = 8});
  const std::vector<std::int32_t> old = world.expected(before.request);
  world.run(3);
  world.scheduler.pause({.mode = PauseMode::keep}).value();
  const Asked queued = ask(world, {.tokens = prompt(6), .adapters = {{"a", 1}}, .max_tokens = 8});
  world.store.put("a", 1, 2);
  Result<void> answer = Error(ErrorCode::internal, "no answer");
  world.load("a", false, true, &answer);
  world.add_adapter("b", 2, 5);
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  EXPECT_TRUE(answer.ok());
  EXPECT_FALSE(queued.sink->start);
  world.scheduler.resume("");
  world.run();
  EXPECT_EQ(before.sink->tokens[0], old);
  EXPECT_NE(old, world.expected(queued.request));
  expect_whole(world, queued);
}

TEST(PausedScheduler, AnAdaptersPauseLeavesTheOthersAlone) {
  World world;
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  const Asked paused = ask(world, {.tokens = prompt(6), .adapters = {{"a", 1}}, .max_tokens = 20});
  const Asked base = ask(world, {.tokens = prompt(6), .max_tokens = 20});
  const Asked other = ask(world, {.tokens = prompt(6), .adapters = {{"b", 1}}, .max_tokens = 20});
  world.run(5);
  world.scheduler.pause({.mode = PauseMode::keep, .adapter = "a"}).value();
  const std::size_t had = paused.sink->tokens[0].size();
  const Asked later = ask(world, {.tokens = prompt(9), .adapters = {{"b", 1}}, .max_tokens = 4});
  const Asked queued = ask(world, {.tokens = prompt(9), .adapters = {{"a", 1}}, .max_tokens = 4});
  for (int i = 0; i < 40; ++i) world.scheduler.step().value();
  expect_whole(world, base);
  expect_whole(world, other);
  expect_whole(world, later);
  EXPECT_LE(paused.sink->tokens[0].size(), had + 1);
  EXPECT_FALSE(queued.sink->start);
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  world.scheduler.resume("a");
  world.run();
  expect_whole(world, paused);
  expect_whole(world, queued);
}

TEST(PausedScheduler, AnAdaptersAbortEndsOnlyItsRequests) {
  World world;
  world.add_adapter("a", 1, 1);
  const Asked paused =
      ask(world, {.tokens = prompt(6), .adapters = {{"a", 1}}, .max_tokens = 20, .choices = 2});
  const Asked base = ask(world, {.tokens = prompt(6), .max_tokens = 20});
  world.run(5);
  world.scheduler.pause({.mode = PauseMode::abort, .adapter = "a"}).value();
  EXPECT_THAT(paused.sink->reasons, Each(Optional(FinishReason::aborted)));
  EXPECT_FALSE(world.scheduler.has_requests("a", all_requests));
  world.run();
  expect_whole(world, base);
}

// What stands still gives its pages and its places to what does not.
TEST(PausedScheduler, PausedRequestsDoNotKeepPagesOrPlacesFromOthers) {
  World world(with_limits(16, 2, 20));
  world.add_adapter("a", 1, 1);
  std::vector<Asked> paused;
  for (std::int32_t i = 0; i < 2; ++i)
    paused.push_back(
        ask(world, {.tokens = prompt(24, i), .adapters = {{"a", 1}}, .max_tokens = 8}));
  world.run(4);
  ASSERT_EQ(world.scheduler.running(), 2);
  world.scheduler.pause({.mode = PauseMode::keep, .adapter = "a"}).value();
  // Needs nearly all of the pages.
  const Asked base = ask(world, {.tokens = prompt(50, 5), .max_tokens = 14});
  const Asked second = ask(world, {.tokens = prompt(5, 6), .max_tokens = 9});
  for (int i = 0; i < 60; ++i) world.scheduler.step().value();
  expect_whole(world, base);
  expect_whole(world, second);
  world.scheduler.check().value();
  world.scheduler.resume("a");
  world.run();
  for (const Asked& each : paused) expect_whole(world, each);
}

TEST(PausedScheduler, KeptRequestsCanBeCancelledAndAborted) {
  World world;
  const Asked first = ask(world, {.tokens = prompt(6), .max_tokens = 20});
  const Asked second = ask(world, {.tokens = prompt(7), .max_tokens = 20, .choices = 2});
  world.run(4);
  world.scheduler.pause({.mode = PauseMode::keep}).value();
  world.scheduler.cancel(1);
  EXPECT_EQ(first.sink->reasons[0], FinishReason::cancelled);
  world.scheduler.abort(2);
  EXPECT_THAT(second.sink->reasons, Each(Optional(FinishReason::aborted)));
  EXPECT_TRUE(second.sink->usage);
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_EQ(world.scheduler.pages().used(), 0);
}

TEST(PausedScheduler, AResetForgetsAllThatWasComputed) {
  World world;
  world.add_adapter("a", 1, 1);
  const Request base{.tokens = prompt(30), .max_tokens = 2};
  const Request adapted{.tokens = prompt(30), .adapters = {{"a", 1}}, .max_tokens = 2};
  const auto cached = [&](const Request& request) {
    const Asked asked = ask(world, request);
    world.run();
    expect_whole(world, asked);
    return asked.sink->usage->cached_tokens;
  };
  cached(base);
  cached(adapted);
  EXPECT_EQ(cached(base), 28);
  world.scheduler.forget_prefixes("a");
  EXPECT_EQ(cached(base), 28);
  EXPECT_EQ(cached(adapted), 0);
  world.scheduler.forget_prefixes("");
  EXPECT_EQ(world.scheduler.pages().cached(), 0);
  EXPECT_EQ(cached(base), 0);
  EXPECT_EQ(cached(adapted), 0);
  world.scheduler.forget_prefixes("unknown");
  EXPECT_EQ(cached(adapted), 28);
}

TEST(PausedScheduler, AResetMayPreemptWhatRuns) {
  World world;
  std::vector<Asked> asked;
  for (std::int32_t i = 0; i < 3; ++i)
    asked.push_back(ask(world, {.tokens = prompt(21, i), .max_tokens = 12, .choices = 1 + i}));
  world.run(5);
  Stats before;
  world.scheduler.fill(before);
  world.scheduler.reset_prefix_cache(true);
  EXPECT_EQ(world.scheduler.running(), 0);
  EXPECT_EQ(world.scheduler.pages().available(), world.scheduler.pages().pages());
  EXPECT_EQ(world.scheduler.pages().cached(), 0);
  world.scheduler.check().value();
  world.run();
  for (const Asked& each : asked) expect_whole(world, each);
  Stats after;
  world.scheduler.fill(after);
  // All tokens were computed again.
  EXPECT_GE(after.prompt_tokens, before.prompt_tokens + 3 * 21);
}

// Of a model that keeps states.
TEST(PausedScheduler, KeptStatesStayAndAResetDropsTheirSnapshots) {
  WorldOptions options = with_limits(16, 4, 60);
  options.limits.state_slots = 4;
  options.limits.snapshots = 8;
  options.limits.host_snapshots = 8;
  World world(options);
  std::vector<Asked> asked;
  for (std::int32_t i = 0; i < 5; ++i)
    asked.push_back(ask(world, {.tokens = prompt(20, i), .max_tokens = 10, .choices = 1 + i % 2}));
  world.run(6);
  world.scheduler.pause({.mode = PauseMode::keep}).value();
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  EXPECT_GT(world.scheduler.pages().snapshots(), 0);
  world.scheduler.reset_prefix_cache(true);
  EXPECT_EQ(world.scheduler.pages().snapshots(), 0);
  world.scheduler.check().value();
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  // Copies that were under way have ended, and what they wrote is dropped.
  EXPECT_EQ(world.scheduler.pages().host_snapshots(), 0);
  world.scheduler.resume("");
  world.run();
  for (const Asked& each : asked) expect_whole(world, each);
}

}  // namespace
}  // namespace motley::engine::test
