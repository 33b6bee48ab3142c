#include "runner/score_input.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::runner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t vocabulary = 100;

Result<std::vector<ScoreLine>> parse(std::string_view text) {
  // One token per character: its distance from 'a'.
  const auto encode = [](std::string_view prompt) -> Result<std::vector<std::int32_t>> {
    std::vector<std::int32_t> tokens;
    for (const char c : prompt) {
      if (c == '!') return Error(ErrorCode::bad_file, "no tokens for this");
      tokens.push_back(c - 'a');
    }
    return tokens;
  };
  return parse_score_lines(text, "in.jsonl",
                           {.vocabulary = vocabulary, .adapters = {"a", "b"}, .encode = encode});
}

std::string refusal(std::string_view text) {
  const auto lines = parse(text);
  return lines.ok() ? "accepted" : lines.error().message();
}

TEST(ScoreInput, ReadsEveryForm) {
  const auto lines = parse(
      "{\"token_ids\":[1,2,99]}\n"
      "{\"token_ids\":[1],\"adapter\":null}\n"
      "{\"token_ids\":[1],\"adapter\":\"a\"}\n"
      "{\"token_ids\":[1,2],\"adapters\":[{\"name\":\"a\",\"scale\":0.5},{\"name\":\"b\"}],"
      "\"token_logprobs\":[null,-1.5]}\n");
  ASSERT_TRUE(lines.ok()) << lines.error().message();
  ASSERT_EQ(lines->size(), 4U);
  EXPECT_THAT((*lines)[0].tokens, ElementsAre(1, 2, 99));
  EXPECT_TRUE((*lines)[1].adapters.empty());
  EXPECT_THAT((*lines)[2].adapters, ElementsAre(lora::ScaledAdapter{"a", 1.0}));
  EXPECT_THAT((*lines)[3].adapters,
              ElementsAre(lora::ScaledAdapter{"a", 0.5}, lora::ScaledAdapter{"b", 1.0}));
  EXPECT_EQ((*(*lines)[3].reference)[1], -1.5);
}

TEST(ScoreInput, LastLineNeedsNoNewline) { EXPECT_TRUE(parse("{\"token_ids\":[1]}").ok()); }

TEST(ScoreInput, NamesTheBadLine) {
  EXPECT_THAT(refusal("{\"token_ids\":[1]}\n{\"token_ids\":[100]}\n"),
              testing::AllOf(HasSubstr("in.jsonl, line 2"),
                             HasSubstr("token id 100 is out of range"), HasSubstr("0 to 99")));
  EXPECT_THAT(refusal("{\"token_ids\":[-1]}"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("{\"token_ids\":[]}"), HasSubstr("token_ids is empty"));
  EXPECT_THAT(refusal("{}"), HasSubstr("no token_ids"));
  EXPECT_THAT(refusal("{\"token_ids\":[1.5]}"), HasSubstr("line 1, token_ids"));
  EXPECT_THAT(refusal("{\"token_ids\":[1],\"adapter\":\"c\"}"),
              HasSubstr("unknown adapter 'c' (in.jsonl, line 1): the adapters loaded are a, b"));
  EXPECT_THAT(refusal("{\"token_ids\":[1],\"adapter\":\"a\",\"adapters\":[]}"),
              HasSubstr("both adapter and adapters"));
  EXPECT_THAT(refusal("{\"token_ids\":[1],\"adapters\":[{\"name\":\"a\"},{\"name\":\"a\"}]}"),
              HasSubstr("adapter 'a' twice"));
  EXPECT_THAT(refusal("{\"token_ids\":[1],\"temperature\":1}"),
              HasSubstr("unknown field 'temperature'"));
  EXPECT_THAT(refusal("{\"token_ids\":[1,2],\"token_logprobs\":[null]}"),
              HasSubstr("1 reference numbers for 2 tokens"));
  EXPECT_THAT(refusal("{\"token_ids\":[1]}\n\n{\"token_ids\":[1]}\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal(""), HasSubstr("no lines"));
  EXPECT_THAT(refusal("not json\n"), HasSubstr("line 1"));
}

TEST(ScoreInput, PromptsBecomeTokens) {
  const auto lines = parse("{\"prompt\":\"bcd\",\"adapter\":\"a\"}");
  ASSERT_TRUE(lines.ok()) << lines.error().message();
  EXPECT_THAT((*lines)[0].tokens, ElementsAre(1, 2, 3));
}

TEST(ScoreInput, NamesTheBadPrompt) {
  EXPECT_THAT(refusal("{\"prompt\":\"\"}"), HasSubstr("prompt has no tokens (in.jsonl, line 1)"));
  EXPECT_THAT(refusal("{\"prompt\":7}"), HasSubstr("line 1, prompt"));
  EXPECT_THAT(refusal("{\"prompt\":\"a\",\"token_ids\":[1]}"),
              HasSubstr("both prompt and token_ids"));
  EXPECT_THAT(refusal("{\"prompt\":\"!\"}"), HasSubstr("no tokens for this (in.jsonl, line 1)"));
  EXPECT_THAT(parse_score_lines(
                  "{\"prompt\":\"x\"}", "in.jsonl",
                  {.vocabulary = 5,
                   .encode = [](std::string_view) { return Result(std::vector<std::int32_t>{5}); }})
                  .error()
                  .message(),
              HasSubstr("the tokenizer gives id 5, and the model's are 0 to 4"));
}

}  // namespace
}  // namespace motley::runner
