#include "server/api/messages/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<MessagesRequest> read(std::string_view fields, serving::Notices* notices = nullptr,
                             MessagesUse use = MessagesUse::answer) {
  static const text::GenerationConfig defaults;
  const json::Value body = json::parse(cat("{", fields, "}"), "body").value();
  return read_messages_request(
      body, {.base = "base", .vocabulary = 100, .defaults = &defaults, .notices = notices}, use);
}

// A body with these messages.
std::string with(std::string_view messages, std::string_view more = {}) {
  return cat(R"("max_tokens": 5, "messages": )", messages, more.empty() ? "" : ", ", more);
}

const std::string hello = R"([{"role": "user", "content": "hello"}])";

std::string messages_of(std::string_view fields) {
  const auto request = read(fields);
  EXPECT_TRUE(request.ok()) << request.error().message();
  return request.ok() ? json::write(request->chat.inputs.messages) : "";
}

std::string place_of(std::string_view fields) {
  const auto request = read(fields);
  return request.ok() ? "(fine)" : request.error().where();
}

TEST(MessagesRequest, TextsBecomeMessages) {
  EXPECT_EQ(messages_of(with(hello)), R"([{"role":"user","content":"hello"}])");
  EXPECT_EQ(
      messages_of(with(R"([{"role": "user", "content": [{"type": "text", "text": "a",
              "cache_control": {"type": "ephemeral"}}]},
              {"role": "assistant", "content": []}, {"role": "system", "content": "now"},
              {"role": "user", "content": [{"type": "text", "text": "b"},
                                           {"type": "text", "text": "c"}]}])",
                       R"("system": [{"type": "text", "text": "be brief"}])")),
      R"([{"role":"system","content":"be brief"},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":""},{"role":"system","content":"now"},)"
      R"({"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]}])");
}

TEST(MessagesRequest, AnAssistantsBlocksAreOneMessage) {
  EXPECT_EQ(
      messages_of(with(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "xyz"}, {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"where": "up", "n": 1.50}},
        {"type": "tool_use", "id": "t2", "name": "wait", "input": {}}]},
        {"role": "user", "content": "y"}])")),
      R"([{"role":"user","content":"x"},{"role":"assistant","content":"I look",)"
      R"("reasoning_content":"hm","tool_calls":[)"
      R"({"id":"t1","type":"function","function":{"name":"look","arguments":{"where":"up","n":1.5}}},)"
      R"({"id":"t2","type":"function","function":{"name":"wait","arguments":{}}}]},)"
      R"({"role":"user","content":"y"}])");
  EXPECT_THAT(messages_of(with(R"([{"role": "assistant", "content": [
      {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, {"role": "user", "content": "y"}])")),
              HasSubstr(R"("role":"assistant","content":null,)"));
}

TEST(MessagesRequest, ResultsAndTextsKeepTheirOrder) {
  EXPECT_EQ(messages_of(with(R"([{"role": "assistant", "content": [
      {"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sky"}]},
        {"type": "text", "text": "and?"},
        {"type": "tool_result", "tool_use_id": "t9", "is_error": true},
        {"type": "text", "text": "well"}]}])")),
            R"([{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function",)"
            R"("function":{"name":"look","arguments":{}}}]},)"
            R"({"role":"tool","content":"sky","name":"look","tool_call_id":"t1"},)"
            R"({"role":"user","content":"and?"},)"
            R"({"role":"tool","content":"","tool_call_id":"t9","is_error":true},)"
            R"({"role":"user","content":"well"}])");
}

