// The experts of an answer's tokens, whole and where there are none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view completion_route = "/v1/completions";
constexpr std::string_view chat_route = "/v1/chat/completions";
const std::string ids_of_prompt = R"("prompt": [400, 401, 402, 403])";
const std::string hello = R"("messages": [{"role": "user", "content": "hello"}])";

json::Value answer_of(const TestServer& server, std::string_view path, std::string_view fields) {
  const Received reply = server.ask(post(path, cat("{", fields, "}")));
  EXPECT_EQ(reply.status, 200) << reply.body.substr(0, 300);
  return reply.json();
}

// What stands in an answer for the tokens at positions [first, end).
std::string file_of(std::int64_t first, std::int64_t end) {
  const engine::RoutedExpertsSizes& sizes = FakeEngine::routed_sizes;
  std::string text = cat("{'descr': '|u1', 'fortran_order': False, 'shape': (", end - first, ", ",
                         sizes.layers, ", ", sizes.top_k, "), }");
  text.append(117 - text.size(), ' ');
  std::string file = std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + text + "\n";
  for (; first < end; ++first)
    file.append(sizes.bytes_of_token(), static_cast<char>(FakeEngine::routed_at(first)));
  std::string base64;
  append_base64(base64, file);
  return base64;
}

TEST(RoutedExpertsOfAnswers, AreThoseOfAllTokensButTheLast) {
  TestServer server({.routed_experts = true});
  server.engine().say(std::vector<std::int32_t>{300, 301, 302});
  const json::Value text =
      answer_of(server, completion_route, cat(ids_of_prompt, R"(, "n": 2, "max_tokens": 3)"));
  EXPECT_EQ(text_at(text, "choices.0.routed_experts"), file_of(0, 6));
  EXPECT_EQ(text_at(text, "choices.1.routed_experts"), file_of(0, 6));
  const json::Value chat =
      answer_of(server, chat_route, cat(hello, R"(, "max_tokens": 2, "n": 2)"));
  const auto asked = std::ssize(server.engine().last_request().tokens);
  EXPECT_EQ(text_at(chat, "choices.0.routed_experts"), file_of(0, asked + 1));
  EXPECT_EQ(text_at(chat, "choices.1.routed_experts"), file_of(0, asked + 1));
}

TEST(RoutedExpertsOfAnswers, BeginWhereTheRequestSays) {
  TestServer server({.routed_experts = true});
  server.engine().say(std::vector<std::int32_t>{300, 301, 302});
  for (const int start : {0, 3, 4}) {
    const json::Value text = answer_of(
        server, completion_route,
        cat(ids_of_prompt, R"(, "max_tokens": 3, "routed_experts_prompt_start": )", start));
    EXPECT_EQ(text_at(text, "choices.0.routed_experts"), file_of(start, 6)) << start;
  }
  const json::Value prompt =
      answer_of(server, completion_route, cat(ids_of_prompt, R"(, "max_tokens": 0)"));
  EXPECT_EQ(text_at(prompt, "choices.0.routed_experts"), file_of(0, 3));
}

TEST(RoutedExpertsOfAnswers, EndWithAStopString) {
  TestServer server({.routed_experts = true});
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const auto said = tokenizer.encode("one two three four five six").value();
  server.engine().say(said);
  const json::Value text = answer_of(
      server, completion_route,
      cat(ids_of_prompt, R"(, "max_tokens": 6, "stop": " three", "return_token_ids": true)"));
  const auto tokens = std::ssize(*at(text, "choices.0.token_ids").if_array());
  EXPECT_LT(tokens, std::ssize(said));
  EXPECT_EQ(text_at(text, "choices.0.routed_experts"), file_of(0, 4 + tokens - 1));
}

TEST(RoutedExpertsOfAnswers, AreLeftOutIfTheRequestOrTheServerSaysSo) {
  TestServer keeps({.routed_experts = true});
  keeps.engine().say("fine");
  TestServer plain;
  plain.engine().say("fine");
  for (const std::string_view path : {completion_route, chat_route}) {
    const std::string asked = path == chat_route ? hello : ids_of_prompt;
    const json::Value without =
        answer_of(keeps, path, cat(asked, R"(, "return_routed_experts": false)"));
    EXPECT_EQ(text_at(without, "choices.0.routed_experts"), "(absent)");
    EXPECT_FALSE(keeps.engine().last_request().routed_experts_from);
    const Received streamed = keeps.ask(post(path, cat("{", asked, R"(, "stream": true})")));
    EXPECT_TRUE(streamed.done());
    EXPECT_FALSE(keeps.engine().last_request().routed_experts_from);
    EXPECT_EQ(text_at(answer_of(plain, path, asked), "choices.0.routed_experts"), "(absent)");
    const Received refused =
        plain.ask(post(path, cat("{", asked, R"(, "return_routed_experts": true})")));
    EXPECT_GE(refused.status, 400);
    EXPECT_EQ(refused.error("param"), "return_routed_experts");
    EXPECT_THAT(refused.error("message"), HasSubstr("--enable-return-routed-experts"));
  }
}

TEST(RoutedExpertsOfAnswers, ComeInPieces) {
  TestServer server({.max_sequence_tokens = 100'000, .routed_experts = true});
  server.engine().say(std::vector<std::int32_t>(5'000, 300));
  const std::vector<std::int32_t> asked(30'000, 400);
  const json::Value text =
      answer_of(server, completion_route,
                cat(R"("n": 2, "max_tokens": 5000, "prompt": [)", join(asked, ","), "]"));
  // The head has as many bytes for numbers of any length.
  for (const char* const choice : {"choices.0", "choices.1"})
    EXPECT_EQ(text_at(text, cat(choice, ".routed_experts")), file_of(0, 34'999));
}

}  // namespace
}  // namespace motley::server
