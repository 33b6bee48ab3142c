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
  return parse_score_lines(text, "in.jsonl", vocabulary, {"a", "b"});
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
  EXPECT_THAT((*lines)[2].adapters, ElementsAre(ScaledAdapter{"a", 1.0}));
  EXPECT_THAT((*lines)[3].adapters, ElementsAre(ScaledAdapter{"a", 0.5}, ScaledAdapter{"b", 1.0}));
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

TEST(ScoreInput, PromptsAreNotThereYet) {
  const auto lines = parse("{\"prompt\":\"hello\"}");
  ASSERT_FALSE(lines.ok());
  EXPECT_EQ(lines.error().code(), ErrorCode::not_implemented);
  EXPECT_THAT(lines.error().message(), HasSubstr("give token_ids"));
}

}  // namespace
}  // namespace motley::runner
