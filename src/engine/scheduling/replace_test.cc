// Adapters that are replaced while requests run: those that end with what they began with, and
// those that switch.

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/scheduling/scheduler.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using Key = std::vector<lora::Mix::KeyPart>;

// What a choice has when it switched after some tokens of its answer, and the cells from
// `first_new` on are computed with the new content.
struct Switched {
  Key before;
  Key after;
  std::size_t tokens_before = 0;
  std::size_t first_new = 0;
};

std::vector<std::int32_t> expected(const Request& request, int choice, const Switched& how) {
  std::vector<std::int32_t> tokens = request.tokens;
  std::vector<std::int32_t> output;
  while (static_cast<std::int64_t>(output.size()) < request.max_tokens) {
    std::uint64_t hash = no_tokens;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_new = output.size() >= how.tokens_before && i >= how.first_new;
      hash = hash_after(hash, tokens[i], hash_of(is_new ? how.after : how.before));
    }
    output.push_back(drawn(hash, choice, static_cast<std::int64_t>(output.size()), 97));
    tokens.push_back(output.back());
  }
  return output;
}

// The token that was drawn last is computed with the new content.
Switched at_this_token(const World& world, const Request& request, const Key& before,
                       std::size_t tokens) {
  return {.before = before,
          .after = world.key_of(request.adapters),
          .tokens_before = tokens,
          .first_new = request.tokens.size() + tokens - 1};
}

Executor::Limits limits_of(std::int64_t rows, std::int64_t pages) {
  return {.rows = rows,
          .sequences = 8,
          .sequence_tokens = 256,
          .pages = pages,
          .page_tokens = 4,
          .vocabulary = 97};
}
Executor::Limits with_states(Executor::Limits limits) {
  limits.state_slots = limits.sequences;
  limits.snapshots = 6;
  return limits;
}

// With the adapter that is replaced.
struct WorldOfA : World {
  explicit WorldOfA(const WorldOptions& options) : World(options) { add_adapter("a", 1, 1); }
};

class Replacement : public testing::TestWithParam<bool> {
 protected:
  static WorldOptions options(std::int64_t rows = 64, std::int64_t pages = 128) {
    const Executor::Limits limits = limits_of(rows, pages);
    return {.limits = GetParam() ? with_states(limits) : limits};
  }
  static Request ask_a(std::int64_t tokens, std::int64_t most) {
    return {.tokens = prompt(tokens), .adapters = {{"a"}}, .max_tokens = most};
  }
};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutStates, Replacement, testing::Bool(),
                         [](const auto& each) { return each.param ? "states" : "pages"; });

TEST_P(Replacement, EndsWithWhatItBeganWith) {
  WorldOfA world(options());
  const Request request = ask_a(9, 30);
  const auto sink = world.submit(request);
  const std::vector<std::int32_t> whole = world.expected(request);
  world.run(8);
  world.replace_adapter("a", 1, 2, false);
  world.run();
  EXPECT_EQ(sink->tokens[0], whole);
  EXPECT_EQ(sink->versions.size(), 1);
}

TEST_P(Replacement, SwitchesBetweenTwoTokens) {
  WorldOfA world(options());
  const Request request = ask_a(9, 30);
  const Key before = world.key_of(request.adapters);
  const auto sink = world.submit(request);
  world.run(8);
  world.replace_adapter("a", 1, 2, true);
  world.run();
  ASSERT_EQ(sink->versions.size(), 2);
  EXPECT_EQ(sink->versions[0].version, lora::to_string(before[0].version));
  EXPECT_EQ(sink->versions[1].version, lora::to_string(world.key_of(request.adapters)[0].version));
  const std::size_t at = sink->versions[1].tokens_before;
  EXPECT_GE(at, 7);
  EXPECT_LE(at, 9);
  EXPECT_EQ(sink->tokens[0], expected(request, 0, at_this_token(world, request, before, at)));
}

TEST_P(Replacement, SwitchesTwice) {
  WorldOfA world(options());
  const auto sink = world.submit(ask_a(9, 30));
  world.run(8);
  world.replace_adapter("a", 1, 2, true);
  world.run(8);
  world.replace_adapter("a", 2, 3, true);
  world.run();
  EXPECT_EQ(sink->versions.size(), 3);
  EXPECT_EQ(sink->tokens[0].size(), 30);
  EXPECT_EQ(world.scheduler.residency().usage().replaced_pages, 0);
}

TEST_P(Replacement, SwitchesInTheMiddleOfAPrompt) {
  WorldOfA world(options(16));
  const Request request = ask_a(50, 6);
  const Key before = world.key_of(request.adapters);
  const auto sink = world.submit(request);
  world.run(2);
  world.replace_adapter("a", 1, 2, true);
  world.run();
  const Switched how{.before = before,
                     .after = world.key_of(request.adapters),
                     .tokens_before = 0,
                     .first_new = 32};
  EXPECT_EQ(sink->tokens[0], expected(request, 0, how));
  EXPECT_EQ(sink->versions.at(1).tokens_before, 0);
}

