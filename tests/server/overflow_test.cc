// What is longer than the context is refused in the words by which clients know it.

#include <algorithm>
#include <cctype>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t context = 1000;

std::string ids(std::int64_t count) {
  std::string list = "[5";
  for (std::int64_t i = 1; i < count; ++i) list += ",5";
  return list + "]";
}

std::string words(std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) text += " a";
  return text;
}

std::string chat(std::string_view content, std::string_view more = "") {
  return cat(R"({"messages": [{"role": "user", "content": ")", content, "\"}]", more, "}");
}

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// As litellm 1.109, langchain-openai 1.7 and inspect-ai 0.3.285 look for it.
void expect_overflow(const Received& reply) {
  ASSERT_EQ(reply.status, 400) << reply.body.substr(0, 300);
  const std::string message = reply.error("message");
  EXPECT_THAT(message, StartsWith("This model's maximum context length is 1000 tokens. "));
  EXPECT_EQ(reply.error("type"), "invalid_request_error");
  // inspect-ai's openai provider, and langchain-openai in the text of the whole error.
  EXPECT_EQ(reply.error("code"), "context_length_exceeded");
  // litellm; what it takes for a rate limit comes first.
  EXPECT_THAT(small_letters(message), HasSubstr("this model's maximum context length is"));
  EXPECT_EQ(small_letters(message).find("rate limit"), std::string::npos);
  // inspect-ai's vllm provider.
  EXPECT_THAT(message, HasSubstr("maximum context length"));
}

TEST(Overflow, IsReportedInTheSameWordsHoweverThePromptIsTooLong) {
  TestServer server({.max_sequence_tokens = context});
  const std::string long_text(1 << 20, 'x');
  const std::string tools =
      R"(, "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}])";
  for (const std::string& body :
       {cat(R"({"prompt": )", ids(context), "}"), cat(R"({"prompt": )", ids(100'000), "}"),
        cat(R"({"prompt": [[5], )", ids(context + 1), R"(], "max_tokens": 5})"),
        cat(R"({"prompt": )", ids(context + 1), R"(, "max_tokens": 0, "echo": true})"),
        cat(R"({"prompt": ")", words(context), "\"}"),
        cat(R"({"prompt": ")", words(3 * context), "\"}"),
        cat(R"({"prompt": ["a", ")", long_text, "\"]}")})
    expect_overflow(server.ask(post("/v1/completions", body)));
  for (const std::string& body :
       {chat(words(context)), chat(words(3 * context)), chat(long_text),
        chat(words(context), R"(, "stream": true)"), chat(words(context - 30), tools),
        chat(words(context), R"(, "max_tokens": 5)")})
    expect_overflow(server.ask(post("/v1/chat/completions", body)));
}

TEST(Overflow, OfResponsesToo) {
  TestServer server({.max_sequence_tokens = context});
  for (const std::string& input : {words(context), words(3 * context), std::string(1 << 20, 'x')})
    expect_overflow(server.ask(post("/v1/responses", cat(R"({"input": ")", input, "\"}"))));
}

TEST(Overflow, OfTheAnswerEndsItWhereTheContextDoes) {
  TestServer server({.max_sequence_tokens = context});
  server.engine().say(std::vector<std::int32_t>(2000, 300));
  for (const char* const field : {"max_tokens", "max_completion_tokens"}) {
    const Received answer =
        server.ask(post("/v1/chat/completions", chat("x", cat(", \"", field, "\": 1000000"))));
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"length")"));
  }
  EXPECT_EQ(server
                .ask(post("/v1/completions",
                          cat(R"({"max_tokens": 1000000, "prompt": )", ids(context - 1), "}")))
                .status,
            200);
}

}  // namespace
}  // namespace motley::server
