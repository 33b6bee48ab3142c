// What answers say of tokens: ids, special ones, prompts' log-probabilities; whole and streamed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view completions = "/v1/completions";
constexpr std::string_view chats = "/v1/chat/completions";
const std::string prompt = R"("prompt": "how are you")";
const std::string question = R"("messages": [{"role": "user", "content": "hello"}])";

json::Value answer(const TestServer& server, std::string_view path, std::string_view fields) {
  const Received reply = server.ask(post(path, cat("{", fields, "}")));
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json();
}

std::vector<json::Value> streamed(const TestServer& server, std::string_view path,
                                  std::string_view fields) {
  const Received reply = server.ask(post(path, cat("{", fields, R"(, "stream": true})")));
  EXPECT_TRUE(reply.done()) << reply.body;
  return reply.events();
}

std::string list(std::span<const std::int32_t> ids) { return cat("[", join(ids, ","), "]"); }

std::string list(const std::vector<std::int32_t>& ids) { return list(std::span(ids)); }

// Those of all events, in order.
std::vector<std::int32_t> joined_ids(const std::vector<json::Value>& events) {
  std::vector<std::int32_t> ids;
  for (const json::Value& event : events) {
    const json::Array* const part = at(event, "choices.0.token_ids").if_array();
    for (std::size_t i = 0; part != nullptr && i < part->size(); ++i)
      ids.push_back(static_cast<std::int32_t>(*(*part)[i].if_integer()));
  }
  return ids;
}

std::string joined_text(const std::vector<json::Value>& events, std::string_view field) {
  std::string text;
  for (const json::Value& event : events) {
    const std::string* const part = at(event, cat("choices.0.", field)).if_string();
    if (part != nullptr && *part != "(absent)") text += *part;
  }
  return text;
}

TEST(TokenIds, OfCompletionsStandInEveryChoice) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = tokenizer.encode("fine, and you").value();
  said.push_back(*tokenizer.id_of("<|im_end|>"));
  server.engine().say(said);
  const auto asked = tokenizer.encode("how are you").value();
  const std::string fields = cat(prompt, R"(, "return_token_ids": true)");
  const json::Value body = answer(server, completions, cat(fields, R"(, "n": 2)"));
  for (const char* const choice : {"choices.0", "choices.1"}) {
    EXPECT_EQ(text_at(body, cat(choice, ".prompt_token_ids")), list(asked));
    EXPECT_EQ(text_at(body, cat(choice, ".token_ids")), list(said));
    EXPECT_EQ(text_at(body, cat(choice, ".text")), "fine, and you");
    EXPECT_EQ(text_at(body, cat(choice, ".logprobs")), "null");
  }
  const auto events = streamed(server, completions, fields);
  EXPECT_EQ(text_at(events.front(), "choices.0.prompt_token_ids"), list(asked));
  EXPECT_EQ(text_at(events[1], "choices.0.prompt_token_ids"), "(absent)");
  EXPECT_EQ(joined_ids(events), said);
  const json::Value plain = answer(server, completions, prompt);
  EXPECT_EQ(text_at(plain, "choices.0.token_ids"), "(absent)");
  EXPECT_EQ(text_at(plain, "choices.0.prompt_token_ids"), "(absent)");
}

TEST(TokenIds, OfChatsStandInChoicesAndThePromptsBesideThem) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = tokenizer.encode("<think>\nwell\n</think>\n\nfine").value();
  said.push_back(*tokenizer.id_of("<|im_end|>"));
  server.engine().say(said);
  const std::string fields = cat(question, R"(, "return_token_ids": true)");
  const json::Value body = answer(server, chats, cat(fields, R"(, "n": 2)"));
  const auto asked = server.engine().last_request().tokens;
  EXPECT_EQ(text_at(body, "prompt_token_ids"), list(asked));
  EXPECT_EQ(text_at(body, "choices.0.token_ids"), list(said));
  EXPECT_EQ(text_at(body, "choices.1.token_ids"), list(said));
  EXPECT_EQ(text_at(body, "choices.1.message.content"), "fine");
  const auto events = streamed(server, chats, fields);
  EXPECT_EQ(text_at(events.front(), "prompt_token_ids"), list(asked));
  EXPECT_EQ(text_at(events[1], "prompt_token_ids"), "(absent)");
  EXPECT_EQ(joined_ids(events), said);
  EXPECT_EQ(joined_text(events, "delta.content"), "fine");
}

