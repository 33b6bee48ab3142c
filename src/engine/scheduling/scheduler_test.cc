#include "engine/scheduling/scheduler.h"

#include <gtest/gtest.h>

#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

TEST(Scheduler, BatchedEqualsAlone) {
  World world;
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 2, 2);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<MemorySink>> sinks;
  for (std::int32_t i = 0; i < 24; ++i) {
    Request request{.tokens = prompt(1 + 5 * i, i), .max_tokens = 3 + i};
    if (i % 3 == 1) request.adapters = {{"a", 1}};
    if (i % 3 == 2) request.adapters = {{"b", 0.5F}, {"a", 2}};
    requests.push_back(request);
    sinks.push_back(world.submit(request));
  }
  world.run();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens[0], world.expected(requests[i])) << "request " << i;
    EXPECT_EQ(sinks[i]->reasons[0], FinishReason::length);
    ASSERT_TRUE(sinks[i]->usage);
    EXPECT_EQ(sinks[i]->usage->completion_tokens, requests[i].max_tokens);
  }
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_EQ(world.scheduler.pages().used(), 0);
  EXPECT_EQ(world.store.usage().pinned_pages, 0);
}

TEST(Scheduler, WhatCameOfAStepIsDeliveredWhileTheNextOneRuns) {
  World world;
  const auto sink = world.submit({.tokens = prompt(5), .max_tokens = 2});
  world.scheduler.step().value();
  EXPECT_TRUE(sink->tokens[0].empty());
  std::size_t heard = 0;
  world.scheduler.step([&] { heard = sink->tokens[0].size(); }).value();
  EXPECT_EQ(heard, 1);
  // The last events do not wait for another step.
  EXPECT_FALSE(sink->closed());
  EXPECT_FALSE(world.scheduler.empty());
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  EXPECT_TRUE(sink->closed());
  EXPECT_TRUE(world.scheduler.empty());
}

