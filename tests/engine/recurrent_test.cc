// Models whose layers keep a state, through runner and engine: whatever happens to a sequence, its
// answer has the bits that it has alone and in one piece. On a GPU in its batch-invariant mode.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/golden_answers.h"
#include "engine/recurrent_mixers.h"
#include "kernels/recurrence.h"

namespace motley::engine_tests {
namespace {

using score_tests::GoldenModel;

// A family with states, or a delta net and a convolution in place of a golden's own mixers.
struct Kind {
  std::string name;
  std::string golden;
  bool own_mixers = true;
  bool exact = true;
};

constexpr bool on_gpu = std::string_view(MOTLEY_STATES_ON) == "cuda";

std::vector<Kind> kinds() {
  std::vector<Kind> all{{"test_mixers", "qwen3_moe", false},
                        {"qwen3_5_moe", "qwen3_5_moe"},
                        {"qwen3_next", "qwen3_next"}};
  if (!on_gpu) return all;
  all.push_back({"qwen3_5_moe_in_bf16", "qwen3_5_moe", true, false});
  return all;
}

class RecurrentModel : public testing::TestWithParam<Kind> {
 protected:
  GoldenModel model(bool fusion = true) const { return model_on(1, fusion, 2); }
  GoldenModel model_on(int ranks, bool fusion = true, int threads = 1) const {
    GoldenModel::Options options{.exact = GetParam().exact,
                                 .threads = threads,
                                 .batch_invariant = on_gpu,
                                 .fusion = fusion,
                                 .ranks = ranks};
    if (on_gpu) options.device.kind = tensor::DeviceChoice::Kind::cuda;
    if (!GetParam().own_mixers) options.mixer = load_recurrent_mixer;
    return GoldenModel(GetParam().golden, options);
  }
};
// On a GPU fused launches sum in other orders, and ranks have a program of their own.
class RecurrentModelOnTheCpu : public RecurrentModel {};

constexpr std::int64_t longest = 64;

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>((11 * i * i + 5 * i) % 131));
  return tokens;
}

// Logits by position.
using Logits = std::map<std::int64_t, std::vector<float>>;

// One sequence in steps over a slot.
class Steps {
 public:
  Steps(runner::Runner& runner, runner::ConsecutivePages& pages, std::int32_t slot)
      : runner_(&runner), pages_(pages.take(longest)), slot_(slot) {}

  // Computes these tokens from the length on. All but the first `certain` may be taken back.
  void step(std::span<const std::int32_t> tokens, std::optional<std::int64_t> certain = {}) {
    const std::int64_t kept = certain.value_or(std::ssize(tokens));
    const runner::Chunk chunk{.pages = pages_,
                              .length = length_,
                              .tokens = tokens,
                              .logits = runner::LogitsOf::all,
                              .state = {.slot = slot_, .anchor = anchor_, .certain = kept}};
    auto sink = [&](const tensor::Tensor& rows,
                    std::span<const runner::LogitRow> places) -> Result<void> {
      for (std::size_t i = 0; i < places.size(); ++i) {
        std::vector<float> row(static_cast<std::size_t>(rows.dim(1)));
        const std::byte* const from = rows.select(static_cast<std::int64_t>(i)).bytes();
        MOTLEY_TRY_VOID(runner_->stream().copy(row.data(), from, row.size() * sizeof(float)));
        MOTLEY_TRY_VOID(runner_->stream().synchronize());
        logits_[length_ + static_cast<std::int64_t>(places[i].token)] = std::move(row);
      }
      return {};
    };
    runner_->step(std::array{chunk}, sink).value();
    anchor_ = kernels::anchor_after(length_, kept);
    length_ += std::ssize(tokens);
  }
  void take_back_to(std::int64_t length) { length_ = length; }
  // Begins at a snapshot of a sequence with the same tokens, whose pages it reads; or where the
  // other stands, with a copy of its state.
  void go_on_from(const Steps& other, std::int64_t length) { go_on_from(other, length, length); }
  void go_on_from(const Steps& other, std::int64_t length, std::int64_t anchor) {
    length_ = length;
    anchor_ = anchor;
    for (std::int64_t page = 0; page < runner::KvMemory::pages_for(length); ++page) {
      const auto at = static_cast<std::size_t>(page);
      runner_->copy_page(other.pages_[at], pages_[at]).value();
    }
  }

  std::int64_t length() const { return length_; }
  std::int64_t anchor() const { return anchor_; }
  const Logits& logits() const { return logits_; }

 private:
  runner::Runner* runner_;
  std::vector<std::int32_t> pages_;
  std::int32_t slot_;
  std::int64_t length_ = 0;
  std::int64_t anchor_ = 0;
  Logits logits_;
};

Logits whole(runner::Runner& runner, const std::vector<std::int32_t>& tokens) {
  runner::ConsecutivePages pages(runner.kv());
  Steps steps(runner, pages, 0);
  steps.step(tokens);
  return steps.logits();
}