TEST(TokenIds, ComeOnceThoughAnEchoTakesSeveralEvents) {
  TestServer server({.max_sequence_tokens = 10'000});
  const std::vector<std::int32_t> said = {300, 301};
  server.engine().say(said);
  const std::vector<std::int32_t> asked(2500, 400);
  const auto events = streamed(
      server, completions,
      cat(R"("echo": true, "logprobs": 0, "return_token_ids": true, "prompt": )", list(asked)));
  EXPECT_GE(events.size(), 3U);
  for (const json::Value& event : events)
    EXPECT_EQ(text_at(event, "choices.0.prompt_token_ids"),
              &event == &events.front() ? list(asked) : "(absent)");
  EXPECT_EQ(joined_ids(events), said);
}

TEST(TokenIds, NameTokensInLogprobsWhereTheyAreAskedFor) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  server.engine().say("x");
  const std::int32_t x = tokenizer.encode("x").value()[0];
  const std::string name = cat("token_id:", x);
  const std::string as_ids = R"(, "return_tokens_as_token_ids": true)";
  const json::Value text =
      answer(server, completions, cat(R"("prompt": "x", "echo": true, "logprobs": 1)", as_ids));
  EXPECT_EQ(text_at(text, "choices.0.text"), "xx");
  EXPECT_EQ(text_at(text, "choices.0.logprobs.tokens"), cat("[\"", name, "\",\"", name, "\"]"));
  EXPECT_EQ(text_at(text, "choices.0.logprobs.top_logprobs.1"), cat("{\"", name, "\":-0.125}"));
  EXPECT_EQ(text_at(text, "choices.0.logprobs.text_offset"), "[0,1]");
  const auto event =
      streamed(server, completions, cat(R"("prompt": "x", "logprobs": 0)", as_ids)).front();
  EXPECT_EQ(text_at(event, "choices.0.logprobs.tokens.0"), name);
  const json::Value chat =
      answer(server, chats, cat(question, R"(, "logprobs": true, "top_logprobs": 1)", as_ids));
  EXPECT_EQ(text_at(chat, "choices.0.logprobs.content.0.token"), name);
  EXPECT_EQ(text_at(chat, "choices.0.logprobs.content.0.top_logprobs.0.token"), name);
  EXPECT_EQ(text_at(chat, "choices.0.logprobs.content.0.bytes"), "[120]");
}

TEST(NamedTokens, StandInPlaceOfTheLikeliest) {
  TestServer server;
  const std::int32_t x = server.text().tokenizer().encode("x").value()[0];
  server.engine().say("xx");
  const std::string named =
      cat(R"("logprob_token_ids": [7, )", x, R"(, 9], "return_tokens_as_token_ids": true)");
  const std::string content = "choices.0.logprobs.content.1.top_logprobs.";
  const std::string scores =
      cat(R"({"token_id:7":-1.25,"token_id:)", x, R"(":-2.25,"token_id:9":-3.25})");
  const json::Value text =
      answer(server, completions, cat(R"("prompt": "x", "logprobs": 0, )", named));
  EXPECT_EQ(text_at(text, "choices.0.logprobs.top_logprobs.1"), scores);
  // The tokens of an echoed prompt have the likeliest.
  const json::Value echoed =
      answer(server, completions, cat(R"("prompt": "xx", "echo": true, "logprobs": 1, )", named));
  EXPECT_EQ(text_at(echoed, "choices.0.logprobs.top_logprobs.3"), scores);
  EXPECT_EQ(server.engine().last_request().prompt_top, 1);
  const json::Value chat = answer(server, chats, cat(question, R"(, "logprobs": true, )", named));
  EXPECT_EQ(text_at(chat, cat(content, "0.token")), cat("token_id:", x));
  EXPECT_EQ(text_at(chat, cat(content, "0.logprob")), "-0.25") << "as it was drawn";
  EXPECT_EQ(text_at(chat, cat(content, "1.token")), "token_id:7");
  EXPECT_EQ(text_at(chat, cat(content, "2.token")), "token_id:9");
  EXPECT_FALSE(server.engine().last_request().sampling.ranks);
  for (const char* const wrong :
       {R"("logprob_token_ids": [7])", R"("logprobs": 1, "logprob_token_ids": [-1])",
        R"("logprobs": 1, "logprob_token_ids": 7)"}) {
    const Received refused = server.ask(post(completions, cat(R"({"prompt": "x", )", wrong, "}")));
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(refused.error("param"), testing::StartsWith("logprob_token_ids")) << wrong;
  }
  const Received silent =
      server.ask(post(chats, cat("{", question, R"(, "logprob_token_ids": [7]})")));
  EXPECT_EQ(silent.error("param"), "logprob_token_ids");
}

TEST(SpecialTokens, AreShownWhereTheyAreNotSkipped) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  auto said = tokenizer.encode("a<|im_start|><|im_start|>b").value();
  said.push_back(*tokenizer.id_of("<|im_end|>"));
  server.engine().say(said);
  EXPECT_EQ(text_at(answer(server, completions, prompt), "choices.0.text"), "ab");
  const std::string shown = R"(, "skip_special_tokens": false)";
  const std::string both = R"(, "skip_special_tokens": false, "include_stop_str_in_output": true,
    "spaces_between_special_tokens": false)";
  EXPECT_EQ(text_at(answer(server, completions, cat(prompt, shown)), "choices.0.text"),
            "a<|im_start|><|im_start|>b");
  EXPECT_EQ(text_at(answer(server, completions, cat(prompt, both)), "choices.0.text"),
            "a<|im_start|><|im_start|>b<|im_end|>");
  EXPECT_EQ(joined_text(streamed(server, completions, cat(prompt, both)), "text"),
            "a<|im_start|><|im_start|>b<|im_end|>");
  EXPECT_EQ(text_at(answer(server, chats, cat(question, shown)), "choices.0.message.content"),
            "a<|im_start|><|im_start|>b");
}