TEST(Scheduler, PromptsShareTheRowsThatDecodesLeave) {
  World world({.limits = {.rows = 8,
                          .sequences = 4,
                          .sequence_tokens = 256,
                          .pages = 128,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  const Request quick{.tokens = prompt(2, 1), .max_tokens = 50};
  const Request slow{.tokens = prompt(70, 2), .max_tokens = 1};
  const auto first = world.submit(quick);
  world.run(1);
  const auto second = world.submit(slow);
  // 7 rows a step are left for 70 tokens.
  world.run(9);
  EXPECT_EQ(first->tokens[0].size(), 10);
  EXPECT_TRUE(second->tokens[0].empty());
  world.run(1);
  EXPECT_EQ(second->tokens[0], world.expected(slow));
  EXPECT_EQ(world.executor.largest_step, 8);
}

TEST(Scheduler, PushedBackSequencesLoseNothing) {
  // Pages for one sequence of maximum length, or for the beginnings of several.
  World world({.limits = {.rows = 32,
                          .sequences = 6,
                          .sequence_tokens = 64,
                          .pages = 18,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<MemorySink>> sinks;
  for (std::int32_t i = 0; i < 6; ++i) {
    requests.push_back({.tokens = prompt(6 + i, i), .max_tokens = 100});
    sinks.push_back(world.submit(requests.back()));
  }
  world.run();
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_GT(stats.preemptions, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens[0], world.expected(requests[i])) << "request " << i;
    EXPECT_EQ(sinks[i]->tokens[0].size() + requests[i].tokens.size(), 64);
  }
  EXPECT_EQ(world.scheduler.pages().used(), 0);
}

// Far more requests than pages: a sequence that begins continues for a while.
TEST(Scheduler, OnFewPagesSequencesDoNotComeAndGo) {
  World world({.limits = {.rows = 128,
                          .sequences = 64,
                          .sequence_tokens = 512,
                          .pages = 33,
                          .page_tokens = 16,
                          .vocabulary = 97}});
  constexpr std::int32_t requests = 40;
  for (std::int32_t i = 0; i < requests; ++i)
    world.submit({.tokens = prompt(20, i), .max_tokens = 120 + i});
  world.run();
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_EQ(stats.finished_length, requests);
  // With one page ahead for each there are 42, and prompts are computed three times.
  EXPECT_LT(stats.preemptions, 20);
  EXPECT_LT(stats.prompt_tokens, 2 * requests * 20 + 400);
}

TEST(Scheduler, StopIdsEndAChoiceOnceMinTokensAreThere) {
  World world;
  Request request{.tokens = prompt(5), .max_tokens = 40};
  const std::vector<std::int32_t> all = world.expected(request);
  request.stop_ids = {all[2], all[6]};
  request.sampling.min_tokens = 4;
  const auto sink = world.submit(request);
  world.run();
  EXPECT_EQ(sink->reasons[0], FinishReason::stop);
  EXPECT_EQ(sink->tokens[0], std::vector<std::int32_t>(all.begin(), all.begin() + 7));
}

TEST(Scheduler, IgnoreEosKeepsTheClientsStops) {
  World world;
  Request request{.tokens = prompt(5), .max_tokens = 40};
  const std::vector<std::int32_t> all = world.expected(request);
  request.end_ids = {all[1]};
  request.stop_ids = {all[4]};
  request.sampling.ignore_eos = true;
  const auto sink = world.submit(request);
  world.run();
  EXPECT_EQ(sink->tokens[0].size(), 5);
}

TEST(Scheduler, ChoicesShareThePromptAndDivergeInTheirOwnPages) {
  World world;
  const Request request{.tokens = prompt(14), .max_tokens = 9, .choices = 5};
  const auto sink = world.submit(request);
  world.run(1);
  // 4 pages for the prompt; each choice has one token, which is not computed yet.
  EXPECT_EQ(world.scheduler.running(), 5);
  EXPECT_EQ(world.scheduler.pages().used(), 4);
  world.run();
  // The last owner of the half-full page writes it in place.
  EXPECT_EQ(world.executor.copies, 4);
  for (int choice = 0; choice < 5; ++choice)
    EXPECT_EQ(sink->tokens[static_cast<std::size_t>(choice)], world.expected(request, choice));
  EXPECT_EQ(world.scheduler.pages().used(), 0);
}

TEST(Scheduler, MoreChoicesThanAStepHoldsTakeTurns) {
  World world;
  const Request request{.tokens = prompt(14), .max_tokens = 9, .choices = 21};
  const auto sink = world.submit(request);
  world.run();
  for (int choice = 0; choice < 21; ++choice)
    EXPECT_EQ(sink->tokens[static_cast<std::size_t>(choice)], world.expected(request, choice));
  ASSERT_TRUE(sink->usage);
  EXPECT_EQ(sink->usage->completion_tokens, 21 * 9);
}

TEST(Scheduler, CancelledChoicesLeaveTheOthersAlone) {
  World world;
  const Request request{.tokens = prompt(14), .max_tokens = 9, .choices = 12};
  const auto sink = world.submit(request);
  world.scheduler.cancel(1, 0);  // before it has forked
  world.run(2);
  world.scheduler.cancel(1, 3);   // runs
  world.scheduler.cancel(1, 11);  // waits
  world.run();
  for (int choice = 0; choice < 12; ++choice) {
    const auto at = static_cast<std::size_t>(choice);
    if (choice == 0 || choice == 3 || choice == 11) {
      EXPECT_EQ(sink->reasons[at], FinishReason::cancelled);
    } else {
      EXPECT_EQ(sink->tokens[at], world.expected(request, choice));
    }
  }
  EXPECT_TRUE(sink->usage);
}

TEST(Scheduler, CancellationFreesAtOnce) {
  World world;
  world.add_adapter("a", 1, 1);
  const auto running = world.submit({.tokens = prompt(20), .adapters = {{"a", 1}}});
  world.run(2);
  EXPECT_GT(world.scheduler.pages().used(), 0);
  world.scheduler.cancel(1);
  EXPECT_EQ(world.scheduler.pages().used(), 0);
  EXPECT_EQ(world.store.usage().pinned_pages, 0);
  EXPECT_EQ(running->reasons[0], FinishReason::cancelled);
  ASSERT_TRUE(running->usage);
  EXPECT_EQ(running->usage->completion_tokens, 2);
  world.scheduler.cancel(1);
  EXPECT_EQ(world.run(), 0);
}

TEST(Scheduler, PrefixHitsAreByContentAndChangeNothing) {
  World world;
  world.add_adapter("a", 1, 1);
  Request request{.tokens = prompt(30), .max_tokens = 4};
  world.submit(request);
  world.run();
  const auto again = world.submit(request);
  world.run();
  EXPECT_EQ(again->start->cached_tokens, 28);  // 7 pages of 4
  EXPECT_EQ(again->tokens[0], world.expected(request));

  request.adapters = {{"a", 1}};
  for (const std::int64_t cached : {0, 28}) {
    const auto adapted = world.submit(request);
    world.run();
    EXPECT_EQ(adapted->start->cached_tokens, cached);
    EXPECT_EQ(adapted->tokens[0], world.expected(request));
  }
  request.cache_salt = "mine";
  for (const std::int64_t cached : {0, 28}) {
    const auto salted = world.submit(request);
    world.run();
    EXPECT_EQ(salted->start->cached_tokens, cached);
  }
  request.cache_salt = {};
  request.adapters = {{"a", 0.5F}};
  const auto scaled = world.submit(request);
  world.run();
  EXPECT_EQ(scaled->start->cached_tokens, 0);

  // The same name with new content never uses pages of the old content.
  request.adapters = {{"a", 1}};
  world.store.put("a", 1, 9);
  Result<void> answer = Error(ErrorCode::internal, "");
  world.load("a", false, true, &answer);
  ASSERT_TRUE(answer.ok());
  const auto replaced = world.submit(request);
  world.run();
  EXPECT_EQ(replaced->start->cached_tokens, 0);
  EXPECT_EQ(replaced->tokens[0], world.expected(request));
}

TEST(Scheduler, OutputIsCachedToo) {
  World world;
  const Request request{.tokens = prompt(9), .max_tokens = 12};
  const auto first = world.submit(request);
  world.run();
  Request next{.tokens = request.tokens, .max_tokens = 3};
  next.tokens.insert(next.tokens.end(), first->tokens[0].begin(), first->tokens[0].end());
  const auto second = world.submit(next);
  world.run();
  // The last token of the first answer was never computed.
  EXPECT_EQ(second->start->cached_tokens, 20);
  EXPECT_EQ(second->tokens[0], world.expected(next));
}

// What the sink has of a choice: experts of all tokens but the last.
void expect_routed(const World& world, const Request& request, const MemorySink& sink, int choice) {
  const auto at = static_cast<std::size_t>(choice);
  std::vector<std::int32_t> tokens = request.tokens;
  tokens.insert(tokens.end(), sink.tokens[at].begin(), sink.tokens[at].end());
  tokens.pop_back();
  std::vector<std::uint8_t> all = sink.routed_prompt;
  all.insert(all.end(), sink.routed[at].begin(), sink.routed[at].end());
  EXPECT_EQ(all, expected_routed(hash_of(world.key_of(request.adapters)), tokens,
                                 *request.routed_experts_from));
}

TEST(Scheduler, ExpertsOfATokenComeOnceInOrder) {
  World world({.limits = {.rows = 8,
                          .sequences = 8,
                          .sequence_tokens = 64,
                          .pages = 20,
                          .page_tokens = 4,
                          .vocabulary = 97,
                          .routed_experts = fake_routing}});
  // In several pieces, and preempted in the middle of its prompt and of its answer.
  Request request{.tokens = prompt(30), .max_tokens = 12, .routed_experts_from = 0};
  const auto preempted = world.submit(request);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(world.scheduler.step().ok());
  world.scheduler.reset_prefix_cache(true);
  for (int step = 0; step < 8; ++step) EXPECT_TRUE(world.scheduler.step().ok());
  EXPECT_FALSE(preempted->tokens[0].empty());
  world.scheduler.reset_prefix_cache(true);
  world.run();
  EXPECT_EQ(preempted->tokens[0], world.expected(request));
  expect_routed(world, request, *preempted, 0);

  // All choices share those of the prompt.
  request.choices = 3;
  const auto several = world.submit(request);
  world.run();
  for (int choice = 0; choice < 3; ++choice) expect_routed(world, request, *several, choice);
  EXPECT_EQ(several->routed_prompt.size(), 30 * routed_bytes);

  // A prompt alone has no last token of an answer either.
  const auto alone =
      world.submit({.tokens = prompt(30), .max_tokens = 0, .routed_experts_from = 10});
  world.run();
  EXPECT_EQ(alone->routed_prompt.size(), 19 * routed_bytes);
  EXPECT_EQ(alone->routed_from, 10);
}

TEST(Scheduler, ExpertsEndBeforeTheLastTokenWhereNoneIsLeftToDraw) {
  for (const int choices : {1, 3}) {
    for (const int drawn : {0, 1, 7}) {
      SCOPED_TRACE(cat(choices, " choices of ", drawn, " tokens"));
      World world;
      world.executor.none_left_after = drawn;
      const Request request{
          .tokens = prompt(30), .max_tokens = 12, .choices = choices, .routed_experts_from = 0};
      const auto sink = world.submit(request);
      world.run();
      for (int choice = 0; choice < choices; ++choice) {
        const auto at = static_cast<std::size_t>(choice);
        EXPECT_EQ(sink->tokens[at].size(), static_cast<std::size_t>(drawn));
        EXPECT_EQ(sink->reasons[at], FinishReason::stop);
        expect_routed(world, request, *sink, choice);
      }
    }
  }
}

TEST(Scheduler, OnlyTokensBeforeTheFirstWithExpertsAreFoundInTheCache) {
  World world;
  world.submit({.tokens = prompt(30), .max_tokens = 2});
  world.run();
  const std::pair<std::int64_t, std::int64_t> found[] = {
      {0, 0}, {3, 0}, {16, 16}, {18, 16}, {30, 28}};
  for (const auto& [from, cached] : found) {
    const Request request{.tokens = prompt(30), .max_tokens = 3, .routed_experts_from = from};
    const auto sink = world.submit(request);
    world.run();
    EXPECT_EQ(sink->start->cached_tokens, cached) << from;
    expect_routed(world, request, *sink, 0);
  }
}

TEST(Scheduler, AnAbortedAnswerHasTheExpertsOfItsTokens) {
  World world;
  const Request request{.tokens = prompt(10), .max_tokens = 50, .routed_experts_from = 0};
  const auto sink = world.submit(request);
  for (int step = 0; step < 5; ++step) EXPECT_TRUE(world.scheduler.step().ok());
  world.scheduler.abort(world.last_id);
  world.run();
  EXPECT_EQ(sink->reasons[0], FinishReason::aborted);
  EXPECT_EQ(sink->tokens[0].size(), 5);
  expect_routed(world, request, *sink, 0);
}

TEST(Scheduler, PromptLogprobsComeOnceInOrder) {
  World world({.limits = {.rows = 8,
                          .sequences = 8,
                          .sequence_tokens = 64,
                          .pages = 20,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  Request request{.tokens = prompt(30), .max_tokens = 0, .prompt_logprobs = true};
  std::vector<float> expected;
  for (std::size_t i = 1; i < 30; ++i)
    expected.push_back(logprob_of(
        hash_of(hash_of(world.key_of({})), std::span(request.tokens).first(i)), request.tokens[i]));
  world.submit({.tokens = prompt(30), .max_tokens = 2});  // fills the prefix cache
  world.run();
  const auto alone = world.submit(request);
  world.run();
  EXPECT_EQ(alone->scores, expected);
  EXPECT_EQ(alone->reasons[0], FinishReason::length);
  EXPECT_EQ(alone->usage->completion_tokens, 0);

  // Preempted in the middle of its prompt.
  request.max_tokens = 3;
  request.choices = 2;
  const auto late = world.submit(request);
  world.run(2);
  const auto urgent = world.submit({.tokens = prompt(60, 5), .max_tokens = 3, .priority = 1});
  world.run();
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_EQ(stats.preemptions, 1);
  EXPECT_EQ(late->scores, expected);
  EXPECT_EQ(late->tokens[1], world.expected(request, 1));
  EXPECT_TRUE(urgent->usage);
}

TEST(Scheduler, ScoresOfTheEndOfAPromptUseThePrefixCacheForWhatComesBefore) {
  World world({.limits = {.rows = 8,
                          .sequences = 8,
                          .sequence_tokens = 64,
                          .pages = 20,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  Request request{.tokens = prompt(30),
                  .max_tokens = 1,
                  .prompt_logprobs = true,
                  .prompt_first = 26,
                  .prompt_named = {.width = 1, .ids = {3, -1, 5, 96}}};
  std::vector<float> expected;
  std::vector<float> named;
  for (std::size_t i = 26; i < 30; ++i) {
    const std::uint64_t hash =
        hash_of(hash_of(world.key_of({})), std::span(request.tokens).first(i));
    expected.push_back(logprob_of(hash, request.tokens[i]));
    const std::int32_t id = request.prompt_named.ids[i - 26];
    named.push_back(id < 0 ? -std::numeric_limits<float>::infinity() : logprob_of(hash, id));
  }
  const auto first = world.submit(request);
  world.run();
  EXPECT_EQ(first->scores, expected);
  EXPECT_EQ(first->named, named);
  EXPECT_EQ(first->start->cached_tokens, 0);
  EXPECT_EQ(world.executor.scored_rows, 4);

  const auto second = world.submit(request);
  world.run();
  EXPECT_EQ(second->scores, expected);
  EXPECT_EQ(second->named, named);
  EXPECT_EQ(second->start->cached_tokens, 24) << "the token before the first one is computed";
  EXPECT_EQ(second->tokens[0], world.expected(request));
}

TEST(Scheduler, HigherPriorityBeginsFirstAndPushesBack) {
  World world({.limits = {.rows = 64,
                          .sequences = 2,
                          .sequence_tokens = 64,
                          .pages = 64,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  const Request low{.tokens = prompt(8, 1), .max_tokens = 20};
  const Request high{.tokens = prompt(8, 2), .max_tokens = 5, .priority = 3};
  const auto first = world.submit(low);
  const auto second = world.submit(low);
  world.run(3);
  const auto urgent = world.submit(high);
  world.run(5);
  EXPECT_TRUE(urgent->usage);
  EXPECT_EQ(first->tokens[0].size(), 8);
  EXPECT_EQ(second->tokens[0].size(), 3);
  world.run();
  EXPECT_EQ(urgent->tokens[0], world.expected(high));
  EXPECT_EQ(first->tokens[0], world.expected(low));
  EXPECT_EQ(second->tokens[0], world.expected(low));
}

TEST(Scheduler, ManyOfOneAdapterDoNotKeepOthersWaiting) {
  World world;
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  const Request many{.tokens = prompt(4), .adapters = {{"a", 1}}, .max_tokens = 8};
  for (int i = 0; i < 100; ++i) world.submit(many);
  world.run(1);
  const auto few = world.submit({.tokens = prompt(4), .adapters = {{"b", 1}}, .max_tokens = 8});
  // After the 8 that run, not after the 100.
  world.run(17);
  EXPECT_TRUE(few->usage);
}

Request from(const std::string& client, Request request) {
  request.client = client;
  return request;
}

TEST(Scheduler, AClientWithAThousandPromptsDelaysNoOther) {
  World world;
  const Request many{.tokens = prompt(4), .max_tokens = 8};
  for (int i = 0; i < 1300; ++i) world.submit(from("one", many));
  world.run(1);
  const auto few = world.submit(from("other", {.tokens = prompt(4), .max_tokens = 4}));
  // After the 8 that run, not after the 1000.
  world.run(8 + 4);
  EXPECT_TRUE(few->usage);
}

TEST(Scheduler, AClientThatFillsTheBatchWithLongAnswersMakesWay) {
  World world;
  const Request endless{.tokens = prompt(4), .max_tokens = 200};
  std::vector<std::shared_ptr<MemorySink>> sinks;
  for (int i = 0; i < 20; ++i) sinks.push_back(world.submit(from("one", endless)));
  world.run(3);
  const auto few = world.submit(from("other", {.tokens = prompt(4), .max_tokens = 4}));
  world.run(2);
  EXPECT_FALSE(few->start);
  world.clock.advance(std::chrono::milliseconds(60));
  world.run(6);
  EXPECT_TRUE(few->usage);
  world.run();
  for (const auto& sink : sinks) EXPECT_EQ(sink->tokens[0], world.expected(endless));
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_EQ(stats.preemptions, 1);
}

TEST(Scheduler, ClientsComeToShareTheBatchAndStayThere) {
  World world;
  const Request endless{.tokens = prompt(4), .max_tokens = 100};
  for (int i = 0; i < 20; ++i) world.submit(from("one", endless));
  world.run(3);
  for (int i = 0; i < 20; ++i) world.submit(from("other", endless));
  world.clock.advance(std::chrono::seconds(1));
  world.run(20);
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_EQ(stats.preemptions, 4);
  world.run(30);
  world.scheduler.fill(stats);
  EXPECT_EQ(stats.preemptions, 4);
}

TEST(Scheduler, APriorityCountsAmongTheRequestsOfOneClient) {
  World world;
  const Request urgent{.tokens = prompt(4), .max_tokens = 8, .priority = 1000};
  for (int i = 0; i < 200; ++i) world.submit(from("one", urgent));
  world.run(1);
  const auto few = world.submit(from("other", {.tokens = prompt(4), .max_tokens = 4}));
  world.run(8 + 4);
  EXPECT_TRUE(few->usage);
}

TEST(Scheduler, PromptsOfSeveralClientsShareTheRows) {
  World world({.limits = {.rows = 16,
                          .sequences = 4,
                          .sequence_tokens = 256,
                          .pages = 256,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  for (int i = 0; i < 2; ++i)
    world.submit(from("one", {.tokens = prompt(200, 1 + i), .max_tokens = 1}));
  world.run(1);
  const auto small = world.submit(from("other", {.tokens = prompt(16, 5), .max_tokens = 1}));
  // Half of the rows are the other client's: 8 a step.
  world.run(2);
  EXPECT_TRUE(small->usage);
}

TEST(Scheduler, ClientsGetEquallyManyTokensHoweverManyRequestsTheySend) {
  World world;
  std::vector<std::shared_ptr<MemorySink>> one;
  std::vector<std::shared_ptr<MemorySink>> other;
  const Request request{.tokens = prompt(4), .max_tokens = 6};
  for (int i = 0; i < 400; ++i) one.push_back(world.submit(from("one", request)));
  for (int i = 0; i < 60; ++i) other.push_back(world.submit(from("other", request)));
  world.run(70);
  const auto ended = [](const auto& sinks) {
    return std::ranges::count_if(sinks, [](const auto& sink) { return sink->usage.has_value(); });
  };
  EXPECT_GE(ended(other), ended(one) - 8);
  EXPECT_LE(ended(other), ended(one) + 8);
}

TEST(Scheduler, AClientOfWeightThreeGetsThreeTimesTheTokens) {
  World world;
  std::vector<std::shared_ptr<MemorySink>> heavy;
  std::vector<std::shared_ptr<MemorySink>> light;
  Request request{.tokens = prompt(4), .max_tokens = 6};
  for (int i = 0; i < 400; ++i) {
    light.push_back(world.submit(from("light", request)));
    request.client_weight = 3;
    heavy.push_back(world.submit(from("heavy", request)));
    request.client_weight = 1;
  }
  // Both have the right of way as soon as they have waited long enough.
  for (int i = 0; i < 100; ++i) {
    world.clock.advance(std::chrono::milliseconds(10));
    world.run(1);
  }
  const auto ended = [](const auto& sinks) {
    return std::ranges::count_if(sinks, [](const auto& sink) { return sink->usage.has_value(); });
  };
  EXPECT_GT(ended(light), 10);
  EXPECT_NEAR(static_cast<double>(ended(heavy)), 3.0 * static_cast<double>(ended(light)), 8);
}

TEST(Scheduler, WithinAClientAdaptersTakeTurns) {
  World world;
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  const Request many{.tokens = prompt(4), .adapters = {{"a", 1}}, .max_tokens = 8};
  for (int i = 0; i < 100; ++i) world.submit(from("one", many));
  for (int i = 0; i < 100; ++i) world.submit(from("other", many));
  world.run(1);
  const auto few =
      world.submit(from("one", {.tokens = prompt(4), .adapters = {{"b", 1}}, .max_tokens = 8}));
  world.run(26);
  EXPECT_TRUE(few->usage);
}

TEST(Scheduler, NothingIsPreemptedWhereThatGivesNoRoom) {
  World world({.limits = {.rows = 64,
                          .sequences = 4,
                          .sequence_tokens = 64,
                          .pages = 20,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  std::vector<std::shared_ptr<MemorySink>> sinks;
  for (std::int32_t i = 0; i < 2; ++i)
    sinks.push_back(world.submit(from("one", {.tokens = prompt(24, i), .max_tokens = 12})));
  world.run(2);
  // Needs 15 pages; one of the two sequences holds 7.
  const auto large = world.submit(from("other", {.tokens = prompt(60, 9), .max_tokens = 1}));
  world.clock.advance(std::chrono::seconds(1));
  world.run();
  EXPECT_TRUE(large->usage);
  for (const auto& sink : sinks) EXPECT_TRUE(sink->usage);
  Stats stats;
  world.scheduler.fill(stats);
  EXPECT_EQ(stats.preemptions, 0);
}

TEST(Scheduler, ABrokenDeviceFailsAllAndIsFinal) {
  World world;
  const auto running = world.submit({.tokens = prompt(4)});
  world.run(2);
  const auto waiting = world.submit({.tokens = prompt(4), .choices = 20});
  world.executor.broken = true;
  const auto step = world.scheduler.step();
  ASSERT_FALSE(step.ok());
  world.scheduler.fail_all(step.error());
  EXPECT_EQ(running->error->what(), "the device is lost");
  EXPECT_EQ(waiting->error->what(), "the device is lost");
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_EQ(world.scheduler.pages().used(), 0);
}

TEST(Scheduler, ASequenceThatWaitsForItsSamplerIsInNoStep) {
  World world;
  const Request slow{.tokens = prompt(5, 1), .max_tokens = 6};
  const Request quick{.tokens = prompt(5, 2), .max_tokens = 12};
  world.executor.waits_of = 2;  // the second of the two
  const auto first = world.submit(quick, std::make_unique<FakeSampler>(0, true));
  const auto second = world.submit(slow, std::make_unique<FakeSampler>(0, true));
  world.run(1);
  EXPECT_EQ(world.executor.waited, 1);
  world.executor.waits_of = 0;
  world.run();
  EXPECT_EQ(first->tokens[0], world.expected(quick));
  EXPECT_EQ(second->tokens[0], world.expected(slow));
  EXPECT_EQ(world.scheduler.pages().used(), 0);
}

TEST(Scheduler, WaitsWhereAllThatRunsCanNotBeDrawn) {
  World world;
  world.executor.waits_of = 1;
  const Request request{.tokens = prompt(5), .max_tokens = 3, .choices = 3};
  const auto sink = world.submit(request, std::make_unique<FakeSampler>(0, true));
  world.run(1);
  EXPECT_EQ(world.executor.waited, 3);
  const std::int64_t steps = world.executor.steps;
  world.executor.waits_of = 0;
  world.run();
  for (int choice = 0; choice < 3; ++choice)
    EXPECT_EQ(sink->tokens[static_cast<std::size_t>(choice)], world.expected(request, choice));
  EXPECT_EQ(world.executor.steps, steps + 3);
}

TEST(Scheduler, ASequenceThatCanNeverBeDrawnFailsAlone) {
  World world;
  const Request request{.tokens = prompt(5, 1), .max_tokens = 6};
  const auto good = world.submit(request);
  auto sampler = std::make_unique<FakeSampler>(0);
  FakeSampler& broken = *sampler;
  const auto bad = world.submit(request, std::move(sampler));
  world.run(2);
  broken.broken = Error(ErrorCode::invalid_argument, "its grammar takes too long");
  world.run();
  EXPECT_EQ(good->tokens[0], world.expected(request));
  ASSERT_TRUE(bad->error);
  EXPECT_EQ(bad->error->what(), "its grammar takes too long");
  EXPECT_EQ(bad->tokens[0].size(), 2U);
  EXPECT_EQ(world.scheduler.pages().used(), 0);
}

}  // namespace
}  // namespace motley::engine::test
