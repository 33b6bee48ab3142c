// Anthropic's form of chats: POST /v1/messages and its count of tokens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string body_with(std::string_view more = {}) {
  return cat(
      R"({"model": "base", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}])",
      more.empty() ? "" : ", ", more, "}");
}

std::string question(std::string_view more = {}) { return post("/v1/messages", body_with(more)); }

const std::string tools =
    R"("tools": [{"name": "look", "input_schema":
      {"type": "object", "properties": {"where": {"type": "string"}}}}])";

// The model's end of an answer.
std::string_view end = "<|im_end|>";

struct Event {
  std::string name;
  json::Value data;
};

std::vector<Event> events_of(const Received& received) {
  std::vector<Event> events;
  std::string_view rest = received.body;
  while (!rest.empty()) {
    const std::size_t line = rest.find('\n');
    const std::size_t behind = rest.find("\n\n");
    EXPECT_TRUE(rest.starts_with("event: ") && rest.substr(line + 1).starts_with("data: "));
    events.push_back(
        {.name = std::string(rest.substr(7, line - 7)),
         .data = json::parse(rest.substr(line + 7, behind - line - 7), "event").value()});
    EXPECT_EQ(text_at(events.back().data, "type"), events.back().name);
    rest.remove_prefix(behind + 2);
  }
  return events;
}

std::vector<std::string> names_of(const std::vector<Event>& events) {
  std::vector<std::string> names;
  for (const Event& event : events)
    if (names.empty() || names.back() != event.name) names.push_back(event.name);
  return names;
}

// The blocks that a stream's events make, as "TYPE TEXT" with a call's name before its input.
std::vector<std::string> blocks_of(const std::vector<Event>& events) {
  std::vector<std::string> blocks;
  for (const Event& event : events) {
    if (event.name == "content_block_start") {
      EXPECT_EQ(text_at(event.data, "index"), std::to_string(blocks.size()));
      const json::Value& block = at(event.data, "content_block");
      const bool call = text_at(block, "type") == "tool_use";
      EXPECT_EQ(text_at(block, "input"), call ? "{}" : "(absent)");
      blocks.push_back(cat(text_at(block, "type"), " ", call ? text_at(block, "name") : ""));
    } else if (event.name == "content_block_delta") {
      const json::Value& delta = at(event.data, "delta");
      for (const char* const field : {"text", "thinking", "partial_json"})
        if (delta.if_object()->contains(field)) blocks.back() += text_at(delta, field);
    }
  }
  return blocks;
}

std::vector<std::string> blocks_of(const json::Value& message) {
  std::vector<std::string> blocks;
  for (const json::Value& block : *at(message, "content").if_array()) {
    const std::string type = text_at(block, "type");
    blocks.push_back(cat(type, " ",
                         type == "tool_use"
                             ? cat(text_at(block, "name"), text_at(block, "input"))
                             : text_at(block, type == "text" ? "text" : "thinking")));
  }
  return blocks;
}

TEST(Messages, AnAnswerIsAMessage) {
  TestServer server;
  const auto said =
      server.text().tokenizer().encode(cat("well", end), {.add_special_tokens = false}).value();
  server.engine().say(said);
  const Received reply = server.ask(question());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::Value message = reply.json();
  EXPECT_TRUE(text_at(message, "id").starts_with("msg_"));
  EXPECT_EQ(text_at(message, "type"), "message");
  EXPECT_EQ(text_at(message, "role"), "assistant");
  EXPECT_EQ(text_at(message, "model"), "base");
  EXPECT_EQ(text_at(message, "content"), R"([{"type":"text","text":"well"}])");
  EXPECT_EQ(text_at(message, "stop_reason"), "end_turn");
  EXPECT_EQ(text_at(message, "stop_sequence"), "null");
  const engine::Request asked = server.engine().last_request();
  EXPECT_EQ(text_at(message, "usage.input_tokens"), std::to_string(asked.tokens.size()));
  EXPECT_EQ(text_at(message, "usage.output_tokens"), std::to_string(said.size()));
  EXPECT_EQ(text_at(message, "usage.cache_read_input_tokens"), "0");
  EXPECT_EQ(text_at(message, "usage.cache_creation_input_tokens"), "0");
  EXPECT_EQ(asked.max_tokens, 100);
  EXPECT_EQ(reply.headers.at("request-id"), reply.headers.at("x-request-id"));
}

