// Log-probabilities of answers: one for each token that was drawn, whole and streamed.

#include <limits>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/api/reply_parts.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;

// The lists of a completion's first choice.
struct Lists {
  std::string text;
  std::vector<std::string> tokens;
  std::vector<double> logprobs;  // 1 where there is none
  std::vector<std::int64_t> offsets;
  std::string finish = "null";

  void add(const json::Value& choice) {
    text += text_at(choice, "text");
    for (const json::Value& token : *at(choice, "logprobs.tokens").if_array())
      tokens.push_back(*token.if_string());
    for (const json::Value& value : *at(choice, "logprobs.token_logprobs").if_array())
      logprobs.push_back(value.is_null() ? 1 : value.as_number("logprob").value());
    for (const json::Value& value : *at(choice, "logprobs.text_offset").if_array())
      offsets.push_back(*value.if_integer());
    if (text_at(choice, "finish_reason") != "null") finish = text_at(choice, "finish_reason");
  }
  bool operator==(const Lists&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Lists& lists) {
  return out << lists.text << testing::PrintToString(lists.tokens)
             << testing::PrintToString(lists.logprobs) << testing::PrintToString(lists.offsets)
             << lists.finish;
}

Lists whole_completion(const TestServer& server, std::string_view fields) {
  const Received reply = server.ask(post("/v1/completions", cat("{", fields, "}")));
  EXPECT_EQ(reply.status, 200) << reply.body;
  Lists lists;
  lists.add(at(reply.json(), "choices.0"));
  return lists;
}

Lists streamed_completion(const TestServer& server, std::string_view fields) {
  const Received reply =
      server.ask(post("/v1/completions", cat("{", fields, R"(, "stream": true})")));
  Lists lists;
  for (const json::Value& event : reply.events()) lists.add(at(event, "choices.0"));
  return lists;
}

// The tokens of a text, as the tokenizer writes each.
std::vector<std::string> pieces_of(const text::Tokenizer& tokenizer,
                                   std::span<const std::int32_t> ids) {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) pieces.push_back(tokenizer.decode(std::span(&id, 1), false));
  return pieces;
}

// A token for each letter.
std::vector<std::int32_t> letters(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char letter : text)
    ids.push_back(
        tokenizer.encode(std::string_view(&letter, 1), {.add_special_tokens = false}).value()[0]);
  return ids;
}

// Log-probabilities that the fake engine gives to so many tokens.
std::vector<double> told(std::size_t tokens) {
  std::vector<double> logprobs;
  for (std::size_t i = 1; i <= tokens; ++i) logprobs.push_back(-static_cast<double>(i) / 8);
  return logprobs;
}

TEST(Logprobs, HoldTheTokenThatEndedTheAnswer) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = tokenizer.encode("bye bye").value();
  said.push_back(*tokenizer.id_of("<|im_end|>"));
  server.engine().say(said);
  for (const std::string_view more : {"", R"(, "include_stop_str_in_output": true)"}) {
    const std::string fields = cat(R"("prompt": "x", "logprobs": 1)", more);
    const Lists whole = whole_completion(server, fields);
    EXPECT_EQ(whole.text, "bye bye");
    EXPECT_EQ(whole.tokens, pieces_of(tokenizer, said));
    EXPECT_EQ(whole.tokens.back(), "<|im_end|>");
    EXPECT_EQ(whole.logprobs, told(said.size()));
    EXPECT_EQ(whole.offsets.back(), 7);
    EXPECT_EQ(whole.finish, "stop");
    EXPECT_EQ(streamed_completion(server, fields), whole);
  }
}

TEST(Logprobs, HoldAStopTokenWhoseTextIsShownIfAskedFor) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const auto said = letters(tokenizer, "abc");
  server.engine().say(said);
  const std::string fields =
      cat(R"("prompt": "x", "logprobs": 0, "stop_token_ids": [)", said.back(), "]");
  const Lists hidden = whole_completion(server, fields);
  EXPECT_EQ(hidden.text, "ab");
  EXPECT_EQ(hidden.tokens, pieces_of(tokenizer, said));
  EXPECT_EQ(hidden.logprobs, told(said.size()));
  EXPECT_EQ(hidden.finish, "stop");
  EXPECT_EQ(streamed_completion(server, fields), hidden);
  const std::string including = cat(fields, R"(, "include_stop_str_in_output": true)");
  Lists shown = hidden;
  shown.text = "abc";
  EXPECT_EQ(whole_completion(server, including), shown);
  EXPECT_EQ(streamed_completion(server, including), shown);
}

TEST(Logprobs, HoldTheTokensOfAStopStringAndNoneAfterIt) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const auto said = letters(tokenizer, "abcd");
  server.engine().say(said);
  const auto listed = pieces_of(tokenizer, std::span(said).first(said.size() - 1));
  for (const bool include : {false, true}) {
    const std::string fields =
        cat(R"("prompt": "x", "logprobs": 0, "stop": "bc", "include_stop_str_in_output": )",
            include ? "true" : "false");
    const Lists whole = whole_completion(server, fields);
    EXPECT_EQ(whole.text, include ? "abc" : "a");
    EXPECT_EQ(whole.tokens, listed);
    EXPECT_EQ(whole.logprobs, told(listed.size()));
    EXPECT_EQ(whole.finish, "stop");
    EXPECT_EQ(streamed_completion(server, fields), whole);
  }
}

