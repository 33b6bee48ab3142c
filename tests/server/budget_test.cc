// What requests may hold and send: large answers, refusals, and by address.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

std::string ids(std::size_t count) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += cat(i == 0 ? "" : ",", 300 + i % 50);
  return list + "]";
}

TestServerOptions long_sequences() { return {.max_sequence_tokens = 10'000}; }

TEST(LargeAnswers, ComeInPiecesAndAreWhatSmallOnesAre) {
  TestServer server(long_sequences());
  const auto ask_for = [&](int choices) {
    return server.ask(
        post("/v1/completions", cat("{\"prompt\": ", ids(1500), ", \"n\": ", choices,
                                    R"(, "echo": true, "logprobs": 5, "max_tokens": 0})")));
  };
  const Received small = ask_for(1);
  EXPECT_TRUE(small.headers.contains("content-length"));
  const Received large = ask_for(64);
  ASSERT_EQ(large.status, 200) << large.body;
  EXPECT_GT(large.body.size(), 1U << 20);
  EXPECT_FALSE(large.headers.contains("content-length"));
  EXPECT_EQ(large.headers.at("content-type"), "application/json");
  const json::Value one = small.json();
  const json::Value all = large.json();
  EXPECT_EQ(at(one, "choices.0.logprobs.top_logprobs").if_array()->size(), 1500U);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(text_at(all, cat("choices.", i, ".index")), std::to_string(i));
    for (const char* const field : {"text", "logprobs", "finish_reason"})
      EXPECT_EQ(text_at(all, cat("choices.", i, ".", field)),
                text_at(one, cat("choices.0.", field)))
          << i;
  }
  EXPECT_EQ(text_at(all, "usage.prompt_tokens"), "1500");
}

TEST(LargeAnswers, OfChatsComeInPiecesToo) {
  TestServer server(long_sequences());
  server.engine().say(std::vector<std::int32_t>(900, 300));
  const Received reply = server.ask(post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "x"}], "n": 4, "logprobs": true, "top_logprobs": 5})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_FALSE(reply.headers.contains("content-length"));
  const json::Value body = reply.json();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(at(body, cat("choices.", i, ".logprobs.content")).if_array()->size(), 900U);
}

TEST(LargeAnswers, AStreamEchoesALongPromptInSeveralEvents) {
  TestServer server(long_sequences());
  server.engine().say(std::vector<std::int32_t>{301, 302});
  const std::string fields =
      cat("\"prompt\": ", ids(2500), R"(, "n": 2, "echo": true, "logprobs": 2)");
  const json::Value whole = server.ask(post("/v1/completions", cat("{", fields, "}"))).json();
  const Received stream =
      server.ask(post("/v1/completions", cat("{", fields, R"(, "stream": true})")));
  EXPECT_TRUE(stream.done());
  for (const char* const list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    json::Array joined;
    std::string text;
    std::size_t events = 0;
    for (const json::Value& event : stream.events()) {
      if (text_at(event, "choices.0.index") != "1") continue;
      ++events;
      text += text_at(event, "choices.0.text");
      const json::Array& part = *at(event, cat("choices.0.logprobs.", list)).if_array();
      EXPECT_LE(part.size(), 1025U);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_GE(events, 3U);
    EXPECT_EQ(text, text_at(whole, "choices.1.text"));
    EXPECT_EQ(json::write(joined), text_at(whole, cat("choices.1.logprobs.", list)));
  }
}

TEST(RequestBudget, WhatNoRequestMayTakeIsRefusedWithTheFigures) {
  TestServer server({.request_memory_bytes = 4 << 20});
  const Received refused = server.ask(
      post("/v1/completions", R"({"prompt": "x", "n": 128, "logprobs": 20, "max_tokens": 900})"));
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused.error("code"), "too_long");
  EXPECT_THAT(refused.error("message"), HasSubstr("and one may take 2.0 MiB"));
  EXPECT_THAT(refused.error("message"), HasSubstr("n 128, logprobs 20, max_tokens 900"));
  EXPECT_THAT(server.ask(get("/metrics")).body,
              HasSubstr("motley_requests_refused_total{reason=\"too_large\"} 1\n"));
}