TEST(PromptLogprobs, OfCompletionsListTheTokenAndTheLikeliestById) {
  TestServer server;
  server.engine().say("x");
  const std::vector<std::int32_t> ids = {400, 500, 600, 700, 800};
  const std::string fields = cat(R"("prompt": )", list(ids));
  const json::Value body =
      answer(server, completions, cat(fields, R"(, "n": 2, "prompt_logprobs": 2)"));
  for (const char* const choice : {"choices.0.", "choices.1."}) {
    const json::Value& scores = at(body, cat(choice, "prompt_logprobs"));
    ASSERT_EQ(scores.if_array()->size(), ids.size());
    EXPECT_TRUE((*scores.if_array())[0].is_null());
    // The second of two, and none of them.
    EXPECT_EQ(text_at(scores, "1.500.rank"), "2");
    EXPECT_EQ(text_at(scores, "1.500.logprob"), "-1.0");
    EXPECT_EQ(text_at(scores, "1.499.rank"), "1");
    EXPECT_EQ(text_at(scores, "1.499.logprob"), "-0.875");
    EXPECT_EQ(text_at(scores, "1.499.decoded_token"),
              server.text().tokenizer().decode(std::vector<std::int32_t>{499}, false));
    EXPECT_EQ(at(scores, "1").if_object()->size(), 2U);
    EXPECT_EQ(at(scores, "2").if_object()->size(), 3U);
    EXPECT_EQ(text_at(scores, "2.600.rank"), "null");
    EXPECT_EQ(text_at(scores, "2.600.logprob"), "-2.0");
    EXPECT_EQ(text_at(scores, "4.800.rank"), "1");
  }
  const json::Value own = answer(server, completions, cat(fields, R"(, "prompt_logprobs": 0)"));
  EXPECT_EQ(at(own, "choices.0.prompt_logprobs.3").if_object()->size(), 1U);
  const json::Value only =
      answer(server, completions, cat(fields, R"(, "prompt_logprobs": 1, "max_tokens": 0)"));
  EXPECT_EQ(text_at(only, "choices.0.text"), "");
  EXPECT_EQ(at(only, "choices.0.prompt_logprobs").if_array()->size(), ids.size());
}