TEST_P(Replacement, SwitchesAllChoicesAtOnce) {
  WorldOfA world(options());
  Request request = ask_a(9, 20);
  request.choices = 3;
  const Key before = world.key_of(request.adapters);
  const auto sink = world.submit(request);
  world.run(6);
  world.replace_adapter("a", 1, 2, true);
  world.run();
  ASSERT_EQ(sink->versions.size(), 2);
  const std::size_t at = sink->versions[1].tokens_before / 3;
  for (int choice = 0; choice < 3; ++choice)
    EXPECT_EQ(sink->tokens[static_cast<std::size_t>(choice)],
              expected(request, choice, at_this_token(world, request, before, at)));
}

TEST_P(Replacement, LeavesNothingOfTwoContentsToBeFound) {
  WorldOfA world(options());
  const Request request = ask_a(9, 30);
  const auto sink = world.submit(request);
  world.run(8);
  world.replace_adapter("a", 1, 2, true);
  world.run();
  Request next = request;
  next.tokens.insert(next.tokens.end(), sink->tokens[0].begin(), sink->tokens[0].end());
  for (const std::uint32_t seed : {2U, 1U}) {
    world.replace_adapter("a", 1, seed, false);
    const auto again = world.submit(next);
    world.run();
    EXPECT_EQ(again->tokens[0], world.expected(next));
  }
}

// What was preempted computes all again, with the new content alone, so that others may find it.
TEST_P(Replacement, SwitchesWhatWasPreempted) {
  WorldOfA world(options());
  const Request request = ask_a(9, 30);
  const Key before = world.key_of(request.adapters);
  const auto sink = world.submit(request);
  world.run(8);
  world.scheduler.reset_prefix_cache(true);
  ASSERT_EQ(world.scheduler.running(), 0);
  world.replace_adapter("a", 1, 2, true);
  world.run();
  ASSERT_EQ(sink->versions.size(), 2);
  const Switched how{.before = before,
                     .after = world.key_of(request.adapters),
                     .tokens_before = sink->versions[1].tokens_before,
                     .first_new = 0};
  EXPECT_EQ(sink->tokens[0], expected(request, 0, how));
  Request next = request;
  next.tokens.insert(next.tokens.end(), sink->tokens[0].begin(), sink->tokens[0].end());
  const auto again = world.submit(next);
  world.run();
  EXPECT_EQ(again->tokens[0], world.expected(next));
  EXPECT_GT(again->start->cached_tokens, 20);
}

// Of two adapters only the one switches that was replaced so.
TEST_P(Replacement, SwitchesOneOfTwoAdapters) {
  WorldOfA world(options());
  world.add_adapter("b", 1, 5);
  Request request = ask_a(9, 30);
  request.adapters = {{"a"}, {"b", 0.5F}};
  const Key before = world.key_of(request.adapters);
  const Key only_b = world.key_of({{"b", 0.5F}});
  const auto sink = world.submit(request);
  world.run(8);
  world.replace_adapter("b", 1, 6, false);
  world.run(2);
  world.replace_adapter("a", 1, 2, true);
  world.run();
  ASSERT_EQ(sink->versions.size(), 2);
  Switched how = at_this_token(world, request, before, sink->versions[1].tokens_before);
  how.after = world.key_of({{"a"}});
  how.after.push_back(only_b[0]);
  std::ranges::sort(how.after);
  EXPECT_EQ(sink->tokens[0], expected(request, 0, how));
}

// Ranks that a step has no room for beside others'.
TEST_P(Replacement, GoesOnWithTheOldWhereTheNewDoesNotFit) {
  WorldOptions narrow = options();
  narrow.limits.mix_rank = 24;
  World world(narrow);
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 2, 5);
  Request request = ask_a(9, 30);
  request.adapters = {{"a"}, {"b"}};
  const std::vector<std::int32_t> whole = world.expected(request);
  const auto sink = world.submit(request);
  world.run(8);
  world.replace_adapter("a", 2, 2, true);
  world.run();
  EXPECT_EQ(sink->tokens[0], whole);
  EXPECT_EQ(sink->versions.size(), 1);
}

TEST_P(Replacement, SwitchesWhatStandsStillInAPause) {
  WorldOfA world(options());
  const Request request = ask_a(9, 30);
  const Key before = world.key_of(request.adapters);
  const auto sink = world.submit(request);
  world.run(8);
  world.scheduler.pause({.mode = PauseMode::keep}).value();
  world.replace_adapter("a", 1, 2, true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  world.scheduler.resume("");
  world.run();
  ASSERT_EQ(sink->versions.size(), 2);
  EXPECT_EQ(
      sink->tokens[0],
      expected(request, 0, at_this_token(world, request, before, sink->versions[1].tokens_before)));
}

}  // namespace
}  // namespace motley::engine::test
