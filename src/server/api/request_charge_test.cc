#include "server/api/request_charge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::server {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

GenerationFields fields_with(int choices, std::optional<std::int64_t> max_tokens, int top = -1) {
  GenerationFields fields;
  fields.max_tokens = max_tokens;
  fields.choices = choices;
  fields.sampling.logprobs = top >= 0;
  fields.sampling.top_logprobs = std::max(top, 0);
  return fields;
}

constexpr std::int64_t room = 262'144;

TEST(RequestCharge, ASmallRequestCostsLittle) {
  const RequestCharge charge =
      charge_for(fields_with(1, 4), {.prompt_tokens = 10, .room_tokens = room});
  EXPECT_LT(charge.memory_bytes, 16U << 10);
  EXPECT_LT(charge.answer_bytes, 1U << 10);
  EXPECT_TRUE(check_charge(charge, {}).ok());
}

TEST(RequestCharge, ScoresAreChargedOnceForAllChoices) {
  const RequestSize size{.prompts = 4,
                         .prompt_tokens = 4 * 1023,
                         .prompt_bytes = 4 * 4000,
                         .room_tokens = room,
                         .echo = true};
  const RequestCharge one = charge_for(fields_with(1, 0, 20), size);
  const RequestCharge all = charge_for(fields_with(128, 0, 20), size);
  // Besides lists that are written once: 512 choices without tokens.
  EXPECT_LT(all.memory_bytes, one.memory_bytes + 7 * mebibyte);
  EXPECT_GT(all.answer_bytes, 291'000'000U);
  EXPECT_LT(all.answer_bytes, 400'000'000U);
  EXPECT_TRUE(check_charge(all, {}).ok());
}

TEST(RequestCharge, StopsAreChargedOnceForAllChoices) {
  GenerationFields fields = fields_with(128, 16);
  fields.stop.assign(16, std::string(1000, 'x'));
  const RequestCharge charge =
      charge_for(fields, {.prompts = 32, .prompt_tokens = 32, .room_tokens = room});
  EXPECT_LT(charge.memory_bytes, 32 * mebibyte);
  fields.stop.clear();
  EXPECT_LT(
      charge.memory_bytes,
      charge_for(fields, {.prompts = 32, .prompt_tokens = 32, .room_tokens = room}).memory_bytes +
          mebibyte);
}

TEST(RequestCharge, ListsOfTokensCount) {
  const RequestSize size{.prompt_tokens = 10'000, .room_tokens = room};
  const RequestCharge plain = charge_for(fields_with(8, 1000), size);
  GenerationFields fields = fields_with(8, 1000);
  fields.tokens.return_ids = true;
  const RequestCharge ids = charge_for(fields, size);
  // 24 bytes are kept for each token.
  EXPECT_GE(ids.memory_bytes, plain.memory_bytes + 8 * 1000 * 24);
  EXPECT_GE(ids.answer_bytes, plain.answer_bytes + 8 * (10'000 + 1000) * 7);
  fields.stream = true;
  EXPECT_GE(charge_for(fields, size).memory_bytes, size.prompt_tokens * 16);
  EXPECT_LT(charge_for(fields, size).memory_bytes, ids.memory_bytes);

  fields = fields_with(8, 1000);
  fields.prompt_top = 20;
  const RequestCharge scores = charge_for(fields, size);
  EXPECT_GE(scores.memory_bytes, plain.memory_bytes + 10'000 * 2 * (4 + 20 * 8));
  EXPECT_LT(scores.memory_bytes, plain.memory_bytes + 5 * mebibyte) << "once for all choices";
  EXPECT_GE(scores.answer_bytes, plain.answer_bytes + 8 * 10'000 * 21 * 60);
  fields.sampling.logprobs = true;
  RequestSize echoed = size;
  echoed.echo = true;
  EXPECT_GT(charge_for(fields, echoed).answer_bytes, scores.answer_bytes);
  EXPECT_LT(charge_for(fields, echoed).memory_bytes, scores.memory_bytes + 6 * mebibyte);
}

TEST(RequestCharge, HeavyButUsualRequestsPass) {
  // A prompt of the length of usual contexts, with its log-probabilities.
  EXPECT_TRUE(
      check_charge(charge_for(fields_with(1, 0, 20),
                              {.prompt_tokens = 262'144, .prompt_bytes = 1'200'000, .echo = true}),
                   {})
          .ok());
  // Many long choices with log-probabilities.
  EXPECT_TRUE(
      check_charge(
          charge_for(fields_with(128, 4096, 20), {.prompt_tokens = 100, .room_tokens = room}), {})
          .ok());
  // For a chat of unlimited length, what is kept is charged as it is generated.
  const RequestCharge open = charge_for(
      fields_with(1, std::nullopt), {.prompt_tokens = 1000, .room_tokens = 262'144, .chat = true});
  EXPECT_LT(open.memory_bytes, mebibyte);
  // The same for one that allows more than it will need.
  const RequestCharge long_one =
      charge_for(fields_with(1, 200'000), {.prompt_tokens = 1000, .room_tokens = room});
  EXPECT_EQ(long_one.admitted_bytes, open.admitted_bytes);
  EXPECT_GT(long_one.memory_bytes, 30 * long_one.admitted_bytes);
  EXPECT_LT(2000 * open.admitted_bytes, std::size_t{2} << 30);
}

TEST(RequestCharge, RefusalsNameFigureLimitAndFields) {
  const auto refused = check_charge(
      charge_for(fields_with(128, 32'000, 20), {.prompt_tokens = 100, .room_tokens = room}), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::too_long);
  EXPECT_EQ(refused.error().message(),
            "the request may take 1.5 GiB, and one may take 256.0 MiB "
            "(n 128, logprobs 20, max_tokens 32000): ask for less of these, or send several "
            "requests");
}

TEST(RequestCharge, WhatEveryPromptCopiesCounts) {
  GenerationFields fields = fields_with(1, 1);
  fields.grammar_field = "guided_regex";
  fields.sampling.grammar =
      grammar::Spec{.kind = grammar::Spec::Kind::regex, .text = std::string(1 << 20, 'a')};
  const RequestSize many{.prompts = 1024, .prompt_tokens = 1024, .room_tokens = room};
  const auto refused = check_charge(charge_for(fields, many), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("guided_regex of 1048576 bytes"));
  const RequestSize tools{
      .prompt_tokens = 10, .tools_bytes = 4 << 20, .room_tokens = room, .chat = true};
  EXPECT_FALSE(check_charge(charge_for(fields_with(128, 1), tools), {}).ok());
}

TEST(RequestCharge, PenaltiesCountTheirOwnTokens) {
  GenerationFields fields = fields_with(64, 1000);
  const RequestSize size{.prompt_tokens = 10'000, .room_tokens = room};
  const std::size_t without = charge_for(fields, size).memory_bytes;
  fields.sampling.presence_penalty = 1;
  EXPECT_GE(charge_for(fields, size).memory_bytes, without + 64 * 11'000 * sizeof(std::int32_t));
}

TEST(RequestCharge, ASmallServerAcceptsSmallRequests) {
  EXPECT_EQ(limits_within(16 * mebibyte).memory_bytes, 16 * mebibyte);
  EXPECT_EQ(limits_within(std::size_t{4} << 30).memory_bytes, 256 * mebibyte);
}

}  // namespace
}  // namespace motley::server