TEST(PromptLogprobs, AndAnEchosKeepTheirOwnWidths) {
  TestServer server;
  server.engine().say("x");
  const json::Value body =
      answer(server, completions,
             R"("prompt": [400, 500, 600], "echo": true, "logprobs": 1, "prompt_logprobs": 3)");
  EXPECT_EQ(server.engine().last_request().sampling.top_logprobs, 1);
  EXPECT_EQ(server.engine().last_request().prompt_top, 3);
  EXPECT_EQ(at(body, "choices.0.prompt_logprobs.2").if_object()->size(), 3U);
  // The likeliest one, and the token itself.
  EXPECT_EQ(at(body, "choices.0.logprobs.top_logprobs.2").if_object()->size(), 2U);
  EXPECT_EQ(text_at(body, "choices.0.logprobs.token_logprobs.2"), "-2.0");
  EXPECT_EQ(at(body, "choices.0.logprobs.top_logprobs.3").if_object()->size(), 1U);
  const json::Value chat =
      answer(server, chats,
             cat(question, R"(, "logprobs": true, "top_logprobs": 1, "prompt_logprobs": 2)"));
  EXPECT_EQ(at(chat, "choices.0.logprobs.content.0.top_logprobs").if_array()->size(), 1U);
}

TEST(PromptLogprobs, OfChatsStandBesideTheChoices) {
  TestServer server;
  server.engine().say("x");
  const json::Value body =
      answer(server, chats, cat(question, R"(, "n": 2, "prompt_logprobs": 1)"));
  const auto asked = server.engine().last_request().tokens;
  const json::Value& scores = at(body, "prompt_logprobs");
  ASSERT_EQ(scores.if_array()->size(), asked.size());
  EXPECT_TRUE((*scores.if_array())[0].is_null());
  EXPECT_EQ(text_at(scores, cat("4.", asked[4], ".rank")), "1");
  EXPECT_EQ(text_at(body, "usage.prompt_tokens"), std::to_string(asked.size()));
}

TEST(PromptLogprobs, AreNotToBeHadInAStreamNorBeyondTheirNumber) {
  TestServer server;
  server.engine().say("x");
  for (const std::string_view path : {completions, chats}) {
    const std::string& asked = path == chats ? question : prompt;
    for (const char* const more : {R"(, "stream": true, "prompt_logprobs": 1)",
                                   R"(, "prompt_logprobs": 21)", R"(, "prompt_logprobs": -1)"}) {
      const Received refused = server.ask(post(path, cat("{", asked, more, "}")));
      EXPECT_EQ(refused.status, 400) << more;
      EXPECT_EQ(refused.error("param"), "prompt_logprobs") << more;
    }
    EXPECT_GT(streamed(server, path, cat(asked, R"(, "prompt_logprobs": 0)")).size(), 0U);
    EXPECT_FALSE(server.engine().last_request().prompt_logprobs);
  }
}

