#include "text/name_pattern.h"

#include <string>

#include <gtest/gtest.h>

namespace motley::text {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  auto compiled = NamePattern::compile(pattern);
  EXPECT_TRUE(compiled.ok()) << pattern << ": " << compiled.error().message();
  return compiled.ok() && compiled->matches_end(name);
}

constexpr std::string_view q1 = "model.layers.1.self_attn.q_proj";

TEST(NamePattern, MatchesWholeNamesAndEndsBehindADot) {
  EXPECT_TRUE(matches("q_proj", q1));
  EXPECT_TRUE(matches("self_attn\\.q_proj", q1));
  EXPECT_TRUE(matches("model.layers.1.self_attn.q_proj", q1));
  EXPECT_FALSE(matches("proj", q1));
  EXPECT_FALSE(matches("self_attn", q1));
  EXPECT_FALSE(matches("q_proj", "model.qq_proj"));
  EXPECT_TRUE(matches("", "model."));
}

TEST(NamePattern, KnowsTheFormsThatTrainersWrite) {
  EXPECT_TRUE(matches(".*\\.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj"));
  EXPECT_TRUE(matches("layers\\.[0-3]\\.self_attn\\.\\w+", q1));
  EXPECT_FALSE(matches("layers\\.[^0-3]\\.self_attn\\.\\w+", q1));
  EXPECT_TRUE(matches("layers\\.(0|1|17)\\..*", q1));
  EXPECT_FALSE(matches("layers\\.(0|17)\\..*", q1));
  EXPECT_TRUE(matches("^model\\..*q_proj$", q1));
  EXPECT_FALSE(matches("^layers.*", q1));
  EXPECT_TRUE(matches("layers\\.\\d{1,2}\\.(?:self_attn|mlp)\\.q_(proj)?", q1));
  EXPECT_TRUE(matches("layers\\.\\d{2}\\..*", "layers.17.x"));
  EXPECT_FALSE(matches("layers\\.\\d{2}\\..*", q1));
  EXPECT_TRUE(matches("(?P<leaf>[qkv]_proj)", q1));
  EXPECT_TRUE(matches("q.*?j", q1));
  EXPECT_TRUE(matches("\\bq_proj\\b", q1));
  EXPECT_TRUE(matches("[]q]_proj", q1));
  EXPECT_TRUE(matches("a{,2}q_proj", q1));
  EXPECT_TRUE(matches("x{y", "x{y"));
}

bool starts(std::string_view pattern, std::string_view name) {
  auto compiled = NamePattern::compile(pattern);
  EXPECT_TRUE(compiled.ok()) << pattern << ": " << compiled.error().message();
  return compiled.ok() && compiled->matches_start(name);
}

TEST(NamePattern, MatchesBeginningsAsPythonsMatchDoes) {
  EXPECT_TRUE(starts(".*self_attn", q1));
  EXPECT_TRUE(starts("model", q1));
  EXPECT_TRUE(starts("", q1));
  EXPECT_FALSE(starts("self_attn", q1));
  EXPECT_FALSE(starts("model$", q1));
  EXPECT_TRUE(starts(".*q_proj$", q1));
  EXPECT_TRUE(starts("lm_head|model\\.layers\\.[0-3]\\.", q1));
}

TEST(NamePattern, LooksAhead) {
  EXPECT_TRUE(starts("^(?!.*(?:lm_head|router)).*proj$", q1));
  EXPECT_FALSE(starts("^(?!.*(?:lm_head|self_attn)).*proj$", q1));
  EXPECT_TRUE(starts("model\\.(?=layers\\.1\\.)", q1));
  EXPECT_FALSE(starts("model\\.(?=layers\\.2\\.)", q1));
  EXPECT_TRUE(starts(".*mlp\\.(?!experts).*", "model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(starts(".*mlp\\.(?!experts).*", "model.layers.0.mlp.experts.7.up_proj"));
  EXPECT_TRUE(matches("(?!k)[qk]_proj", q1));
  EXPECT_FALSE(matches("(?!q)[qk]_proj", q1));
  EXPECT_TRUE(starts("(?!(?!model))", q1));
  EXPECT_TRUE(starts("a(?=b)*b", "ab"));
}

TEST(NamePattern, RunsInBoundedTime) {
  const std::string name(2000, 'a');
  EXPECT_FALSE(matches("(a*)*b", name));
  EXPECT_FALSE(matches("(a|a)*(a|a)*(a|aa)+b", name));
  EXPECT_TRUE(matches("(a?){1000}a*", name));
  EXPECT_TRUE(matches("((){3}){3}a*", name));
  EXPECT_FALSE(starts("(?:(?!(?:a*)*b)a)*b", name));
  EXPECT_FALSE(starts("(?=.*(?=.*(?=.*(?=.*(?=.*b)))))", std::string(200, 'a')));
}

TEST(NamePattern, RefusesWhatItDoesNotKnow) {
  for (const char* broken :
       {"(", ")", "[", "[a", "*", "a**", "a{3}{2}", "a{3,1}", "\\", "[z-a]", "(?P<x", "(?:a"}) {
    const auto pattern = NamePattern::compile(broken);
    ASSERT_FALSE(pattern.ok()) << broken;
    EXPECT_EQ(pattern.error().code(), ErrorCode::bad_file) << broken;
  }
  for (const char* beyond : {"(?<=a)", "(?<!a)", "(?i)a", "(a)\\1", "(?P=x)", "a*+", "\\pL",
                             "(((a{1000}){1000}){1000}){1000}", "a{2000}", "(?:(?=a).){9}"}) {
    const auto pattern = NamePattern::compile(beyond);
    ASSERT_FALSE(pattern.ok()) << beyond;
    EXPECT_EQ(pattern.error().code(), ErrorCode::unsupported) << beyond;
  }
}

}  // namespace
}  // namespace motley::text