TEST(Logprobs, OfChatsHoldTheEndWholeAndStreamed) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = tokenizer.encode("fine").value();
  said.push_back(*tokenizer.id_of("<|im_end|>"));
  server.engine().say(said);
  const std::string fields =
      R"("messages": [{"role": "user", "content": "hello"}], "logprobs": true, "top_logprobs": 1)";
  std::vector<std::string> tokens;
  std::vector<double> logprobs;
  const auto add = [&](const json::Value& list) {
    for (const json::Value& entry : *list.if_array()) {
      tokens.push_back(text_at(entry, "token"));
      logprobs.push_back(at(entry, "logprob").as_number("logprob").value());
      EXPECT_EQ(at(entry, "top_logprobs").if_array()->size(), 1U);
    }
  };
  const json::Value body = server.ask(post("/v1/chat/completions", cat("{", fields, "}"))).json();
  add(at(body, "choices.0.logprobs.content"));
  EXPECT_EQ(text_at(body, "choices.0.message.content"), "fine");
  EXPECT_EQ(tokens, pieces_of(tokenizer, said));
  EXPECT_EQ(tokens.back(), "<|im_end|>");
  EXPECT_EQ(logprobs, told(said.size()));

  const auto wanted = tokens;
  tokens.clear();
  logprobs.clear();
  const auto events =
      server.ask(post("/v1/chat/completions", cat("{", fields, R"(, "stream": true})"))).events();
  for (const json::Value& event : events) {
    const json::Value& list = at(event, "choices.0.logprobs.content");
    if (list.if_array() != nullptr) add(list);
  }
  EXPECT_EQ(tokens, wanted);
  EXPECT_EQ(logprobs, told(said.size()));
  // The end comes with the reason.
  EXPECT_EQ(text_at(events.back(), "choices.0.finish_reason"), "stop");
  EXPECT_EQ(text_at(events.back(), "choices.0.logprobs.content.0.token"), "<|im_end|>");
}

TEST(Logprobs, OffsetsOfAnEchoCountTheSpecialTokensOfThePrompt) {
  TestServer server({.tokenizer = llama_tokenizer()});
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = letters(tokenizer, "xy");
  said.push_back(*tokenizer.id_of("<|eot_id|>"));
  server.engine().say(said);
  const auto prompt = tokenizer.encode("a<|start_header_id|>b").value();
  ASSERT_EQ(prompt.size(), 4U);
  const std::string fields = R"("prompt": "a<|start_header_id|>b", "echo": true, "logprobs": 1)";
  const Lists whole = whole_completion(server, fields);
  EXPECT_EQ(whole.text, "a<|start_header_id|>bxy");
  EXPECT_EQ(whole.tokens[0], "<|begin_of_text|>");
  // 17 characters, then 1, then 19, then 1.
  EXPECT_THAT(whole.offsets, ElementsAre(0, 17, 18, 37, 38, 39, 40));
  EXPECT_EQ(streamed_completion(server, fields), whole);

  const Lists without = whole_completion(server, R"("prompt": "ab", "logprobs": 1)");
  EXPECT_EQ(without.offsets.front(), 0) << "what is not echoed has no characters";
  EXPECT_EQ(without.offsets.back(), 2);
  const Lists only =
      whole_completion(server, R"("prompt": "ab", "echo": true, "logprobs": 1, "max_tokens": 0)");
  EXPECT_EQ(only.offsets[1], 17);
}

TEST(Logprobs, OffsetsOfAnEchoOfIdsPointIntoItsText) {
  TestServer server({.tokenizer = llama_tokenizer()});
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = letters(tokenizer, "xy");
  said.push_back(*tokenizer.id_of("<|eot_id|>"));
  server.engine().say(said);
  const auto prompt = tokenizer.encode("a<|start_header_id|>b").value();
  const std::string fields =
      cat("\"prompt\": [", join(prompt, ","), R"(], "echo": true, "logprobs": 1)");
  const Lists whole = whole_completion(server, fields);
  EXPECT_EQ(whole.text, "abxy");
  EXPECT_EQ(whole.tokens[0], "<|begin_of_text|>");
  EXPECT_THAT(whole.offsets, ElementsAre(0, 0, 1, 1, 2, 3, 4));
  EXPECT_EQ(streamed_completion(server, fields), whole);
  // A prompt that is cut is decoded again.
  const Lists cut = whole_completion(
      server,
      R"("prompt": "a<|start_header_id|>b", "truncate_prompt_tokens": 2, "echo": true, "logprobs": 1)");
  EXPECT_EQ(cut.text, "bxy");
  EXPECT_THAT(cut.offsets, ElementsAre(0, 0, 1, 2, 3));
}

TEST(Logprobs, StopStringsWaitForMinTokens) {
  TestServer server;
  server.engine().say(letters(server.text().tokenizer(), "abcabcabc"));
  const auto text = [&](int min_tokens) {
    const std::string fields =
        cat(R"("prompt": "x", "stop": "bc", "logprobs": 0, "min_tokens": )", min_tokens);
    const Lists whole = whole_completion(server, fields);
    EXPECT_EQ(streamed_completion(server, fields), whole);
    return whole.text;
  };
  EXPECT_EQ(text(0), "a");
  EXPECT_EQ(text(2), "a") << "its last letter is the third token";
  EXPECT_EQ(text(3), "abca") << "three tokens are just out";
  EXPECT_EQ(text(8), "abcabca");
  EXPECT_EQ(text(9), "abcabcabc");
}

TEST(Logprobs, AreNumbersThatJsonHas) {
  EXPECT_EQ(finite_logprob(-0.5F), -0.5);
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), -9999.0);
}

}  // namespace
}  // namespace motley::server