TEST_P(RecurrentModel, APromptMayBeCutAnywhere) {
  GoldenModel golden = model();
  const std::vector<std::int32_t> tokens = some_tokens(60);
  const Logits wanted = whole(golden.runner(), tokens);
  for (const std::int64_t piece : {1, 5, 16, 23}) {
    runner::ConsecutivePages pages(golden.runner().kv());
    Steps steps(golden.runner(), pages, 3);
    for (std::int64_t at = 0; at < std::ssize(tokens); at += piece) {
      const std::int64_t count = std::min(piece, std::ssize(tokens) - at);
      steps.step(
          std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
    }
    EXPECT_EQ(steps.logits(), wanted) << "pieces of " << piece;
  }
}

TEST_P(RecurrentModelOnTheCpu, FusionChangesNoBit) {
  GoldenModel fused = model();
  GoldenModel plain = model(false);
  const std::vector<std::int32_t> tokens = some_tokens(40);
  EXPECT_EQ(whole(fused.runner(), tokens), whole(plain.runner(), tokens));
}

// Each step has drafts, of which some are right.
TEST_P(RecurrentModel, WhatIsTakenBackLeavesNothing) {
  GoldenModel golden = model();
  const std::vector<std::int32_t> tokens = some_tokens(60);
  const Logits wanted = whole(golden.runner(), tokens);
  for (const std::int64_t right : {0, 1, 5, 8}) {
    runner::ConsecutivePages pages(golden.runner().kv());
    Steps steps(golden.runner(), pages, 1);
    while (steps.length() < 50) {
      constexpr std::int64_t drafts = 8;
      const std::int64_t at = steps.length();
      std::vector<std::int32_t> rows(tokens.begin() + at, tokens.begin() + at + 1 + right);
      rows.resize(1 + drafts, 7);
      steps.step(rows, 1);
      steps.take_back_to(at + 1 + right);
      for (std::int64_t row = at; row < steps.length(); ++row)
        ASSERT_EQ(steps.logits().at(row), wanted.at(row)) << right << " right, position " << row;
    }
  }
}

void expect_copies_with_the_same_bits(runner::Runner& runner) {
  const std::vector<std::int32_t> tokens = some_tokens(60);
  const Logits wanted = whole(runner, tokens);
  runner::ConsecutivePages pages(runner.kv());
  Steps first(runner, pages, 0);
  first.step(std::span(tokens).first(37));
  EXPECT_EQ(first.anchor(), 32);
  runner.save_state(0, 2).value();
  // What other sequences do in the slot does not matter.
  Steps other(runner, pages, 5);
  other.step(some_tokens(11));
  runner.restore_state(2, 5).value();
  Steps again(runner, pages, 5);
  again.go_on_from(first, 32);
  Steps copied(runner, pages, 6);
  runner.copy_state(0, 6).value();
  copied.go_on_from(first, 37, first.anchor());
  first.step(std::span(tokens).subspan(37));
  copied.step(std::span(tokens).subspan(37));
  again.step(std::span(tokens).subspan(32, 3));
  again.step(std::span(tokens).subspan(35));
  for (const auto& [position, logits] : again.logits())
    EXPECT_EQ(logits, wanted.at(position)) << position;
  EXPECT_EQ(copied.logits().size(), tokens.size() - 37);
  for (const auto& [position, logits] : copied.logits())
    EXPECT_EQ(logits, wanted.at(position)) << position;
  EXPECT_EQ(first.logits(), wanted);
}

TEST_P(RecurrentModel, ACopyAndASnapshotGoOnWithTheSameBits) {
  GoldenModel golden = model();
  expect_copies_with_the_same_bits(golden.runner());
}

TEST_P(RecurrentModelOnTheCpu, ACopyAndASnapshotGoOnWithTheSameBitsOnEveryRank) {
  GoldenModel golden = model_on(2);
  expect_copies_with_the_same_bits(golden.runner());
}

// Few rows, slots, pages and places, forks, penalties, adapters that don't all fit.
void expect_same_bits_in_little_room(GoldenModel& golden, std::int64_t host_snapshots = 0) {
  const GoldenEngine::Options room{.max_rows = 7,
                                   .max_sequences = 6,
                                   .pages = 7,
                                   .state_slots = 5,
                                   .snapshots = 3,
                                   .host_snapshots = host_snapshots,
                                   .adapter_bytes = std::uint64_t{1} << 20};
  const std::uint64_t preempted =
      expect_same_bits_beside_others(golden, {.room = room, .requests = 10, .max_tokens = 40});
  EXPECT_GT(preempted, 0U);
}

TEST_P(RecurrentModel, NothingBesideChangesABit) {
  GoldenModel golden = model();
  expect_same_bits_in_little_room(golden);
}

TEST_P(RecurrentModel, NothingBesideChangesABitWithPlacesOnTheHost) {
  GoldenModel golden = model();
  expect_same_bits_in_little_room(golden, 6);
}

TEST_P(RecurrentModelOnTheCpu, NothingBesideChangesABitOnSeveralRanks) {
  GoldenModel golden = model_on(2);
  expect_same_bits_in_little_room(golden);
  expect_same_bits_in_little_room(golden, 6);
}

TEST_P(RecurrentModel, APrefixHitChangesNoBit) {
  GoldenModel golden = model();
  GoldenEngine world(golden, {});
  engine::Request request{.tokens = some_tokens(40), .max_tokens = 6};
  request.sampling.temperature = 0;
  const auto first = world.submit(request);
  first->wait();
  const auto second = world.submit(request);
  second->wait();
  EXPECT_EQ(first->cached_tokens, 0);
  EXPECT_EQ(second->cached_tokens, 32);
  EXPECT_EQ(first->tokens, second->tokens);
  EXPECT_EQ(first->logprobs, second->logprobs);
}

// More prompts than the device has places for, and each again.
TEST_P(RecurrentModel, ASnapshotFromTheHostChangesNoBit) {
  for (const int ranks : {1, 2}) {
    if (on_gpu && ranks > 1) continue;
    GoldenModel golden = model_on(ranks);
    GoldenEngine world(golden, {.snapshots = 1, .host_snapshots = 12});
    const auto ask = [&](std::int32_t first) {
      engine::Request request{.tokens = some_tokens(40), .max_tokens = 6};
      request.tokens[0] = first;
      request.sampling.temperature = 0;
      auto answer = world.submit(request);
      answer->wait();
      return answer;
    };
    std::vector<std::shared_ptr<Answer>> before;
    for (std::int32_t first = 0; first < 4; ++first) before.push_back(ask(first));
    for (std::int32_t first = 0; first < 4; ++first) {
      const auto again = ask(first);
      const Answer& wanted = *before[static_cast<std::size_t>(first)];
      EXPECT_EQ(again->cached_tokens, 32) << first << ", " << ranks << " ranks";
      EXPECT_EQ(again->tokens, wanted.tokens);
      EXPECT_EQ(again->logprobs, wanted.logprobs);
    }
    const engine::Stats stats = world.engine().stats();
    EXPECT_GE(stats.snapshot_loads, 3U) << "of four snapshots the device has one";
    EXPECT_EQ(stats.host_snapshots, 12);
    EXPECT_GE(stats.host_snapshots_used, 4);
    EXPECT_EQ(stats.snapshots, 1);
  }
}

// The second turn of a conversation computes what is new, also where the answer's last row ends a
// page.
TEST_P(RecurrentModel, TheNextTurnGoesOnAfterTheAnswer) {
  GoldenModel golden = model();
  GoldenEngine world(golden, {});
  GoldenEngine apart(golden, {.prefix_cache = false});
  for (std::int64_t length = 1; length <= 30; length += length < 16 ? 1 : 14) {
    engine::Request request{.tokens = some_tokens(20), .max_tokens = length};
    request.tokens[0] = static_cast<std::int32_t>(length);
    request.sampling.temperature = 0;
    const auto first = world.submit(request);
    first->wait();
    request.tokens.insert(request.tokens.end(), first->tokens[0].begin(), first->tokens[0].end());
    request.tokens.push_back(9);
    request.max_tokens = 5;
    const auto second = world.submit(request);
    second->wait();
    // The answer's last token was drawn, and never computed.
    EXPECT_EQ(second->cached_tokens, (20 + length - 1) / 16 * 16) << "an answer of " << length;
    const auto wanted = apart.submit(request);
    wanted->wait();
    EXPECT_EQ(second->tokens, wanted->tokens) << "an answer of " << length;
    EXPECT_EQ(second->logprobs, wanted->logprobs) << "an answer of " << length;
  }
}

// Two prompts that part in the middle of a long one.
TEST_P(RecurrentModel, LongSequencesAreSavedOnTheWayWhereTheEngineIsAskedTo) {
  GoldenModel golden = model();
  for (const std::int64_t interval : {0, 16}) {
    GoldenEngine world(golden, {.max_rows = 16, .snapshot_interval = interval});
    engine::Request request{.tokens = some_tokens(60), .max_tokens = 1};
    world.submit(request)->wait();
    request.tokens[40] = 5;
    EXPECT_EQ(world.submit(request)->wait().cached_tokens, interval == 0 ? 0 : 32);
  }
}

TEST_P(RecurrentModel, ScoresAsItAnswers) {
  GoldenModel golden = model();
  GoldenEngine world(golden, {.max_rows = 16});
  engine::Request request{.tokens = some_tokens(50), .max_tokens = 0, .prompt_logprobs = true};
  const auto answer = world.submit(request);
  answer->wait();
  runner::ScoreLine line;
  line.tokens = request.tokens;
  const runner::ScoreResult scored =
      golden.score(std::vector(2, line), std::vector<lora::Mix>(2))[1];
  ASSERT_EQ(answer->prompt_logprobs.size() + 1, scored.token_logprobs.size());
  for (std::size_t i = 0; i < answer->prompt_logprobs.size(); ++i)
    EXPECT_EQ(answer->prompt_logprobs[i], scored.token_logprobs[i + 1]) << i;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RecurrentModelOnTheCpu);
INSTANTIATE_TEST_SUITE_P(Kinds, RecurrentModelOnTheCpu,
                         testing::ValuesIn(on_gpu ? std::vector<Kind>() : kinds()),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Kinds, RecurrentModel, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace motley::engine_tests