TEST(Messages, TheTemplateSeesTheConversation) {
  TestServer server;
  server.ask(post("/v1/messages", cat(R"({"max_tokens": 9, "system": "be brief", )", tools, R"(,
    "messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"where": "up"}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "sky"},
        {"type": "text", "text": "and "}, {"type": "text", "text": "then?"}]}]})")));
  const auto tokens = server.engine().last_request().tokens;
  EXPECT_THAT(server.text().tokenizer().decode(tokens, false), HasSubstr(R"(<|im_start|>system
be brief<|im_end|>
<|im_start|>user
x<|im_end|>
<|im_start|>assistant
<think>
hm
</think>

I look<tool_call>
{"name": "look", "arguments": {"where": "up"}}
</tool_call><|im_end|>
<|im_start|>tool
sky<|im_end|>
<|im_start|>user
and then?<|im_end|>
<|im_start|>assistant
)"));
}

TEST(Messages, TheAnswerGoesOnWithItsBeginning) {
  TestServer server;
  server.engine().say(cat(" is blue", end));
  const std::string body = R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": [{"type": "text", "text": "The sky"}]}]})";
  const Received reply = server.ask(post("/v1/messages", body));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(blocks_of(reply.json()), ElementsAre("text  is blue"));
  const auto tokens = server.engine().last_request().tokens;
  EXPECT_TRUE(
      server.text().tokenizer().decode(tokens, false).ends_with("<|im_start|>assistant\nThe sky"));
  EXPECT_EQ(server.ask(post("/v1/messages/count_tokens", body)).body,
            cat("{\"input_tokens\":", tokens.size(), "}"));
}

TEST(Messages, BlocksComeInTheOrderInWhichTheyWereWritten) {
  TestServer server;
  server.engine().say(
      cat("<think>so</think>I look.<tool_call>\n{\"name\": \"look\", \"arguments\": "
          "{\"where\": \"there\"}}\n</tool_call>and\n<tool_call>\n{\"name\": "
          "\"look\", \"arguments\": {}}\n</tool_call>",
          end));
  const auto blocks =
      ElementsAre("thinking so", "text I look.", testing::StartsWith("tool_use look{\"where\":"),
                  "text and", "tool_use look{}");
  const json::Value whole = server.ask(question(tools)).json();
  EXPECT_THAT(blocks_of(whole), blocks);
  EXPECT_EQ(text_at(whole, "content.0.signature"), "");
  EXPECT_TRUE(text_at(whole, "content.2.id").starts_with("toolu_"));
  EXPECT_NE(text_at(whole, "content.2.id"), text_at(whole, "content.4.id"));
  EXPECT_EQ(text_at(whole, "stop_reason"), "tool_use");

  const auto events = events_of(server.ask(question(cat(tools, R"(, "stream": true)"))));
  EXPECT_THAT(blocks_of(events), blocks);
  const json::Value& last = events[events.size() - 2].data;
  EXPECT_EQ(text_at(last, "delta.stop_reason"), "tool_use");
  EXPECT_EQ(text_at(last, "usage.output_tokens"), text_at(whole, "usage.output_tokens"));
  EXPECT_EQ(text_at(last, "usage.input_tokens"), text_at(whole, "usage.input_tokens"));
}

