// POST /v1/responses: items that go in, items that come out, and every event of a stream.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string question(std::string_view more = {}) {
  return cat(R"({"model": "base", "input": "hello")", more.empty() ? "" : ", ", more, "}");
}

Received respond(const TestServer& server, std::string_view body) {
  return server.ask(post("/v1/responses", body));
}

constexpr std::string_view tools = R"("tools": [{"type": "function", "name": "look", "parameters":
    {"type": "object", "properties": {"where": {"type": "string"}}}}])";

// Reasoning, text and calls, with text between the calls.
constexpr std::string_view everything =
    "<think>\nso be it\n</think>\n\nI look.\n<tool_call>\n"
    "{\"name\": \"look\", \"arguments\": {\"where\": \"up\"}}\n</tool_call>\nAnd again.\n"
    "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call><|im_end|>";

// The data of events, each of which is named as its type.
std::vector<json::Value> events_of(std::string_view text) {
  std::vector<json::Value> list;
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    const std::size_t line = text.find("\ndata: ");
    if (end == std::string_view::npos || !text.starts_with("event: ") || line > end) {
      ADD_FAILURE() << "no event: " << text.substr(0, 200);
      return list;
    }
    list.push_back(json::parse(text.substr(line + 7, end - line - 7), "event").value());
    EXPECT_EQ(text_at(list.back(), "type"), text.substr(7, line - 7));
    EXPECT_EQ(text_at(list.back(), "sequence_number"), std::to_string(list.size() - 1));
    text.remove_prefix(end + 2);
  }
  return list;
}

std::vector<std::string> types(const std::vector<json::Value>& events) {
  std::vector<std::string> list;
  for (const json::Value& event : events) {
    const std::string type = text_at(event, "type");
    if (list.empty() || list.back() != type) list.push_back(type);
  }
  return list;
}

// An answer without what differs from one to the next.
std::string essence(const json::Value& response) {
  std::string text;
  for (const json::Value& item : *at(response, "output").if_array()) {
    text += cat(text_at(item, "type"), " ", text_at(item, "status"), " ");
    text += text_at(item, "type") == "function_call"
                ? cat(text_at(item, "name"), " ", text_at(item, "arguments"), "\n")
                : cat(text_at(item, "content"), "\n");
  }
  return cat(text, text_at(response, "status"), " ", text_at(response, "incomplete_details"), " ",
             text_at(response, "usage"));
}

// What the events of each item say of it, put together.
class Gathered {
 public:
  explicit Gathered(const std::vector<json::Value>& events) {
    for (const json::Value& event : events) take(event);
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  void take(const json::Value& event) {
    const std::string type = text_at(event, "type");
    const json::Value& place = at(event, "output_index");
    if (place.if_integer() == nullptr) return;
    const auto index = static_cast<std::size_t>(*place.if_integer());
    if (type == "response.output_item.added") {
      ASSERT_EQ(index, texts_.size());
      texts_.emplace_back();
      ids_.push_back(text_at(event, "item.id"));
      EXPECT_EQ(text_at(event, "item.status"), "in_progress");
      return;
    }
    ASSERT_EQ(index + 1, texts_.size()) << type;
    if (type == "response.output_item.done") {
      EXPECT_EQ(text_at(event, "item.id"), ids_[index]);
      EXPECT_NE(text_at(event, "item.status"), "in_progress");
      return;
    }
    EXPECT_EQ(text_at(event, "item_id"), ids_[index]);
    if (type.ends_with(".delta")) texts_[index] += text_at(event, "delta");
    if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(text_at(event, "arguments"), texts_[index]);
      EXPECT_EQ(text_at(event, "name"), "look");
    } else if (type.ends_with("_text.done")) {
      EXPECT_EQ(text_at(event, "text"), texts_[index]);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(text_at(event, "part.text"), texts_[index]);
    }
  }

  std::vector<std::string> texts_;
  std::vector<std::string> ids_;
};

