// What well-behaved clients get.

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

std::string repeated(std::string_view piece, std::int64_t times) {
  std::string text;
  for (std::int64_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string question(std::string_view more = {}) {
  return cat(R"({"model": "base", "messages": [{"role": "user", "content": "hello"}])",
             more.empty() ? "" : ", ", more, "}");
}

constexpr std::string_view tools =
    R"("tools": [{"type": "function", "function": {"name": "look", "parameters":
      {"type": "object", "properties": {"where": {"type": "string"}}}}}])";

TEST(Completions, AnswersAPrompt) {
  TestServer server;
  server.engine().say(" and they lived");
  const Received reply = server.ask(
      post("/v1/completions", R"({"model": "base", "prompt": "once", "max_tokens": 50})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::Value body = reply.json();
  EXPECT_EQ(text_at(body, "object"), "text_completion");
  EXPECT_EQ(text_at(body, "model"), "base");
  EXPECT_EQ(text_at(body, "choices.0.text"), " and they lived");
  EXPECT_EQ(text_at(body, "choices.0.finish_reason"), "length");
  EXPECT_EQ(text_at(body, "choices.0.logprobs"), "null");
  const auto prompt = server.text().tokenizer().encode("once").value();
  EXPECT_EQ(text_at(body, "usage.prompt_tokens"), std::to_string(prompt.size()));
  EXPECT_EQ(server.engine().last_request().tokens, prompt);
}

TEST(Completions, TakesPromptsOfEveryKind) {
  TestServer server;
  server.engine().say("x");
  const auto texts_of = [&](std::string_view prompt) {
    const Received reply =
        server.ask(post("/v1/completions", cat(R"({"echo": true, "prompt": )", prompt, "}")));
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<std::string> texts;
    const json::Value body = reply.json();
    for (const json::Value& choice : *at(body, "choices").if_array())
      texts.push_back(text_at(choice, "text"));
    return texts;
  };
  const std::string ids = json::write([&] {
    json::Array list;
    for (const auto id : server.text().tokenizer().encode("hi").value()) list.emplace_back(id);
    return json::Value(list);
  }());
  EXPECT_THAT(texts_of(R"("hi")"), ElementsAre("hix"));
  EXPECT_THAT(texts_of(R"(["hi", "ho"])"), ElementsAre("hix", "hox"));
  EXPECT_THAT(texts_of(ids), ElementsAre("hix"));
  EXPECT_THAT(texts_of(cat("[", ids, ",", ids, "]")), ElementsAre("hix", "hix"));
}

TEST(Completions, EchoesLogprobsOfPromptAndAnswer) {
  TestServer server;
  server.engine().say(" you");
  const Received reply = server.ask(post(
      "/v1/completions", R"({"prompt": "how are", "echo": true, "logprobs": 1, "max_tokens": 3})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::Value body = reply.json();
  const auto prompt = server.text().tokenizer().encode("how are").value();
  const auto answer =
      server.text().tokenizer().encode(" you", {.add_special_tokens = false}).value();
  const json::Array& logprobs = *at(body, "choices.0.logprobs.token_logprobs").if_array();
  ASSERT_EQ(logprobs.size(), prompt.size() + answer.size());
  EXPECT_TRUE(logprobs[0].is_null());
  for (std::size_t i = 1; i < prompt.size(); ++i)
    EXPECT_EQ(logprobs[i].as_number("logprob").value(), -static_cast<double>(i));
  EXPECT_EQ(logprobs[prompt.size()].as_number("logprob").value(), -0.125);
  const json::Array& offsets = *at(body, "choices.0.logprobs.text_offset").if_array();
  EXPECT_EQ(*offsets[prompt.size()].if_integer(), 7);
  std::string text;
  for (const json::Value& token : *at(body, "choices.0.logprobs.tokens").if_array())
    text += *token.if_string();
  EXPECT_EQ(text, "how are you");
}

TEST(Completions, APromptThatIsOnlyEchoedMayFillAllThereIs) {
  TestServer server;
  const auto status_of = [&](std::int64_t tokens, int max_tokens) {
    const json::Array ids(static_cast<std::size_t>(tokens), json::Value(5));
    return server
        .ask(post("/v1/completions", cat(R"({"echo": true, "max_tokens": )", max_tokens,
                                         R"(, "prompt": )", json::write(json::Value(ids)), "}")))
        .status;
  };
  const std::int64_t most = server.engine().max_sequence_tokens();
  EXPECT_EQ(status_of(most, 0), 200);
  EXPECT_EQ(status_of(most, 1), 400);
  EXPECT_EQ(status_of(most + 1, 0), 400);
}

TEST(Errors, APromptBeyondTheContextHasOpenAisCode) {
  TestServer server;
  const std::int64_t most = server.engine().max_sequence_tokens();
  const json::Array ids(static_cast<std::size_t>(most + 2), json::Value(5));
  const std::string prompt = json::write(json::Value(ids));
  const auto message = [&](std::int64_t tokens, std::string_view rest) {
    return cat("This model's maximum context length is ", most,
               " tokens. The prompt is too long: it has ", tokens, rest);
  };
  const auto expect = [&](const Received& reply, std::string_view param) {
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.error("type"), "invalid_request_error");
    EXPECT_EQ(reply.error("param"), param);
    EXPECT_EQ(reply.error("code"), "context_length_exceeded");
  };
  const Received one = server.ask(post("/v1/completions", cat("{\"prompt\": ", prompt, "}")));
  expect(one, "prompt");
  EXPECT_EQ(
      one.error("message"),
      message(most + 2, ", and the answer needs at least one (prompt): send a shorter prompt"));
  const Received echoed = server.ask(
      post("/v1/completions", cat(R"({"echo": true, "max_tokens": 0, "prompt": )", prompt, "}")));
  EXPECT_EQ(echoed.error("message"), message(most + 2, " (prompt): send a shorter prompt"));
  expect(server.ask(post("/v1/completions", cat("{\"prompt\": [[5], ", prompt, "]}"))),
         "prompt[1]");
  const Received chat =
      server.ask(post("/v1/chat/completions", cat(R"({"messages": [{"role": "user", "content": ")",
                                                  repeated(" word", most), "\"}]}")));
  expect(chat, "messages");
  EXPECT_TRUE(chat.error("message").starts_with(
      cat("This model's maximum context length is ", most, " tokens. ")));
}

TEST(Errors, ATargetThatIsTooLongIsNoField) {
  TestServer server;
  const Received reply = server.ask(get(cat("/", std::string(100'000, 'x'))));
  EXPECT_EQ(reply.status, 414);
  EXPECT_EQ(reply.error("param"), "null");
  EXPECT_EQ(reply.error("type"), "invalid_request_error");
  EXPECT_EQ(server.ask(get("/metrics")).body.find("status=\"413\""), std::string::npos);
}

TEST(Completions, MoreCandidatesThanTokensAreAllOfThem) {
  TestServer server;
  server.engine().say("x");
  EXPECT_EQ(server.ask(post("/v1/completions", R"({"prompt": "x", "top_k": 2000000})")).status,
            200);
  EXPECT_EQ(server.engine().last_request().sampling.top_k, server.text().tokenizer().size());
}

TEST(Completions, StopStringEndsTheTextAndTheWork) {
  TestServer server;
  server.engine().say("one two three four five six");
  const Received reply = server.ask(
      post("/v1/completions", R"({"prompt": "count", "stop": ["ee f"], "max_tokens": 900})"));
  EXPECT_EQ(text_at(reply.json(), "choices.0.text"), "one two thr");
  EXPECT_EQ(text_at(reply.json(), "choices.0.finish_reason"), "stop");
}

TEST(Completions, EndTokenIsNoPartOfTheText) {
  TestServer server;
  auto said = server.text().tokenizer().encode("bye").value();
  said.push_back(*server.text().tokenizer().id_of("<|im_end|>"));
  server.engine().say(said);
  const Received reply = server.ask(post("/v1/completions", R"({"prompt": "x", "logprobs": 0})"));
  EXPECT_EQ(text_at(reply.json(), "choices.0.text"), "bye");
  EXPECT_EQ(text_at(reply.json(), "choices.0.finish_reason"), "stop");
  EXPECT_EQ(text_at(reply.json(), "usage.completion_tokens"), std::to_string(said.size()));
}

TEST(Completions, StreamSaysWhatTheWholeAnswerSays) {
  TestServer server;
  server.engine().say("grüße, wörld: 你好");
  const std::string_view fields =
      R"("prompt": ["a", "b"], "n": 2, "echo": true, "logprobs": 2, "max_tokens": 99)";
  const json::Value whole = server.ask(post("/v1/completions", cat("{", fields, "}"))).json();
  const Received streamed = server.ask(
      post("/v1/completions",
           cat("{", fields, R"(, "stream": true, "stream_options": {"include_usage": true}})")));
  EXPECT_EQ(streamed.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_TRUE(streamed.done());
  std::vector<std::string> texts(4);
  std::vector<std::size_t> tokens(4);
  const auto events = streamed.events();
  for (const json::Value& event : events) {
    for (const json::Value& choice : *at(event, "choices").if_array()) {
      const auto index = static_cast<std::size_t>(*at(choice, "index").if_integer());
      texts[index] += text_at(choice, "text");
      tokens[index] += at(choice, "logprobs.tokens").if_array()->size();
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], text_at(whole, cat("choices.", i, ".text")));
    EXPECT_EQ(tokens[i], at(whole, cat("choices.", i, ".logprobs.tokens")).if_array()->size());
  }
  EXPECT_TRUE(at(events.back(), "choices").if_array()->empty());
  EXPECT_EQ(json::write(at(events.back(), "usage")), json::write(at(whole, "usage")));
}

TEST(Chat, SplitsReasoningFromContent) {
  TestServer server;
  server.engine().say("<think>\nhm, well\n</think>\n\nYes.\n");
  const Received reply = server.ask(post("/v1/chat/completions", question()));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.reasoning_content"), "hm, well");
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.content"), "Yes.\n");
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.role"), "assistant");
}

TEST(Chat, ParsesToolCallsWholeAndStreamed) {
  TestServer server;
  server.engine().say(
      "I look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"where\": \"there\"}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>");
  const json::Value whole = server.ask(post("/v1/chat/completions", question(tools))).json();
  EXPECT_EQ(text_at(whole, "choices.0.message.content"), "I look.");
  EXPECT_EQ(text_at(whole, "choices.0.message.tool_calls.0.function.name"), "look");
  EXPECT_EQ(text_at(whole, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"where": "there"})");
  EXPECT_EQ(text_at(whole, "choices.0.message.tool_calls.1.function.arguments"), "{}");
  EXPECT_EQ(text_at(whole, "choices.0.finish_reason"), "length");

  const Received streamed =
      server.ask(post("/v1/chat/completions", question(cat(tools, R"(, "stream": true)"))));
  std::string content;
  std::vector<std::string> calls;
  std::size_t pieces = 0;
  const auto events = streamed.events();
  for (const json::Value& event : events) {
    const json::Value& delta = at(event, "choices.0.delta");
    if (const json::Value* const text = delta.if_object()->find("content"))
      content += *text->if_string();
    if (const json::Value* const list = delta.if_object()->find("tool_calls"))
      for (const json::Value& call : *list->if_array()) {
        if (call.if_object()->contains("id")) {
          EXPECT_EQ(text_at(call, "index"), std::to_string(calls.size()));
          EXPECT_EQ(text_at(call, "type"), "function");
          calls.push_back(text_at(call, "function.name"));
        }
        ASSERT_EQ(text_at(call, "index"), std::to_string(calls.size() - 1));
        calls.back() += text_at(call, "function.arguments");
        ++pieces;
      }
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_THAT(calls, ElementsAre(R"(look{"where": "there"})", "look{}"));
  EXPECT_GT(pieces, 4) << "arguments come as they are written";
}

TEST(Chat, OneCallIsAllWhereTheyMustNotBeParallel) {
  TestServer server;
  server.engine().say(
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>");
  const json::Value body = server
                               .ask(post("/v1/chat/completions",
                                         question(cat(tools, R"(, "parallel_tool_calls": false)"))))
                               .json();
  EXPECT_EQ(at(body, "choices.0.message.tool_calls").if_array()->size(), 1);
  EXPECT_EQ(text_at(body, "choices.0.finish_reason"), "tool_calls");
}

TEST(Chat, WithoutToolsTheirTagsAreText) {
  TestServer server;
  server.engine().say("<tool_call>{\"name\": \"look\"}</tool_call>");
  const json::Value body = server.ask(post("/v1/chat/completions", question())).json();
  EXPECT_EQ(text_at(body, "choices.0.message.content"),
            "<tool_call>{\"name\": \"look\"}</tool_call>");
}

TEST(Chat, CallThatMustBeMadeIsAGrammarOfItsArguments) {
  TestServer server;
  server.engine().say(R"({"where": "here"})");
  const json::Value body =
      server
          .ask(post("/v1/chat/completions", question(cat(tools, R"(, "tool_choice":
                      {"type": "function", "function": {"name": "look"}})"))))
          .json();
  EXPECT_EQ(text_at(body, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"where": "here"})");
  EXPECT_EQ(server.engine().last_request().sampling.grammar->text,
            R"({"type":"object","properties":{"where":{"type":"string"}}})");
  // Behind a head in the model's own form.
  const auto tokens = server.engine().last_request().tokens;
  EXPECT_TRUE(server.text()
                  .tokenizer()
                  .decode(tokens, false)
                  .ends_with("assistant\n<tool_call>\n{\"name\": \"look\", \"arguments\": "));
}

TEST(Chat, IntegersBeyond64BitsGoInAndComeBackWhole) {
  constexpr std::string_view big = "12345678901234567890";
  TestServer server;
  server.engine().say(
      cat("<tool_call>\n{\"name\": \"look\", \"arguments\": {\"id\": ", big, "}}\n</tool_call>"));
  const json::Value body =
      server
          .ask(post("/v1/chat/completions",
                    cat(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant",
                        "content": null, "tool_calls": [{"id": "c", "type": "function", "function":
                        {"name": "look", "arguments": "{\"id\": )",
                        big, R"(}"}}]}, {"role": "tool", "content": "none"}], "tools": [{"type":
                        "function", "function": {"name": "look", "parameters": {"properties":
                        {"id": {"type": "integer", "maximum": )",
                        big, "}}}}}]}")))
          .json();
  EXPECT_EQ(text_at(body, "choices.0.message.tool_calls.0.function.arguments"),
            cat("{\"id\": ", big, "}"));
  const std::string prompt =
      server.text().tokenizer().decode(server.engine().last_request().tokens, false);
  EXPECT_THAT(prompt, HasSubstr(cat("\"maximum\": ", big, "}")));
  EXPECT_THAT(prompt, HasSubstr(cat("\"arguments\": {\"id\": ", big, "}")));
}

TEST(Chat, CallsThatMustBeMadeHaveTheModelsForm) {
  TestServer server;
  server.engine().say(
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"where\": \"up\"}}\n</tool_call>");
  const auto ask = [&](std::string_view more) {
    const std::string fields = cat(tools, R"(, "tool_choice": "required")", more);
    return server.ask(post("/v1/chat/completions", question(fields))).json();
  };
  const json::Value body = ask("");
  EXPECT_EQ(text_at(body, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"where": "up"})");
  const auto grammar = *server.engine().last_request().sampling.grammar;
  EXPECT_EQ(grammar.kind, grammar::Spec::Kind::structural_tag);
  EXPECT_THAT(grammar.text, HasSubstr(R"("value":"<tool_call>\n{\"name\": \"look")"));
  constexpr std::string_view more_calls = R"("type":"star")";
  EXPECT_THAT(grammar.text, HasSubstr(std::string(more_calls)));
  ask(R"(, "parallel_tool_calls": false)");
  EXPECT_THAT(server.engine().last_request().sampling.grammar->text,
              Not(HasSubstr(std::string(more_calls))));
}

TEST(Chat, LogprobsNameTokensAndTheirBytes) {
  TestServer server;
  server.engine().say("ok");
  const json::Value body =
      server.ask(post("/v1/chat/completions", question(R"("logprobs": true, "top_logprobs": 2)")))
          .json();
  EXPECT_EQ(text_at(body, "choices.0.logprobs.content.0.logprob"), "-0.125");
  EXPECT_EQ(at(body, "choices.0.logprobs.content.0.top_logprobs").if_array()->size(), 2);
  EXPECT_EQ(text_at(body, "choices.0.logprobs.content.0.bytes.0"),
            std::to_string(int{text_at(body, "choices.0.logprobs.content.0.token")[0]}));
}

TEST(Chat, FieldsReachTheEngine) {
  TestServer server;
  server.engine().say("x");
  server.ask(post("/v1/chat/completions",
                  question(R"("temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
    "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5, "seed": -1,
    "logit_bias": {"5": -100, "3": 2}, "max_completion_tokens": 9, "n": 3, "priority": 4,
    "min_tokens": 2, "ignore_eos": true, "stop_token_ids": [8],
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}})")));
  const engine::Request request = server.engine().last_request();
  const engine::SamplingParams& params = request.sampling;
  EXPECT_EQ(params.temperature, 0.5F);
  EXPECT_EQ(params.top_p, 0.25F);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.min_p, 0.125F);
  EXPECT_EQ(params.presence_penalty, 1);
  EXPECT_EQ(params.frequency_penalty, -1);
  EXPECT_EQ(params.repetition_penalty, 1.5F);
  EXPECT_EQ(params.seed, ~std::uint64_t{0});
  EXPECT_THAT(params.logit_bias, ElementsAre(engine::LogitBias{3, 2}, engine::LogitBias{5, -100}));
  EXPECT_EQ(params.min_tokens, 2);
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_EQ(params.grammar->kind, grammar::Spec::Kind::json_schema);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.choices, 3);
  EXPECT_EQ(request.priority, -4) << "lower ones are earlier for clients";
  EXPECT_THAT(request.stop_ids, ElementsAre(8));
}

TEST(Adapters, ComeByNameByPrefixAndMixed) {
  TestServer server({.adapter_loading = true});
  server.engine().say("x");
  for (const char* const name : {"poet", "a/b"})
    ASSERT_EQ(server
                  .ask(post("/v1/load_lora_adapter",
                            cat(R"({"lora_path": "/tmp", "lora_name": ")", name, "\"}")))
                  .status,
              200);
  const auto adapters_of = [&](std::string_view fields) {
    const Received reply =
        server.ask(post("/v1/completions", cat(R"({"prompt": "x", )", fields, "}")));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return server.engine().last_request().adapters;
  };
  using lora::ScaledAdapter;
  EXPECT_THAT(adapters_of(R"("model": "base")"), ElementsAre());
  EXPECT_THAT(adapters_of(R"("model": "poet")"), ElementsAre(ScaledAdapter{"poet", 1}));
  EXPECT_THAT(adapters_of(R"("model": "base:a/b")"), ElementsAre(ScaledAdapter{"a/b", 1}));
  EXPECT_THAT(adapters_of(R"("adapters": [{"name": "poet", "scale": 0.5}, {"name": "a/b"}])"),
              ElementsAre(ScaledAdapter{"poet", 0.5F}, ScaledAdapter{"a/b", 1}));

  const Received unknown =
      server.ask(post("/v1/completions", R"({"prompt": "x", "model": "nobody"})"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("param"), "model");
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_THAT(unknown.error("message"), HasSubstr("'nobody'"));

  const json::Value models = server.ask(get("/v1/models")).json();
  EXPECT_EQ(text_at(models, "data.0.id"), "base");
  EXPECT_EQ(text_at(models, "data.1.id"), "a/b");
  EXPECT_EQ(text_at(models, "data.1.parent"), "base");
  EXPECT_EQ(server.ask(get("/v1/models/a%2Fb")).status, 200);
  const Received prefixed = server.ask(get("/v1/models/base:a/b"));
  EXPECT_EQ(prefixed.status, 200);
  EXPECT_EQ(text_at(prefixed.json(), "id"), "a/b");
  EXPECT_EQ(server.ask(get("/v1/models/nobody")).status, 404);
  EXPECT_EQ(server.ask(get("/v1/models/base:nobody")).status, 404);
}

// Whole answers have the version of their adapter's content, and so have the events that end a
// choice, or an answer.
TEST(Adapters, AnswersSayTheirVersion) {
  TestServer server({.adapter_loading = true});
  server.engine().say("x");
  ASSERT_EQ(
      server.ask(post("/v1/load_lora_adapter", R"({"lora_path": "/tmp", "lora_name": "poet"})"))
          .status,
      200);
  const std::string version = R"("adapter_version":"poet@1")";
  const std::string messages = R"("messages": [{"role": "user", "content": "x"}], "max_tokens": 4)";
  for (const auto& [path, fields] : std::initializer_list<std::pair<std::string, std::string>>{
           {"/v1/completions", R"("prompt": "x")"},
           {"/v1/chat/completions", messages},
           {"/v1/messages", messages},
           {"/v1/responses", R"("input": "x")"}}) {
    SCOPED_TRACE(path);
    const auto ask = [&](std::string_view more) {
      return server.ask(post(path, cat("{", fields, ", ", more, "}"))).body;
    };
    EXPECT_THAT(ask(R"("model": "poet")"), testing::EndsWith(cat(version, "}")));
    const std::string stream = ask(R"("model": "poet", "stream": true)");
    // The last event that is an object; message_stop and response's last one say no more.
    EXPECT_THAT(stream.substr(0, stream.find(version)), HasSubstr("data: "));
    EXPECT_THAT(stream.substr(stream.find(version)), Not(HasSubstr("\"text\":\"x\"")));
    for (const char* const more : {R"("model": "base")", R"("model": "base", "stream": true)"})
      EXPECT_THAT(ask(more), Not(HasSubstr("adapter_version")));
  }
  const std::string usage =
      server
          .ask(post("/v1/chat/completions", cat("{", messages, R"(, "model": "poet", "stream": true,
                                              "stream_options": {"include_usage": true}})")))
          .body;
  EXPECT_THAT(usage, testing::EndsWith(cat(version, "}\n\ndata: [DONE]\n\n")));
}

TEST(Adapters, AnswersSayWhereTheirVersionChanges) {
  TestServer server({.adapter_loading = true});
  server.engine().say("xyxyx");
  server.engine().switch_after(2);
  ASSERT_EQ(
      server.ask(post("/v1/load_lora_adapter", R"({"lora_path": "/tmp", "lora_name": "poet"})"))
          .status,
      200);
  const std::string spans = R"("weight_versions":[{"version":"poet@1","start":0,"end":2},)"
                            R"({"version":"poet@2","start":2,"end":4}])";
  const std::string policies =
      R"("policy_token_spans":[{"start_token":0,"end_token":2,"policy_version":1,)"
      R"("lora_slot":"poet","update_seq":1},{"start_token":2,"end_token":4,"policy_version":2,)"
      R"("lora_slot":"poet","update_seq":2}])";
  const std::string more = R"("model": "poet", "max_tokens": 4, "return_token_ids": true)";
  const auto ask = [&](std::string_view path, std::string_view fields) {
    return server.ask(post(path, cat("{", more, ", ", fields, "}"))).body;
  };
  const std::string chat = R"("messages": [{"role": "user", "content": "x"}])";
  const std::string generate = R"("token_ids": [1], "sampling_params": {"max_tokens": 4})";
  for (const std::string& body :
       {ask("/v1/completions", R"("prompt": "x")"),
        ask("/v1/completions", R"("prompt": "x", "stream": true)"),
        ask("/v1/chat/completions", chat),
        ask("/v1/chat/completions", cat(chat, R"(, "stream": true)")),
        ask("/inference/v1/generate", generate),
        ask("/inference/v1/generate", cat(generate, R"(, "stream": true)"))}) {
    EXPECT_THAT(body, HasSubstr(spans));
    EXPECT_THAT(body, HasSubstr(R"("adapter_version":"poet@1,poet@2")"));
  }
  for (const char* const stream : {"", R"(, "stream": true)"}) {
    EXPECT_THAT(ask("/v1/chat/completions", cat(chat, stream)), HasSubstr(policies));
    EXPECT_THAT(ask("/v1/completions", cat(R"("prompt": "x")", stream)), HasSubstr(policies));
  }
  // In a stream the event that ends a choice has them, and no other.
  const Received streamed = server.ask(
      post("/v1/chat/completions", cat("{", more, ", \"n\": 2, \"stream\": true, ", chat, "}")));
  int with_spans = 0;
  for (const json::Value& event : streamed.events()) {
    const bool ends = text_at(event, "choices.0.finish_reason") != "null";
    EXPECT_EQ(text_at(event, "choices.0.weight_versions") != "(absent)", ends);
    with_spans += ends ? 1 : 0;
  }
  EXPECT_EQ(with_spans, 2);
}

TEST(Adapters, WithAColonInTheirNamesAreFoundByTheWholeNameFirst) {
  TestServer server({.adapter_loading = true});
  server.engine().say("x");
  for (const char* const name : {"poet", "base:poet", "run@7:eval"})
    ASSERT_EQ(server
                  .ask(post("/v1/load_lora_adapter",
                            cat(R"({"lora_path": "/tmp", "lora_name": ")", name, R"("})")))
                  .status,
              200);
  for (const auto& [model, adapter] : std::initializer_list<std::pair<std::string, std::string>>{
           {"poet", "poet"},
           {"base:poet", "base:poet"},
           {"run@7:eval", "run@7:eval"},
           {"base:run@7:eval", "run@7:eval"},
           {"base:base:poet", "base:poet"}}) {
    const Received reply =
        server.ask(post("/v1/completions", cat(R"({"prompt": "x", "model": ")", model, R"("})")));
    EXPECT_EQ(reply.status, 200) << model << reply.body;
    EXPECT_THAT(server.engine().last_request().adapters,
                ElementsAre(lora::ScaledAdapter{adapter, 1}));
  }
  EXPECT_EQ(text_at(server.ask(get("/v1/models/base:poet")).json(), "id"), "base:poet");
}

// As the command line's --adapter-dir does.
TEST(Adapters, AreFoundWhenARequestNamesThem) {
  std::atomic<int> asked = 0;
  TestServer server(
      {.find_adapter = [&](const std::string& name) -> Result<std::optional<engine::AdapterSpec>> {
        ++asked;
        if (name == "broken") return Error(ErrorCode::bad_file, "half a file", "there", "mend it");
        if (name != "late") return std::optional<engine::AdapterSpec>();
        return std::optional(engine::AdapterSpec{.name = name, .path = "/tmp"});
      }});
  server.engine().say("x");
  const auto status = [&](std::string_view model) {
    return server.ask(
        post("/v1/completions", cat(R"({"prompt": "x", "model": ")", model, R"("})")));
  };
  EXPECT_EQ(status("base").status, 200);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(status("late").status, 200);
  EXPECT_EQ(status("late").status, 200);
  EXPECT_EQ(asked, 1) << "it is loaded";
  EXPECT_EQ(status("none").status, 404);
  EXPECT_EQ(status("none").status, 404);
  EXPECT_EQ(asked, 3) << "a miss is not remembered";
  const Received broken = status("broken");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(broken.error("param"), "model");
  EXPECT_THAT(broken.error("message"), HasSubstr("half a file"));
  EXPECT_EQ(server.ask(post("/tokenize", R"({"prompt": "x", "model": "late"})")).status, 200);
}

TEST(Adapters, ThatAreBeingLoadedAreWaitedFor) {
  std::atomic<int> found = 0;
  TestServer server(
      {.adapter_loading = true,
       .find_adapter = [&](const std::string& name) -> Result<std::optional<engine::AdapterSpec>> {
         ++found;
         return std::optional(engine::AdapterSpec{.name = name, .path = "/tmp"});
       }});
  server.engine().say("x");
  server.engine().hold_loads();
  Client loads(server.port());
  loads.send(post("/v1/load_lora_adapter", R"({"lora_name": "poet", "lora_path": "/tmp"})"));
  server.engine().wait_for_held_loads(1);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send(post("/v1/completions", R"({"prompt": "x", "model": "poet"})"));
  }
  // Each looks for the adapter just before it loads it.
  EXPECT_TRUE(eventually([&] { return found == 4; }));
  server.engine().release_loads();
  EXPECT_EQ(loads.receive().status, 200);
  for (const auto& client : clients) {
    const Received reply = client->receive();
    EXPECT_EQ(reply.status, 200) << reply.body;
  }
}

TEST(Answers, AliasesAreTheBase) {
  TestServer server({.adapter_loading = true, .aliases = {"other", "org/third"}});
  server.engine().say("x");
  server.engine().load_adapter({.name = "poet"}, false, [](const Result<void>&) {});
  const json::Value list = server.ask(get("/v1/models")).json();
  for (const auto& [index, id] : std::vector<std::pair<int, std::string>>{
           {0, "base"}, {1, "other"}, {2, "org/third"}, {3, "poet"}})
    EXPECT_EQ(text_at(list, cat("data.", index, ".id")), id);
  EXPECT_EQ(text_at(list, "data.1.root"), "base");
  EXPECT_EQ(text_at(list, "data.1.parent"), "null");
  EXPECT_EQ(text_at(list, "data.3.parent"), "base");
  EXPECT_EQ(text_at(server.ask(get("/v1/models/org%2Fthird")).json(), "id"), "org/third");
  EXPECT_EQ(text_at(server.ask(get("/v1/models/other:poet")).json(), "id"), "poet");
  EXPECT_EQ(server.ask(get("/v1/models/others")).status, 404);

  const auto asked = [&](const std::string& model) {
    const Received reply =
        server.ask(post("/v1/completions", cat(R"({"prompt": "a", "model": ")", model, R"("})")));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return text_at(reply.json(), "model");
  };
  EXPECT_EQ(asked("other"), "base");
  EXPECT_TRUE(server.engine().last_request().adapters.empty());
  EXPECT_EQ(asked("org/third:poet"), "base:poet");
  ASSERT_EQ(server.engine().last_request().adapters.size(), 1U);
  EXPECT_EQ(server.engine().last_request().adapters.front().name, "poet");

  const Received loaded =
      server.ask(post("/v1/load_lora_adapter", R"({"lora_name": "other", "lora_path": "/none"})"));
  EXPECT_EQ(loaded.status, 400);
  EXPECT_THAT(loaded.error("message"), testing::HasSubstr("the base model has that name"));
}

TEST(Adapters, ThatCanNeverFitAreTheClientsMistake) {
  TestServer server({.adapter_loading = true});
  server.engine().refuse_adapters({ErrorCode::unsupported,
                                   "it takes 2.0 GiB, and adapters have 1.0 GiB", "adapter 'poet'",
                                   "give them more memory (--adapter-memory)"});
  const Received reply =
      server.ask(post("/v1/load_lora_adapter", R"({"lora_name": "poet", "lora_path": "/tmp"})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error("param"), "lora_path");
  EXPECT_THAT(reply.error("message"), HasSubstr("2.0 GiB"));
}

TEST(Adapters, LoadReplaceAndUnload) {
  TestServer server({.adapter_loading = true});
  const auto load = [&](std::string_view more) {
    return server.ask(post("/v1/load_lora_adapter",
                           cat(R"({"lora_name": "poet", "lora_path": "/tmp")", more, "}")));
  };
  const std::string unload = post("/v1/unload_lora_adapter", R"({"lora_name": "poet"})");
  EXPECT_EQ(load("").status, 200);
  const Received again = load("");
  EXPECT_EQ(again.status, 400);
  EXPECT_EQ(again.error("param"), "lora_name");
  // The same in the flat form of older clients.
  EXPECT_EQ(text_at(again.json(), "type"), "InvalidUserInput");
  EXPECT_EQ(text_at(again.json(), "message"), again.error("message"));
  EXPECT_EQ(load(R"(, "load_inplace": true, "is_3d_lora_weight": true)").status, 200);
  EXPECT_EQ(load(R"(, "load_inplace": true, "b_columns": "sideways")").error("param"), "b_columns");
  EXPECT_EQ(server.ask(unload).status, 200);
  EXPECT_EQ(server.ask(unload).status, 404);
  const Received as_base =
      server.ask(post("/v1/load_lora_adapter", R"({"lora_name": "base", "lora_path": "/tmp"})"));
  EXPECT_EQ(as_base.status, 400);
  EXPECT_EQ(server
                .ask(post("/v1/load_lora_adapter",
                          R"({"lora_name": "x", "lora_path": "/nowhere/at/all"})"))
                .status,
            404);
}

TEST(Adapters, AreLeftAloneUnlessAllowedAndByWebPages) {
  TestServer closed;
  EXPECT_EQ(closed.ask(post("/v1/load_lora_adapter", "{}")).status, 403);
  EXPECT_EQ(closed.ask(post("/v1/unload_lora_adapter", "{}")).status, 403);
  TestServer open({.adapter_loading = true});
  EXPECT_EQ(open.ask(post("/v1/load_lora_adapter", R"({"lora_name": "x", "lora_path": "/tmp"})",
                          "Origin: http://elsewhere\r\n"))
                .status,
            403);
}

TEST(Routes, KeysGuardTheApi) {
  TestServer server({.keys = {"first", "second"}});
  server.engine().say("x");
  const std::string body = R"({"prompt": "x"})";
  const auto status = [&](std::string_view header) {
    return server.ask(post("/v1/completions", body, header)).status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("Authorization: Bearer firs\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer firstfirst\r\n"), 401);
  EXPECT_EQ(status("Authorization: Basic first\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer first\r\n"), 200);
  EXPECT_EQ(status("authorization: bearer second\r\n"), 200);
  EXPECT_EQ(server.ask(get("/health")).status, 200);
}

TEST(Routes, PagesAndMethods) {
  TestServer server;
  EXPECT_THAT(server.ask(get("/")).body, HasSubstr("<title>motley</title>"));
  EXPECT_THAT(server.ask(get("/metrics")).body,
              HasSubstr("\nvllm:num_requests_waiting{model_name=\"base\"} 3\n"));
  EXPECT_EQ(server.ask(get("/nothing/here")).status, 404);
  const Received wrong = server.ask(get("/v1/completions"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  const Received head = server.ask("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.headers.at("content-length"), "0");
  const Received with_id = server.ask(get("/health", "X-Request-Id: mine-1\r\n"));
  EXPECT_EQ(with_id.headers.at("x-request-id"), "mine-1");
}

TEST(Connections, StayOpenAndTakeRequestsInARow) {
  TestServer server;
  server.engine().say("x");
  Client client(server.port());
  const std::string request = post("/v1/completions", R"({"prompt": "x"})");
  // Three at once, and the answers come in their order.
  client.send(cat(get("/health"), request, get("/v1/models")));
  EXPECT_THAT(client.receive().body, HasSubstr("ready"));
  EXPECT_THAT(client.receive().body, HasSubstr("text_completion"));
  EXPECT_THAT(client.receive().body, HasSubstr("list"));
  client.send(get("/health", "Connection: close\r\n"));
  EXPECT_EQ(client.receive().headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST(Connections, OldClientsGetAStreamThatEndsWithTheConnection) {
  TestServer server;
  server.engine().say("old");
  Client client(server.port());
  const std::string body = R"({"prompt": "x", "stream": true})";
  client.send(
      cat("POST /v1/completions HTTP/1.0\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  const Received reply = client.receive();
  EXPECT_EQ(reply.status, 200);
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_TRUE(reply.done());
}

TEST(Connections, ClientsThatGoAwayFreeTheirRequests) {
  TestServer server;
  server.engine().say("a long story about a king and his horse");
  server.engine().hold_after(2);
  const std::string streaming =
      post("/v1/completions", R"({"prompt": "x", "stream": true, "max_tokens": 500})");
  const std::string whole = post("/v1/completions", R"({"prompt": "x", "max_tokens": 500})");
  {
    Client streams(server.port());
    streams.send(streaming);
    EXPECT_THAT(streams.receive_some(), HasSubstr("200"));
    Client waits(server.port());
    waits.send(whole);
    Client crashes(server.port());
    crashes.send(streaming);
    EXPECT_THAT(crashes.receive_some(), HasSubstr("200"));
    crashes.reset();
    Client old(server.port());
    const std::string_view body = R"({"prompt": "x", "max_tokens": 500})";
    old.send(
        cat("POST /v1/completions HTTP/1.0\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    server.engine().wait_for_submitted(4);
    server.engine().wait_for_ended(1);
    // Nothing can be sent to a client of HTTP/1.0 before its answer, so its end counts as its
    // departure.
    old.half_close();
    server.engine().wait_for_ended(2);
    // The engine has stopped in the middle of both, so that no token is sent either.
    waits.close();
    streams.close();
    server.engine().wait_for_ended(4);
  }
  EXPECT_EQ(server.engine().cancelled(), 4);
}

TEST(Connections, ClientsThatCloseTheirHalfGetTheirAnswers) {
  TestServer server;
  server.engine().say("to the end");
  server.engine().hold_after(1);  // what is on its way would show as well whether a client is there
  Client waits(server.port());
  waits.send(post("/v1/completions", R"({"prompt": "x"})"));
  server.engine().wait_for_submitted(1);
  waits.half_close();
  EXPECT_EQ(waits.receive_some(), "HTTP/1.1 100 Continue\r\n\r\n");
  Client streams(server.port());
  streams.send(post("/v1/completions", R"({"prompt": "x", "stream": true})"));
  std::string stream;
  while (stream.find("data: ") == std::string::npos) stream += streams.receive_some();
  streams.half_close();
  while (stream.find("\r\n:\n\n\r\n") == std::string::npos) stream += streams.receive_some();
  server.engine().release();
  const Received answer = waits.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr("to the end"));
  EXPECT_TRUE(waits.at_end());
  while (stream.find("data: [DONE]") == std::string::npos) stream += streams.receive_some();
  EXPECT_EQ(server.engine().cancelled(), 0);
}

TEST(Connections, RequestsSentAheadOfAHalfCloseAreAnswered) {
  TestServer server;
  Client client(server.port());
  client.send(cat(get("/health"), get("/version"), get("/v1/models")));
  client.half_close();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.receive().status, 200) << i;
  EXPECT_TRUE(client.at_end());
}

TEST(Connections, ShuttingDownFinishesWhatRunsAndRefusesWhatComes) {
  TestServer server;
  server.engine().say("to the very end of it");
  server.engine().hold_after(1);
  Client running(server.port());
  running.send(post("/v1/completions", R"({"prompt": "x", "stream": true, "max_tokens": 500})"));
  EXPECT_THAT(running.receive_some(), HasSubstr("200"));
  Client idle(server.port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.receive().status, 200);

  server.service().shut_down();
  EXPECT_FALSE(server.http().drain(std::chrono::seconds(0)));
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(server.ask(get("/health")).status, 503);
  const Received refused = server.ask(post("/v1/completions", R"({"prompt": "x"})"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  server.engine().release();
  std::string rest;
  while (!running.at_end()) rest += running.receive_some();
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
  EXPECT_TRUE(server.http().drain(std::chrono::seconds(60)));
}

TEST(Failures, OfTheEngineReachTheClient) {
  TestServer server;
  server.engine().say("x");
  server.engine().refuse({ErrorCode::busy, "the queue is full", "", "try again"});
  const Received busy = server.ask(post("/v1/completions", R"({"prompt": "x"})"));
  EXPECT_EQ(busy.status, 429);
  EXPECT_TRUE(busy.headers.contains("retry-after"));
  EXPECT_EQ(busy.error("type"), "rate_limit_error");
}

TEST(Failures, InTheMiddleOfAStreamAreItsLastEvent) {
  TestServer server;
  server.engine().say("some words");
  server.engine().hold_after(1);
  Client client(server.port());
  client.send(post("/v1/completions", R"({"prompt": "x", "stream": true})"));
  std::string text = client.receive_some();
  server.engine().fail_running({ErrorCode::internal, "the device failed"});
  while (text.find("0\r\n\r\n") == std::string::npos) text += client.receive_some();
  EXPECT_THAT(text, HasSubstr("the device failed"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("[DONE]")));
}

}  // namespace
}  // namespace motley::server