TEST(MessagesRequest, ToolsAreThoseOfChats) {
  const std::string tools = R"("tools": [{"name": "look", "description": "looks", "strict": true,
      "type": "custom", "input_schema": {"type": "object"}, "cache_control": null},
      {"name": "wait", "input_schema": {}, "defer_loading": true}])";
  const auto chat = [&](std::string_view choice) {
    return read(with(hello, cat(tools, choice.empty() ? "" : ", \"tool_choice\": ", choice)))
        .value()
        .chat;
  };
  EXPECT_EQ(json::write(*chat("").inputs.tools),
            R"([{"type":"function","function":{"name":"look","description":"looks",)"
            R"("parameters":{"type":"object"},"strict":true}},)"
            R"({"type":"function","function":{"name":"wait","parameters":{}}}])");
  EXPECT_EQ(chat("").tool_use, serving::ToolUse::free);
  EXPECT_TRUE(chat(R"({"type": "auto"})").parallel_calls);
  EXPECT_EQ(chat(R"({"type": "any"})").tool_use, serving::ToolUse::some);
  EXPECT_FALSE(chat(R"({"type": "any", "disable_parallel_tool_use": true})").parallel_calls);
  EXPECT_EQ(chat(R"({"type": "tool", "name": "wait"})").tool_name, "wait");
  EXPECT_FALSE(chat(R"({"type": "none"})").inputs.tools.has_value());
  EXPECT_EQ(chat(R"({"type": "any"})").fields.grammar_field, "tools");
}

TEST(MessagesRequest, ThinkingIsTheTemplatesToDo) {
  const auto kwargs = [](std::string_view more) {
    return json::write(read(with(hello, more)).value().chat.inputs.kwargs);
  };
  EXPECT_EQ(kwargs(""), "{}");
  EXPECT_EQ(kwargs(R"("thinking": {"type": "adaptive"})"), "{}");
  EXPECT_EQ(kwargs(R"("thinking": {"type": "enabled", "budget_tokens": 1024})"),
            R"({"enable_thinking":true})");
  EXPECT_EQ(kwargs(R"("thinking": {"type": "disabled"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("thinking": {"type": "disabled"},
                      "chat_template_kwargs": {"enable_thinking": true})"),
            R"({"enable_thinking":true})");
  EXPECT_EQ(kwargs(R"("output_config": {"effort": "max"})"), R"({"reasoning_effort":"high"})");
  EXPECT_FALSE(read(with(hello, R"("thinking": {"type": "enabled", "display": "omitted"})"))
                   .value()
                   .show_thinking);
}

TEST(MessagesRequest, FormsAreGrammars) {
  for (const std::string_view form :
       {R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "null"}}})",
        R"("output_format": {"type": "json_schema", "schema": {"type": "null"}})"}) {
    const GenerationFields fields = read(with(hello, form)).value().chat.fields;
    EXPECT_EQ(fields.sampling.grammar->text, R"({"type":"null"})");
    EXPECT_THAT(std::string(fields.grammar_field), HasSubstr("format"));
  }
}

TEST(MessagesRequest, StopSequencesAreStopStrings) {
  const auto request = read(with(hello, R"("stop": "a", "stop_sequences": ["b", "c"])"));
  EXPECT_THAT(request.value().chat.fields.stop, ElementsAre("a", "b", "c"));
}