TEST(Messages, AStreamHasTheEventsOfAMessage) {
  TestServer server;
  server.engine().say(cat("<think>so it is</think>one two three", end));
  const Received reply = server.ask(question(R"("stream": true)"));
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = events_of(reply);
  EXPECT_THAT(names_of(events),
              ElementsAre("message_start", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  const json::Value& start = events.front().data;
  EXPECT_EQ(text_at(start, "message.content"), "[]");
  EXPECT_EQ(text_at(start, "message.stop_reason"), "null");
  EXPECT_EQ(text_at(start, "message.usage.input_tokens"),
            std::to_string(server.engine().last_request().tokens.size()));
  EXPECT_THAT(blocks_of(events), ElementsAre("thinking so it is", "text one two three"));
  // Before the block of thinking ends it is signed, with nothing.
  const auto stop = std::ranges::find(events, "content_block_stop", &Event::name);
  EXPECT_EQ(json::write(at((stop - 1)->data, "delta")),
            R"({"type":"signature_delta","signature":""})");
}

TEST(Messages, WhatEndsAnAnswerIsItsStopReason) {
  TestServer server;
  const auto reasons = [&](std::string_view said, std::string_view more) {
    server.engine().say(said);
    const json::Value whole = server.ask(question(more)).json();
    const auto events =
        events_of(server.ask(question(cat(more, more.empty() ? "" : ", ", R"("stream": true)"))));
    const json::Value& delta = at(events[events.size() - 2].data, "delta");
    EXPECT_EQ(text_at(delta, "stop_reason"), text_at(whole, "stop_reason"));
    EXPECT_EQ(text_at(delta, "stop_sequence"), text_at(whole, "stop_sequence"));
    return cat(text_at(whole, "stop_reason"), " ", text_at(whole, "stop_sequence"));
  };
  EXPECT_EQ(reasons(cat("one", end), ""), "end_turn null");
  EXPECT_EQ(reasons("one two three", ""), "max_tokens null");
  EXPECT_EQ(reasons("one two three", R"("stop_sequences": ["zero", " two"])"),
            "stop_sequence  two");
  EXPECT_EQ(reasons("one two three", R"("stop": " three", "stop_sequences": ["zero"])"),
            "stop_sequence  three");
  // A stop string of our own is no sequence of the client's.
  EXPECT_EQ(reasons("<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>more",
                    cat(tools, R"(, "stop_sequences": ["zero"], "tool_choice":
                        {"type": "auto", "disable_parallel_tool_use": true})")),
            "tool_use null");
}

TEST(Messages, ACallThatMustBeMadeIsMade) {
  TestServer server;
  server.engine().say(R"({"where": "here"})");
  const json::Value message =
      server.ask(question(cat(tools, R"(, "tool_choice": {"type": "tool", "name": "look"})")))
          .json();
  EXPECT_THAT(blocks_of(message), ElementsAre(R"(tool_use look{"where":"here"})"));
  EXPECT_EQ(server.engine().last_request().sampling.grammar->text,
            R"({"type":"object","properties":{"where":{"type":"string"}}})");
}

TEST(Messages, InputIsAnObjectWhateverTheModelWrites) {
  TestServer server;
  const auto input = [&](std::string_view arguments) {
    server.engine().say(cat("<tool_call>\n{\"name\": \"look\", \"arguments\": ", arguments));
    const json::Value whole = server.ask(question(tools)).json();
    const auto events = events_of(server.ask(question(cat(tools, R"(, "stream": true)"))));
    EXPECT_TRUE(blocks_of(events)[0].starts_with("tool_use look")) << arguments;
    return cat(text_at(whole, "content.0.input"), " ", blocks_of(events)[0].substr(13));
  };
  EXPECT_EQ(input(R"({"where": "up", "n": 1)"), R"({"where":"up","n":1} {"where": "up", "n": 1)");
  EXPECT_EQ(input(R"({"where": "u)"), R"({} {"where": "u)");
  EXPECT_EQ(input(R"({"where": up}})"), R"({} {"where": )");
}

TEST(Messages, ThinkingThatIsOmittedIsAnEmptyBlock) {
  TestServer server;
  server.engine().say(cat("<think>so</think>yes", end));
  const std::string fields = R"("thinking": {"type": "enabled", "display": "omitted"})";
  const auto blocks = ElementsAre("thinking ", "text yes");
  EXPECT_THAT(blocks_of(server.ask(question(fields)).json()), blocks);
  EXPECT_THAT(blocks_of(events_of(server.ask(question(cat(fields, R"(, "stream": true)"))))),
              blocks);
}

TEST(Messages, OfNoTokensFillTheCacheAlone) {
  TestServer server;
  server.engine().say("never");
  const Received reply = server.ask(
      post("/v1/messages", R"({"max_tokens": 0, "messages": [{"role": "user", "content": "x"}]})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(text_at(reply.json(), "content"), "[]");
  EXPECT_EQ(text_at(reply.json(), "stop_reason"), "max_tokens");
}

TEST(Messages, LeaveListsOfTokensToOtherRoutes) {
  TestServer server;
  server.engine().say("x");
  for (const char* const stream : {"false", "true"}) {
    const Received answer = server.ask(post(
        "/v1/messages",
        cat(R"({"model": "base", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
                     "prompt_logprobs": 3, "return_token_ids": true,
                     "return_tokens_as_token_ids": true, "stream": )",
            stream, "}")));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("x-motley-ignored"),
              "prompt_logprobs, return_token_ids, return_tokens_as_token_ids");
    EXPECT_FALSE(server.engine().last_request().prompt_logprobs);
  }
}

TEST(Messages, AreCountedForModelsThatAreThere) {
  TestServer server;
  const Received count = server.ask(
      post("/v1/messages/count_tokens",
           R"({"model": "base:nobody", "messages": [{"role": "user", "content": "x"}]})"));
  EXPECT_EQ(count.status, 404);
  EXPECT_THAT(count.body, HasSubstr("not_found_error"));
}

TEST(Messages, AreCountedAsTheyAreRendered) {
  TestServer server;
  for (const std::string& more :
       {std::string(R"("system": "be brief")"), tools,
        cat(tools, R"(, "tool_choice": {"type": "any"})"), std::string(R"("odd": 1)")}) {
    server.ask(question(more));
    const auto tokens = server.engine().last_request().tokens.size();
    const Received count = server.ask(
        post("/v1/messages/count_tokens",
             cat(R"({"messages": [{"role": "user", "content": "hello"}], )", more, "}")));
    EXPECT_EQ(count.body, cat("{\"input_tokens\":", tokens, "}"));
    EXPECT_EQ(count.headers.contains("x-motley-ignored"), more.find("odd") != std::string::npos);
  }
  // More than the model can follow, so that a client knows by how much.
  std::string words;
  for (int i = 0; i < 400; ++i) words += " word";
  const std::string body =
      cat(R"({"max_tokens": 1, "messages": [{"role": "user", "content": ")", words, "\"}]}");
  EXPECT_EQ(server.ask(post("/v1/messages", body)).status, 400);
  const Received count = server.ask(post("/v1/messages/count_tokens", body));
  EXPECT_EQ(count.status, 200) << count.body;
}

TEST(Messages, ErrorsAreOfTheirShape) {
  HttpLimits limits;
  limits.body_bytes = 5000;
  TestServer server({.keys = {"key"}, .limits = limits});
  const std::string key = "x-api-key: key\r\nX-Request-Id: mine-1\r\n";
  const auto expect = [&](const Received& received, int status, std::string_view type) {
    EXPECT_EQ(received.status, status) << received.body;
    EXPECT_EQ(text_at(received.json(), "type"), "error");
    EXPECT_EQ(received.error("type"), type);
    EXPECT_EQ(text_at(received.json(), "request_id"), received.headers.at("request-id"));
  };
  expect(server.ask(question()), 401, "authentication_error");
  expect(server.ask(post("/v1/messages", "{", key)), 400, "invalid_request_error");
  const Received image = server.ask(post(
      "/v1/messages",
      R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]})", key));
  expect(image, 400, "invalid_request_error");
  EXPECT_THAT(image.error("message"), HasSubstr("messages[0].content[0].type"));
  EXPECT_EQ(text_at(image.json(), "request_id"), "mine-1");
  expect(server.ask(post("/v1/messages/count_tokens", "{}", key)), 400, "invalid_request_error");
  expect(server.ask(post("/v1/messages/batches", "{}", key)), 404, "not_found_error");
  expect(server.ask(get("/v1/messages", key)), 405, "invalid_request_error");
  expect(server.ask(post("/v1/messages", std::string(6000, ' '), key)), 413, "request_too_large");
  server.engine().refuse({ErrorCode::busy, "the queue is full"});
  const Received busy = server.ask(post("/v1/messages", body_with(), key));
  expect(busy, 429, "rate_limit_error");
  EXPECT_EQ(busy.headers.at("retry-after"), "1");
  server.engine().refuse({ErrorCode::not_found, "no adapter 'x'"});
  expect(server.ask(post("/v1/messages", body_with(), key)), 404, "not_found_error");
  server.service().shut_down();
  expect(server.ask(post("/v1/messages", body_with(), key)), 503, "overloaded_error");
}

TEST(Messages, BodiesThatTheTransportRefusesGetThatShapeToo) {
  HttpLimits limits;
  limits.all_bodies_bytes = 100;
  TestServer server({.limits = limits});
  const Received reply = server.ask(question(cat("\"x\": \"", std::string(500, 'x'), "\"")));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.error("type"), "rate_limit_error");
  EXPECT_EQ(server.ask(post("/v1/completions", std::string(500, ' '))).error("code"), "busy");
}

TEST(Messages, AStreamThatFailsEndsWithAnErrorEvent) {
  TestServer server;
  server.engine().say("one two three");
  server.engine().hold_after(1);
  Client client(server.port());
  client.send(question(R"("stream": true)"));
  std::string begun;
  while (begun.find("content_block_delta") == std::string::npos) begun += client.receive_some();
  server.engine().fail_running({ErrorCode::internal, "lost"});
  std::string rest;
  while (rest.find("0\r\n\r\n") == std::string::npos && !client.at_end())
    rest += client.receive_some();
  EXPECT_THAT(rest, HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                              "\"api_error\",\"message\":\"lost\"}}\n\n"));
}

TEST(Messages, AKeyMayComeEitherWay) {
  TestServer server({.keys = {"key"}});
  server.engine().say("x");
  const auto status = [&](std::string_view header) {
    return server.ask(post("/v1/completions", R"({"prompt": "x"})", header)).status;
  };
  EXPECT_EQ(status("x-api-key: key\r\n"), 200);
  EXPECT_EQ(status("X-Api-Key: other\r\n"), 401);
  EXPECT_EQ(status("X-Api-Key: Bearer key\r\n"), 401);
  EXPECT_EQ(status("X-Api-Key: other\r\nAuthorization: Bearer key\r\n"), 200);
}

TEST(Messages, OfThousandsOfBlocksAreRead) {
  TestServer server({.max_sequence_tokens = 200'000});
  server.engine().say(cat("x", end));
  std::string blocks;
  for (int i = 0; i < 20'000; ++i) {
    blocks += cat(i == 0 ? "" : ",", R"({"type": "tool_result", "tool_use_id": "t)", i,
                  R"(", "content": [{"type": "text", "text": "x", "odd": 1}]})");
  }
  const Received reply = server.ask(
      post("/v1/messages",
           cat(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [)", blocks, "]}]}")));
  EXPECT_EQ(reply.status, 200) << reply.body.substr(0, 300);
}

}  // namespace
}  // namespace motley::server