TEST(Responses, AnswerAText) {
  TestServer server;
  server.engine().say("well met<|im_end|>");
  const Received reply = respond(
      server, question(R"("metadata": {"k": "v"}, "instructions": "be kind", "temperature": 0.7,
                          "store": true, "reasoning": {"effort": "low"}, "user": "me")"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::Value body = reply.json();
  EXPECT_TRUE(text_at(body, "id").starts_with("resp_"));
  EXPECT_EQ(text_at(body, "object"), "response");
  EXPECT_EQ(text_at(body, "status"), "completed");
  EXPECT_EQ(text_at(body, "error"), "null");
  EXPECT_EQ(text_at(body, "incomplete_details"), "null");
  ASSERT_EQ(at(body, "output").if_array()->size(), 1U);
  EXPECT_TRUE(text_at(body, "output.0.id").starts_with("msg_"));
  EXPECT_EQ(text_at(body, "output.0.role"), "assistant");
  EXPECT_EQ(text_at(body, "output.0.status"), "completed");
  EXPECT_EQ(text_at(body, "output.0.content"),
            R"([{"type":"output_text","annotations":[],"logprobs":[],"text":"well met"}])");
  EXPECT_EQ(text_at(body, "model"), "base");
  EXPECT_EQ(text_at(body, "metadata.k"), "v");
  EXPECT_EQ(text_at(body, "instructions"), "be kind");
  EXPECT_EQ(text_at(body, "temperature"), "0.7");
  EXPECT_EQ(text_at(body, "reasoning.effort"), "low");
  EXPECT_EQ(text_at(body, "store"), "false") << "nothing is";
  EXPECT_EQ(text_at(body, "tool_choice"), "auto");
  EXPECT_EQ(text_at(body, "text.format.type"), "text");
  const auto prompt = server.engine().last_request().tokens;
  EXPECT_EQ(text_at(body, "usage.input_tokens"), std::to_string(prompt.size()));
  EXPECT_EQ(text_at(body, "usage.input_tokens_details.cached_tokens"), "0");
  EXPECT_EQ(text_at(body, "usage.output_tokens_details.reasoning_tokens"), "0");
  EXPECT_EQ(server.text().tokenizer().decode(prompt, false),
            "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(reply.headers.count("x-motley-ignored"), 0U);
}

TEST(Responses, HaveTheModelsOrder) {
  TestServer server;
  server.engine().say(everything);
  const json::Value body = respond(server, question(tools)).json();
  EXPECT_EQ(essence(body).substr(0, essence(body).find("completed null")),
            "reasoning completed [{\"type\":\"reasoning_text\",\"text\":\"so be it\"}]\n"
            "message completed [{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],"
            "\"text\":\"I look.\"}]\n"
            "function_call completed look {\"where\": \"up\"}\n"
            "message completed [{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],"
            "\"text\":\"And again.\"}]\n"
            "function_call completed look {}\n");
  EXPECT_EQ(text_at(body, "status"), "completed");
  EXPECT_TRUE(text_at(body, "output.0.id").starts_with("rs_"));
  EXPECT_EQ(text_at(body, "output.0.summary"), "[]");
  EXPECT_TRUE(text_at(body, "output.2.id").starts_with("fc_"));
  EXPECT_TRUE(text_at(body, "output.2.call_id").starts_with("call_"));
  EXPECT_NE(text_at(body, "output.2.call_id"), text_at(body, "output.4.call_id"));
  const auto thought = server.text()
                           .tokenizer()
                           .encode("<think>\nso be it\n</think>", {.add_special_tokens = false})
                           .value();
  EXPECT_EQ(text_at(body, "usage.output_tokens_details.reasoning_tokens"),
            std::to_string(thought.size()));
}

TEST(Responses, StreamEachItemAsItGrows) {
  TestServer server;
  server.engine().say(everything);
  const Received whole = respond(server, question(tools));
  const Received streamed = respond(server, question(cat(tools, R"(, "stream": true)")));
  EXPECT_THAT(streamed.headers.at("content-type"), HasSubstr("text/event-stream"));
  EXPECT_THAT(streamed.body, Not(HasSubstr("[DONE]")));
  const auto events = events_of(streamed.body);
  const std::vector<std::string> message = {
      "response.output_item.added", "response.content_part.added", "response.output_text.delta",
      "response.output_text.done",  "response.content_part.done",  "response.output_item.done"};
  const std::vector<std::string> call = {
      "response.output_item.added", "response.function_call_arguments.delta",
      "response.function_call_arguments.done", "response.output_item.done"};
  std::vector<std::string> wanted = {"response.created",
                                     "response.in_progress",
                                     "response.output_item.added",
                                     "response.content_part.added",
                                     "response.reasoning_text.delta",
                                     "response.reasoning_text.done",
                                     "response.content_part.done",
                                     "response.output_item.done"};
  for (const auto* part : {&message, &call, &message, &call})
    wanted.insert(wanted.end(), part->begin(), part->end());
  wanted.emplace_back("response.completed");
  EXPECT_EQ(types(events), wanted);
  EXPECT_THAT(Gathered(events).texts(),
              ElementsAre("so be it", "I look.", R"({"where": "up"})", "And again.", "{}"));
  EXPECT_GT(events.size(), wanted.size() + 6) << "texts come as they are written";
  EXPECT_EQ(text_at(events.front(), "response.status"), "in_progress");
  EXPECT_EQ(text_at(events.front(), "response.output"), "[]");
  EXPECT_EQ(text_at(events.front(), "response.id"), text_at(events.back(), "response.id"));
  EXPECT_EQ(essence(at(events.back(), "response")), essence(whole.json()));
}

TEST(Responses, ThatAreCutShortAreIncomplete) {
  TestServer server;
  server.engine().say(everything);
  const auto cut = [&](int tokens) {
    return respond(server, question(cat(tools, ", \"max_output_tokens\": ", tokens))).json();
  };
  const json::Value thinks = cut(4);
  EXPECT_EQ(text_at(thinks, "status"), "incomplete");
  EXPECT_EQ(text_at(thinks, "incomplete_details.reason"), "max_output_tokens");
  EXPECT_EQ(text_at(thinks, "output.0.type"), "reasoning");
  EXPECT_EQ(text_at(thinks, "output.0.status"), "incomplete");
  EXPECT_EQ(text_at(thinks, "usage.output_tokens_details.reasoning_tokens"), "4");
  EXPECT_EQ(at(thinks, "output").if_array()->size(), 1U);
  const auto streamed = events_of(
      respond(server, question(cat(tools, R"(, "max_output_tokens": 4, "stream": true)"))).body);
  EXPECT_EQ(text_at(streamed.back(), "type"), "response.incomplete");
  EXPECT_EQ(essence(at(streamed.back(), "response")), essence(thinks));
}

TEST(Responses, WithoutAWordAreAMessage) {
  TestServer server;
  for (const std::string_view said : {"<|im_end|>", "<think>\nhm\n</think>\n\n<|im_end|>"}) {
    server.engine().say(said);
    const json::Value body = respond(server, question()).json();
    const json::Value& last = at(body, "output").if_array()->back();
    EXPECT_EQ(text_at(last, "type"), "message") << said;
    EXPECT_EQ(text_at(last, "content.0.text"), "");
    EXPECT_EQ(text_at(last, "status"), "completed");
    const auto events = events_of(respond(server, question("\"stream\": true")).body);
    EXPECT_EQ(essence(at(events.back(), "response")), essence(body));
  }
}

TEST(Responses, OfAConversationGiveTheModelWhatChatsDo) {
  TestServer server;
  server.engine().say("x");
  const auto prompt = [&](std::string_view path, std::string_view body) {
    const Received reply = server.ask(post(path, body));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return server.text().tokenizer().decode(server.engine().last_request().tokens, false);
  };
  const std::string chat =
      prompt("/v1/chat/completions", R"({"tools": [{"type": "function", "function":
      {"name": "look", "parameters": {"type": "object"}}}], "messages": [
      {"role": "system", "content": "s"}, {"role": "developer", "content": "d"},
      {"role": "user", "content": [{"type": "text", "text": "u"}]},
      {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [{"id": "c",
        "type": "function", "function": {"name": "look", "arguments": "{\"n\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "t"}]})");
  EXPECT_EQ(prompt("/v1/responses", R"({"tools": [{"type": "function", "name": "look", "parameters":
      {"type": "object"}}], "instructions": "s", "input": [{"role": "developer", "content": "d"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
      {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content":
        [{"type": "output_text", "text": "a", "annotations": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look", "arguments": "{\"n\": 1}"},
      {"type": "function_call_output", "call_id": "c", "output": "t"}]})"),
            chat);
  EXPECT_THAT(chat, HasSubstr("<think>\nr\n</think>\n\na<tool_call>"));
}

// Most templates have no developer, and would leave the message out or refuse it.
TEST(Responses, AndChatsTakeDevelopersAsTheSystemWhereTheTemplateHasNone) {
  const TemporaryFolder folder;
  make_model_text(folder.path(), qwen_tokenizer());
  folder.file("chat_template.jinja",
              "{% for m in messages %}{% if m.role in ['system', 'user'] %}{{ m.role }}: "
              "{{ m.content }}\n{% endif %}{% endfor %}");
  const text::ModelText text = text::ModelText::load(folder.path()).value();
  const GenerationPlanner planner(text, {.base = "base",
                                         .vocabulary = text.tokenizer().size(),
                                         .prompts = {.max_sequence_tokens = 1000}});
  const auto prompt = [&](const Result<GenerationPlan>& plan) {
    return text.tokenizer().decode(plan->requests.front().tokens, false);
  };
  constexpr std::string_view conversation =
      R"([{"role": "developer", "content": "be short"}, {"role": "user", "content": "hi"}])";
  const auto body = [&](std::string_view key) {
    return json::parse(cat("{\"", key, "\": ", conversation, "}"), "body").value();
  };
  EXPECT_EQ(prompt(planner.responses(body("input"))), "system: be short\nuser: hi\n");
  EXPECT_EQ(prompt(planner.chat(body("messages"))), "system: be short\nuser: hi\n");
}

TEST(Responses, CallWhatTheyMust) {
  TestServer server;
  server.engine().say(R"({"where": "here"})");
  const json::Value body =
      respond(server,
              question(cat(tools, R"(, "tool_choice": {"type": "function", "name": "look"})")))
          .json();
  EXPECT_EQ(text_at(body, "output.0.type"), "function_call");
  EXPECT_EQ(text_at(body, "output.0.arguments"), R"({"where": "here"})");
  EXPECT_EQ(text_at(body, "tool_choice.name"), "look");
  EXPECT_EQ(text_at(body, "tools.0.name"), "look");
  EXPECT_TRUE(server.engine().last_request().sampling.grammar.has_value());
  server.engine().say(
      "a<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>");
  const json::Value single =
      respond(server, question(cat(tools, R"(, "parallel_tool_calls": false)"))).json();
  EXPECT_EQ(at(single, "output").if_array()->size(), 2U);
  EXPECT_EQ(text_at(single, "parallel_tool_calls"), "false");
}

TEST(Responses, HaveTheFormThatIsAskedFor) {
  TestServer server;
  server.engine().say("null");
  const Received reply = respond(
      server,
      question(
          R"("text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "null"}}})"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(text_at(reply.json(), "text.format.name"), "n");
  EXPECT_EQ(server.engine().last_request().sampling.grammar->text, R"({"type":"null"})");
}

TEST(Responses, LogprobsAreThoseOfTheMessage) {
  TestServer server;
  server.engine().say("<think>\nhm\n</think>\n\nyes, you do<|im_end|>");
  constexpr std::string_view include = R"("include": ["message.output_text.logprobs"])";
  const json::Value body = respond(server, question(cat(include, R"(, "top_logprobs": 2)"))).json();
  const json::Array& tokens = *at(body, "output.1.content.0.logprobs").if_array();
  std::string text;
  for (const json::Value& token : tokens) {
    text += text_at(token, "token");
    EXPECT_EQ(at(token, "top_logprobs").if_array()->size(), 2U);
    EXPECT_TRUE(at(token, "bytes").if_array() != nullptr);
  }
  EXPECT_EQ(text, "yes, you do<|im_end|>");
  EXPECT_EQ(text_at(body, "top_logprobs"), "2");
  const auto events =
      events_of(respond(server, question(cat(include, R"(, "stream": true)"))).body);
  std::string told;
  std::string done;
  for (const json::Value& event : events) {
    const std::string type = text_at(event, "type");
    std::string& into = type == "response.output_text.delta" ? told : done;
    if (type != "response.output_text.delta" && type != "response.output_text.done") continue;
    for (const json::Value& token : *at(event, "logprobs").if_array())
      into += text_at(token, "token");
  }
  EXPECT_EQ(told, "yes, you do");
  EXPECT_EQ(done, text);
  EXPECT_EQ(at(events.back(), "response.output.1.content.0.logprobs").if_array()->size(),
            tokens.size());
}

// Long texts are written in pieces, which may end in the middle of a character.
TEST(Responses, ThatAreLongComeWhole) {
  TestServer server({.max_sequence_tokens = 200'000});
  std::string said;
  for (int i = 0; said.size() < 200'000; ++i) said += cat(" wörd € \"\\ ", i);
  server.engine().say(said);
  const Received whole = respond(server, question());
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_TRUE(text_at(whole.json(), "output.0.content.0.text") == said);
  const auto events = events_of(respond(server, question("\"stream\": true")).body);
  EXPECT_TRUE(Gathered(events).texts() == std::vector{said});
  EXPECT_TRUE(text_at(events.back(), "response.output.0.content.0.text") == said);
}

TEST(Responses, SayInTheirOwnFieldsWhatIsWrong) {
  TestServer server;
  for (const auto& [body, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"({"instructions": "x"})", "input"},
           {question(R"("previous_response_id": "resp_1")"), "previous_response_id"},
           {question(R"("tools": [{"type": "web_search"}])"), "tools[0].type"},
           {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
            "input[0].content[0].type"},
           {question(R"("temperature": -3)"), "temperature"}}) {
    const Received reply = respond(server, body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(reply.error("param"), param) << body;
    EXPECT_EQ(reply.error("type"), "invalid_request_error");
  }
  std::string words;
  for (int i = 0; i < 1000; ++i) words += " word";
  const Received overflow = respond(server, cat(R"({"input": ")", words, "\"}"));
  EXPECT_EQ(overflow.status, 400);
  EXPECT_EQ(overflow.error("param"), "input");
  EXPECT_EQ(overflow.error("code"), "context_length_exceeded");
  EXPECT_TRUE(
      overflow.error("message").starts_with("This model's maximum context length is 1000 tokens."))
      << overflow.body;
}

TEST(Responses, NameFieldsThatAreIgnored) {
  TestServer server;
  server.engine().say("x");
  const Received reply =
      respond(server, question(R"("odd": 1, "text": {"form": 1}, "reasoning": {"depth": 1})"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("x-motley-ignored"), "text.form, reasoning.depth, odd");
  // Lists of tokens that a response has no place for.
  EXPECT_EQ(respond(server, question(R"("return_token_ids": true, "prompt_logprobs": 1)"))
                .headers.at("x-motley-ignored"),
            "return_token_ids, prompt_logprobs");
  EXPECT_EQ(text_at(respond(server, question(R"("request_id": "mine")")).json(), "id"),
            "resp_mine");
  TestServer strict({.strict_fields = true});
  EXPECT_EQ(respond(strict, question(R"("odd": 1)")).error("param"), "odd");
}

TEST(Responses, ThatFailBeforeTheyBeginAreErrors) {
  TestServer server;
  server.engine().refuse({ErrorCode::busy, "the queue is full", "", "try again"});
  EXPECT_EQ(respond(server, question("\"stream\": true")).status, 429);
  EXPECT_EQ(respond(server, question(R"("adapters": [{"name": "no"}])")).status, 429);
}

TEST(Responses, ThatFailOnTheirWaySayHowFarTheyCame) {
  TestServer server;
  server.engine().say("some words");
  server.engine().hold_after(1);
  Client client(server.port());
  client.send(post("/v1/responses", question("\"stream\": true")));
  std::string head = client.receive_some();
  while (head.find("output_text.delta") == std::string::npos) head += client.receive_some();
  server.engine().fail_running({ErrorCode::internal, "the device failed"});
  while (head.find("\r\n0\r\n") == std::string::npos) head += client.receive_some();
  const std::size_t error = head.find("event: error\n");
  ASSERT_NE(error, std::string::npos);
  EXPECT_THAT(head.substr(error),
              HasSubstr(R"("code":"server_error","message":"the device failed")"));
  const std::size_t failed = head.find("event: response.failed\n");
  ASSERT_GT(failed, error);
  const std::string_view data = std::string_view(head).substr(head.find("data: ", failed) + 6);
  const json::Value event = json::parse(data.substr(0, data.find("\n\n")), "event").value();
  EXPECT_EQ(text_at(event, "response.status"), "failed");
  EXPECT_EQ(text_at(event, "response.error.message"), "the device failed");
  EXPECT_EQ(text_at(event, "response.output.0.status"), "incomplete");
  EXPECT_EQ(text_at(event, "response.output.0.content.0.text"), "s");
  EXPECT_EQ(text_at(event, "response.usage"), "null");
}

TEST(Responses, EndWithTheirClients) {
  TestServer server;
  server.engine().say("a long story about a king and his horse");
  server.engine().hold_after(2);
  Client streams(server.port());
  streams.send(post("/v1/responses", question("\"stream\": true")));
  EXPECT_THAT(streams.receive_some(), HasSubstr("200"));
  Client waits(server.port());
  waits.send(post("/v1/responses", question()));
  server.engine().wait_for_submitted(2);
  streams.close();
  waits.close();
  server.engine().wait_for_ended(2);
  EXPECT_EQ(server.engine().cancelled(), 2U);
}

}  // namespace
}  // namespace motley::server