TEST(RequestBudget, NothingIsMadeOfWhatNoRequestMayTake) {
  const TestServer server;
  const RequestLimits limits{.memory_bytes = 8 << 20};
  const GenerationPlanner planner(server.text(), {.base = "base",
                                                  .vocabulary = server.text().tokenizer().size(),
                                                  .prompts = {.max_sequence_tokens = 1000},
                                                  .limits = limits});
  const auto plan_for = [&](int prompts) {
    std::string list = "[[5]";
    for (int i = 1; i < prompts; ++i) list += ",[5]";
    const std::string body =
        cat("{\"prompt\": ", list, "], \"max_tokens\": 1, \"guided_regex\": \"",
            std::string(100 << 10, 'a'), "\"}");
    return planner.completion(json::parse(body, "body").value()).value();
  };
  const GenerationPlan fits = plan_for(4);
  EXPECT_TRUE(check_charge(fits.charge, limits).ok());
  EXPECT_EQ(fits.requests.size(), 4U);
  const GenerationPlan refused = plan_for(400);
  EXPECT_FALSE(check_charge(refused.charge, limits).ok());
  EXPECT_TRUE(refused.requests.empty());
}

TEST(RequestBudget, OneAddressTakesNoMoreThanHalfAndGivesBack) {
  TestServer server({.request_memory_bytes = 700 << 10});
  server.engine().say("one two three");
  server.engine().hold_after(1);
  const std::string request =
      post("/v1/completions", R"({"prompt": "x", "n": 32, "max_tokens": 300})");
  Client first(server.port());
  ASSERT_TRUE(first.send(request));
  server.engine().wait_for_submitted(1);
  const Received refused = server.ask(request);
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_THAT(refused.error("message"), HasSubstr("others from 127.0.0.1 have taken"));
  EXPECT_THAT(refused.error("message"), HasSubstr("of the 350.0 KiB for one address"));
  Client neighbour(server.port(), "127.0.0.2");
  ASSERT_TRUE(neighbour.send(request));
  server.engine().wait_for_submitted(2);
  server.engine().release();
  EXPECT_EQ(neighbour.receive().status, 200);
  EXPECT_EQ(first.receive().status, 200);
  ASSERT_TRUE(server.comes_to_show("motley_request_memory_bytes 0"));
  EXPECT_EQ(server.ask(request).status, 200);
  EXPECT_TRUE(server.comes_to_show("motley_request_memory_bytes 0"));
  EXPECT_TRUE(server.comes_to_show("motley_requests_refused_total{reason=\"memory\"} 1"));
}

TEST(RequestBudget, AnAnswerThatGrowsBeyondItIsCut) {
  TestServer server({.request_memory_bytes = 4 << 20, .max_sequence_tokens = 100'000});
  server.engine().say(std::vector<std::int32_t>(20'000, 300));
  const Received cut = server.ask(post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "x"}], "logprobs": true, "top_logprobs": 20})"));
  EXPECT_EQ(cut.status, 413) << cut.body.substr(0, 200);
  EXPECT_THAT(cut.error("message"), HasSubstr("a request may take 2.0 MiB"));
}

TEST(Clients, AreDistinguishedByAddress) {
  TestServer server;
  server.engine().say("x");
  for (const std::string address : {"127.0.0.1", "127.0.0.2"}) {
    Client client(server.port(), address);
    ASSERT_TRUE(client.send(post("/v1/completions", R"({"prompt": "x"})")));
    EXPECT_EQ(client.receive().status, 200);
    EXPECT_EQ(server.engine().last_request().client, address);
  }
}

TEST(Prompts, OfTooManyBytesAreRefusedBeforeTheyAreTokenised) {
  TestServer server;
  const std::string text(1 << 20, 'x');
  const Received refused = server.ask(post("/v1/completions", cat("{\"prompt\": \"", text, "\"}")));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("code"), "context_length_exceeded");
  EXPECT_EQ(refused.error("param"), "prompt");
  EXPECT_THAT(refused.error("message"), HasSubstr("it has 1048576 bytes, which are more"));
}

TEST(Prompts, OfFarTooManyTokensAreNotCountedToTheirEnd) {
  TestServer server;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += " a";
  const Received refused =
      server.ask(post("/v1/completions", cat("{\"prompt\": [\"b\", \"", text, "\"]}")));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("code"), "context_length_exceeded");
  EXPECT_EQ(refused.error("param"), "prompt[1]");
  EXPECT_THAT(refused.error("message"), HasSubstr("it has more than 2000 tokens"));
}

}  // namespace
}  // namespace motley::server