TEST(ChatEcho, BeginsWithTheMessageThatTheAnswerGoesOnWith) {
  TestServer server;
  server.engine().say(" there");
  const std::string echo = R"(, "echo": true)";
  const std::string begun = R"("messages": [{"role": "user", "content": "greet"},
    {"role": "assistant", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": " you"}]}])";
  const json::Value body = answer(server, chats, cat(begun, echo, R"(, "n": 2)"));
  EXPECT_EQ(text_at(body, "choices.1.message.content"), "hello you there");
  EXPECT_EQ(joined_text(streamed(server, chats, cat(begun, echo)), "delta.content"),
            "hello you there");
  EXPECT_EQ(text_at(answer(server, chats, begun), "choices.0.message.content"), " there");
  EXPECT_EQ(text_at(answer(server, chats, cat(question, echo)), "choices.0.message.content"),
            " there");
  const std::string null = R"("messages": [{"role": "assistant", "content": null}])";
  EXPECT_EQ(text_at(answer(server, chats, cat(null, echo)), "choices.0.message.content"), " there");
}

TEST(LongLists, AreWrittenOnceThoughTheTextBeforeThemFillsAPiece) {
  TestServer server({.max_sequence_tokens = 100'000});
  server.engine().say(std::vector<std::int32_t>{300, 301});
  const std::string text(90'000, 'x');
  const Received reply = server.ask(
      post(completions, cat(R"({"prompt": ")", text, R"(", "echo": true, "logprobs": 0})")));
  ASSERT_EQ(reply.status, 200) << reply.body.substr(0, 300);
  const json::Value body = reply.json();
  const std::size_t tokens = at(body, "choices.0.logprobs.tokens").if_array()->size();
  EXPECT_EQ(std::to_string(tokens - 2), text_at(body, "usage.prompt_tokens"));
}

TEST(LongLists, OfIdsAndScoresComeInPieces) {
  TestServer server({.max_sequence_tokens = 100'000});
  const std::vector<std::int32_t> said(9'000, 300);
  server.engine().say(said);
  const std::vector<std::int32_t> asked(20'000, 400);
  const std::string fields =
      R"(, "n": 2, "max_tokens": 9000, "return_token_ids": true, "prompt_logprobs": 1)";
  const json::Value text = answer(server, completions, cat(R"("prompt": )", list(asked), fields));
  const json::Value chat = answer(server, chats,
                                  cat(R"("messages": [{"role": "user", "content": ")",
                                      std::string(80'000, 'x'), "\"}]", fields));
  for (const char* const choice : {"choices.0", "choices.1"}) {
    EXPECT_EQ(text_at(text, cat(choice, ".prompt_token_ids")), list(asked));
    EXPECT_EQ(text_at(text, cat(choice, ".token_ids")), list(said));
    EXPECT_EQ(at(text, cat(choice, ".prompt_logprobs")).if_array()->size(), asked.size());
    EXPECT_EQ(text_at(chat, cat(choice, ".token_ids")), list(said));
  }
  const auto conversation = server.engine().last_request().tokens;
  EXPECT_GT(conversation.size(), 9'000U);
  EXPECT_EQ(text_at(chat, "prompt_token_ids"), list(conversation));
  EXPECT_EQ(at(chat, "prompt_logprobs").if_array()->size(), conversation.size());
}

TEST(TokenLists, ThatAreTooMuchAreRefusedWithTheFieldsThatAskForThem) {
  TestServer server({.max_sequence_tokens = 1'000'000});
  server.engine().say("x");
  const std::vector<std::int32_t> ids(30'000, 400);
  const Received sent = server.ask(
      post(completions, cat(R"({"n": 128, "prompt_logprobs": 20, "prompt": )", list(ids), "}")));
  EXPECT_EQ(sent.status, 413);
  EXPECT_THAT(sent.error("message"), HasSubstr("one may send 512.0 MiB"));
  EXPECT_THAT(sent.error("message"), HasSubstr("prompt_logprobs 20"));
  const Received kept = server.ask(post(
      completions, R"({"n": 128, "return_token_ids": true, "max_tokens": 100000, "prompt": "x"})"));
  EXPECT_EQ(kept.status, 413);
  EXPECT_THAT(kept.error("message"), HasSubstr("return_token_ids"));
}

}  // namespace
}  // namespace motley::server