TEST(MessagesRequest, ErrorsNameTheFieldOfThisBody) {
  const auto user = [](std::string_view block) {
    return with(
        cat(R"([{"role": "user", "content": "x"}, {"role": "user", "content": [)", block, "]}]"));
  };
  const auto assistant = [](std::string_view block) {
    return with(cat(R"([{"role": "assistant", "content": [)", block, "]}]"));
  };
  for (const auto& [fields, place] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("max_tokens": 5)", "messages"},
           {cat(R"("messages": )", hello), "max_tokens"},
           {with("[]"), "messages"},
           {with("[1]"), "messages[0]"},
           {with(R"([{"content": "x"}])"), "messages[0].role"},
           {with(R"([{"role": "tool", "content": "x"}])"), "messages[0].role"},
           {with(R"([{"role": "user"}])"), "messages[0].content"},
           {with(R"([{"role": "user", "content": 5}])"), "messages[0].content"},
           {with(R"([{"role": "assistant", "content": "y"}])",
                 R"("tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any"})"),
            "tool_choice"},
           {user("{}"), "messages[1].content[0].type"},
           {user(R"({"type": "text"})"), "messages[1].content[0].text"},
           {user(R"({"type": "image", "source": {}})"), "messages[1].content[0].type"},
           {user(R"({"type": "text", "text": ""}, {"type": "document"})"),
            "messages[1].content[1].type"},
           {user(R"({"type": "tool_use", "id": "1", "name": "f", "input": {}})"),
            "messages[1].content[0].type"},
           {user(R"({"type": "tool_result"})"), "messages[1].content[0].tool_use_id"},
           {user(R"({"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image"}]})"),
            "messages[1].content[0].content[0].type"},
           {assistant(R"({"type": "tool_result", "tool_use_id": "1"})"),
            "messages[0].content[0].type"},
           {assistant(R"({"type": "tool_use", "id": "1", "name": "f", "input": "{}"})"),
            "messages[0].content[0].input"},
           {assistant(R"({"type": "tool_use", "id": "1"})"), "messages[0].content[0].name"},
           {assistant(R"({"type": "thinking"})"), "messages[0].content[0].thinking"},
           {with(hello, R"("system": 5)"), "system"},
           {with(hello, R"("system": [{"type": "image"}])"), "system[0].type"},
           {with(hello, R"("tools": [{"name": "f"}])"), "tools[0].input_schema"},
           {with(hello, R"("tools": [{"input_schema": {}}])"), "tools[0].name"},
           {with(hello, R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])"),
            "tools[0].type"},
           {with(hello, R"("tool_choice": {"type": "any"})"), "tool_choice"},
           {with(hello, R"("tool_choice": {"type": "required"})"), "tool_choice.type"},
           {with(hello, R"("tools": [{"name": "f", "input_schema": {}}],
                           "tool_choice": {"type": "tool", "name": "g"})"),
            "tool_choice.name"},
           {with(hello, R"("thinking": {"type": "on"})"), "thinking.type"},
           {with(hello, R"("thinking": {"type": "enabled", "display": "all"})"),
            "thinking.display"},
           {with(hello, R"("output_config": {"format": {"type": "text"}})"),
            "output_config.format.type"},
           {with(hello, R"("output_config": {"format": {"type": "json_schema"}})"),
            "output_config.format.schema"},
           {with(hello, R"("guided_regex": "a", "output_format": {"type": "json_schema"})"),
            "output_format"},
           {with(hello, R"("stop_sequences": [""])"), "stop_sequences"},
           {with(hello, R"("container": "c1")"), "container"},
           {with(hello, R"("mcp_servers": [{"name": "x"}])"), "mcp_servers"},
           {with(hello, R"("n": 2)"), "n"},
           {with(hello, R"("temperature": -5)"), "temperature"}})
    EXPECT_EQ(place_of(fields), place) << fields;
}

TEST(MessagesRequest, WhatIsAnthropicsOwnIsAccepted) {
  serving::Notices notices;
  const auto request =
      read(with(hello, R"("metadata": {"user_id": "me"}, "service_tier": "auto", "container": null,
        "mcp_servers": [], "cache_control": {"type": "ephemeral"}, "inference_geo": "eu",
        "context_management": {"edits": []})"),
           &notices);
  EXPECT_TRUE(request.ok()) << request.error().message();
  EXPECT_THAT(notices.ignored, ElementsAre("context_management"));
}

TEST(MessagesRequest, AnAssistantsLastMessageIsTheBeginningOfTheAnswer) {
  EXPECT_FALSE(read(with(hello)).value().chat.continue_final);
  EXPECT_TRUE(
      read(with(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])"))
          .value()
          .chat.continue_final);
  EXPECT_EQ(place_of(with(R"([{"role": "assistant", "content": [
      {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}])")),
            "messages[0].content");
}

TEST(MessagesRequest, ACountNeedsNoMaxTokens) {
  EXPECT_TRUE(read(cat(R"("messages": )", hello), nullptr, MessagesUse::count).ok());
}

}  // namespace
}  // namespace motley::server
