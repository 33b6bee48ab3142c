#include "server/api/responses/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/api/request_charge.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

Result<ResponsesRequest> read(std::string_view body) {
  static const text::GenerationConfig defaults;
  return read_responses_request(json::parse(body, "body").value(),
                                {.base = "base", .vocabulary = 100, .defaults = &defaults});
}

std::string messages(std::string_view input) {
  const auto request = read(cat("{\"input\": ", input, "}"));
  return request.ok() ? json::write(request->chat.inputs.messages) : request.error().message();
}

std::string wrong_field(std::string_view members) {
  const auto request = read(cat("{\"input\": \"x\"", members.empty() ? "" : ", ", members, "}"));
  return request.ok() ? "" : request.error().where();
}

std::string wrong_item(std::string_view item) {
  const auto request =
      read(cat("{\"input\": [{\"role\": \"user\", \"content\": \"x\"}, ", item, "]}"));
  return request.ok() ? "" : request.error().where();
}

TEST(ResponsesInput, TextsAndMessagesAreMessages) {
  EXPECT_EQ(messages(R"("hi")"), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(
      messages(R"([{"role": "developer", "content": "short"},
                         {"type": "message", "role": "user", "content":
                           [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                         {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                          "content": [{"type": "output_text", "text": "c", "annotations": []},
                                      {"type": "refusal", "refusal": "d"}]}])"),
      R"([{"role":"developer","content":"short"},{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":"cd"}])");
  const auto instructed = read(R"({"instructions": "be kind", "input": "hi"})");
  EXPECT_EQ(json::write(instructed->chat.inputs.messages),
            R"([{"role":"system","content":"be kind"},{"role":"user","content":"hi"}])");
}

TEST(ResponsesInput, ATurnOfTheAssistantIsOneMessage) {
  EXPECT_EQ(
      messages(R"([{"role": "user", "content": "x"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content":
          [{"type": "reasoning_text", "text": "one"}, {"type": "reasoning_text", "text": "two"}]},
        {"role": "assistant", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"a\": 1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]}])"),
      R"([{"role":"user","content":"x"},{"role":"assistant","content":"look","reasoning_content":"one\ntwo",)"
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},)"
      R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{\"a\": 1}"}}]},)"
      R"({"role":"tool","content":"1","tool_call_id":"c1"},{"role":"tool","content":"2","tool_call_id":"c2"}])");
}

TEST(ResponsesInput, TurnsEndWhereReasoningOrAnotherMessageBegins) {
  EXPECT_EQ(
      messages(R"([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "e"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
        {"type": "reasoning", "summary": []}])"),
      R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},)"
      R"({"role":"assistant","content":null,"reasoning_content":"s","tool_calls":[{"id":"c",)"
      R"("type":"function","function":{"name":"f","arguments":""}}]}])");
}

TEST(ResponsesInput, ErrorsNameTheItem) {
  EXPECT_EQ(wrong_item(R"({"role": "user", "content": [{"type": "input_text", "text": "x"},
                          {"type": "input_image", "image_url": "u"}]})"),
            "input[1].content[1].type");
  EXPECT_EQ(wrong_item(R"({"role": "critic", "content": "x"})"), "input[1].role");
  EXPECT_EQ(wrong_item(R"({"role": "user"})"), "input[1].content");
  EXPECT_EQ(wrong_item(R"({"role": "user", "content": 3})"), "input[1].content");
  EXPECT_EQ(wrong_item(R"({"type": "item_reference", "id": "msg_1"})"), "input[1].type");
  EXPECT_EQ(wrong_item(R"({"id": "msg_1"})"), "input[1].type");
  EXPECT_EQ(wrong_item(R"({"type": "web_search_call", "id": "ws_1"})"), "input[1].type");
  EXPECT_EQ(wrong_item(R"({"type": "function_call", "name": "f", "arguments": "{}"})"),
            "input[1].call_id");
  EXPECT_EQ(
      wrong_item(R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}})"),
      "input[1].arguments");
  EXPECT_EQ(wrong_item(R"({"type": "function_call_output", "call_id": "c"})"), "input[1].output");
  EXPECT_EQ(wrong_item(R"({"type": "function_call_output", "call_id": "c", "output":
                          [{"type": "input_file"}]})"),
            "input[1].output[0].type");
  EXPECT_EQ(wrong_item("3"), "input[1]");
  EXPECT_EQ(read("{}").error().where(), "input");
  EXPECT_EQ(read(R"({"input": []})").error().where(), "input");
  EXPECT_EQ(read(R"({"input": {"role": "user"}})").error().where(), "input");
  EXPECT_EQ(read(R"({"input": [{"type": "reasoning", "summary": []}]})").error().where(), "input");
}

TEST(ResponsesInput, ErrorsOfTheConversationComeBackToIt) {
  const auto request = read(R"({"instructions": "i", "input": [{"type": "reasoning", "summary": []},
        {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]})");
  const auto place = [&](std::string_view where) {
    return request->conversation.at_input({ErrorCode::too_long, "w", std::string(where)}).where();
  };
  EXPECT_EQ(place("messages"), "input");
  EXPECT_EQ(place("messages[0].content"), "instructions");
  EXPECT_EQ(place("messages[1].content"), "input[1]");
  EXPECT_EQ(place("messages[2]"), "input[2]");
  EXPECT_EQ(place("messages[9]"), "input");
  EXPECT_EQ(place("tools"), "tools");
}

TEST(ResponsesInput, TakesThousandsOfItems) {
  std::string items;
  for (int i = 0; i < 10'000; ++i)
    items += cat(i > 0 ? "," : "", R"({"type": "function_call", "call_id": "c)", i,
                 R"(", "name": "f", "arguments": "{}"})");
  const auto request = read(cat("{\"input\": [", items, "]}"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->chat.inputs.messages.if_array()->size(), 1U);
  EXPECT_EQ(
      read(cat("{\"input\": [", items, R"(, {"role": "user", "content": ""}]})")).error().where(),
      "input");
}

constexpr std::string_view tools =
    R"("tools": [{"type": "function", "name": "f", "parameters": null,
    "description": null}, {"type": "function", "name": "g", "description": "d", "strict": true,
    "parameters": {"type": "object"}}])";

TEST(ResponsesTools, AreThoseOfChats) {
  const auto request = read(cat(R"({"input": "x", )", tools, "}"));
  EXPECT_EQ(
      json::write(*request->chat.inputs.tools),
      R"([{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g",)"
      R"("description":"d","parameters":{"type":"object"},"strict":true}}])");
  EXPECT_EQ(request->chat.tool_use, serving::ToolUse::free);
  EXPECT_THAT(
      request->repeated,
      HasSubstr(R"("tools":[{"type":"function","name":"f","description":null,"parameters":null,)"
                R"("strict":false},{"type":"function","name":"g","description":"d",)"
                R"("parameters":{"type":"object"},"strict":true}])"));
}

TEST(ResponsesTools, ChoicesSayWhichMayBeCalled) {
  const auto chosen = [](std::string_view choice) {
    return *read(cat(R"({"input": "x", )", tools, ", \"tool_choice\": ", choice, "}"));
  };
  EXPECT_EQ(chosen(R"("none")").chat.tool_use, serving::ToolUse::none);
  EXPECT_FALSE(chosen(R"("none")").chat.inputs.tools);
  EXPECT_EQ(chosen(R"("required")").chat.tool_use, serving::ToolUse::some);
  const auto named = chosen(R"({"type": "function", "name": "g"})");
  EXPECT_EQ(named.chat.tool_use, serving::ToolUse::one_named);
  EXPECT_EQ(named.chat.tool_name, "g");
  const auto allowed = chosen(R"({"type": "allowed_tools", "mode": "required", "tools":
                                  [{"type": "function", "name": "g"}]})");
  EXPECT_EQ(allowed.chat.tool_use, serving::ToolUse::some);
  ASSERT_EQ(allowed.chat.inputs.tools->if_array()->size(), 1U);
  EXPECT_THAT(json::write(*allowed.chat.inputs.tools), HasSubstr("\"g\""));
  EXPECT_THAT(allowed.repeated, HasSubstr(R"("name":"f")"));
}

TEST(ResponsesTools, ThatTheServerWouldHaveToRunAreRefusedByName) {
  for (const std::string_view type : {"web_search", "file_search", "code_interpreter", "mcp",
                                      "computer_use_preview", "image_generation", "custom"}) {
    const auto request =
        read(cat(R"({"input": "x", "tools": [{"type": "function", "name": "f"}, {"type": ")", type,
                 "\"}]}"));
    EXPECT_EQ(request.error().where(), "tools[1].type");
    EXPECT_THAT(request.error().message(), HasSubstr(type));
  }
  EXPECT_EQ(wrong_field(R"("tools": [{"type": "function"}])"), "tools[0].name");
  EXPECT_EQ(wrong_field(R"("tools": [{"name": "f"}])"), "tools[0].type");
  EXPECT_EQ(wrong_field(R"("tools": [{"type": "function", "name": "f", "parameters": 3}])"),
            "tools[0].parameters");
  const auto choice = [](std::string_view given) {
    return wrong_field(cat(tools, ", \"tool_choice\": ", given));
  };
  EXPECT_EQ(choice(R"("some")"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "function", "name": "h"})"), "tool_choice.name");
  EXPECT_EQ(choice(R"({"type": "file_search"})"), "tool_choice.type");
  EXPECT_EQ(choice(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]})"),
            "tool_choice.tools[0].type");
  EXPECT_EQ(choice(R"({"type": "allowed_tools", "mode": "never", "tools": []})"),
            "tool_choice.mode");
  EXPECT_EQ(choice(R"({"type": "allowed_tools", "mode": "required", "tools": []})"),
            "tool_choice.tools");
  EXPECT_EQ(wrong_field(R"("tool_choice": "required")"), "tool_choice");
}

TEST(ResponsesRequest, RefusesWhatNeedsAServerThatKeepsThings) {
  EXPECT_EQ(wrong_field(R"("previous_response_id": "resp_1")"), "previous_response_id");
  EXPECT_EQ(wrong_field(R"("conversation": "conv_1")"), "conversation");
  EXPECT_EQ(wrong_field(R"("prompt": {"id": "pmpt_1"})"), "prompt");
  EXPECT_EQ(wrong_field(R"("background": true)"), "background");
  EXPECT_EQ(wrong_field(R"("previous_response_id": null, "background": false, "store": true)"), "");
}

TEST(ResponsesRequest, ChecksItsFields) {
  EXPECT_EQ(wrong_field(R"("max_output_tokens": 0)"), "max_output_tokens");
  EXPECT_EQ(wrong_field(R"("n": 2)"), "n");
  EXPECT_EQ(wrong_field(R"("truncation": "middle")"), "truncation");
  EXPECT_EQ(wrong_field(R"("metadata": {"k": 3})"), "metadata.k");
  EXPECT_EQ(wrong_field(R"("text": {"format": {"type": "yaml"}})"), "text.format.type");
  EXPECT_EQ(wrong_field(R"("text": {"format": {"type": "json_schema", "name": "n"}})"),
            "text.format.schema");
  EXPECT_EQ(wrong_field(R"("text": {"format": {"type": "json_object"}}, "guided_regex": "a")"),
            "text.format");
  EXPECT_EQ(wrong_field(R"("include": [3])"), "include[0]");
  EXPECT_EQ(wrong_field(R"("top_logprobs": 21)"), "top_logprobs");
  EXPECT_EQ(wrong_field(R"("reasoning": {"effort": 3})"), "reasoning.effort");
  EXPECT_EQ(wrong_field(R"("temperature": -1)"), "temperature");
  EXPECT_EQ(wrong_field(R"("include": ["reasoning.encrypted_content"], "text": {"verbosity": "low"},
                           "service_tier": "flex", "user": "u", "truncation": "auto")"),
            "");
}

TEST(ResponsesRequest, SaysHowToGenerate) {
  const auto request = read(R"({"input": "x", "max_output_tokens": 7, "max_tokens": 9, "seed": 3,
      "reasoning": {"effort": "low", "summary": "auto"}, "include": ["message.output_text.logprobs"],
      "top_logprobs": 2, "chat_template_kwargs": {"enable_thinking": false},
      "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "null"}}}})");
  const GenerationFields& fields = request->chat.fields;
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.sampling.seed, 3U);
  EXPECT_TRUE(fields.sampling.logprobs);
  EXPECT_EQ(fields.sampling.top_logprobs, 2);
  EXPECT_EQ(fields.sampling.grammar->text, R"({"type":"null"})");
  EXPECT_EQ(fields.grammar_field, "text.format");
  EXPECT_EQ(json::write(request->chat.inputs.kwargs),
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_FALSE(read(R"({"input": "x", "top_logprobs": 0})")->chat.fields.sampling.logprobs);
}

// A stream repeats its items, so it keeps them.
TEST(ResponsesCharge, StreamsKeepWhatTheyRepeat) {
  GenerationFields fields;
  fields.max_tokens = 1000;
  fields.stream = true;
  const RequestSize chat{.prompt_tokens = 10, .room_tokens = 100'000, .chat = true};
  RequestSize response = chat;
  response.response = true;
  response.repeated_bytes = 5000;
  EXPECT_EQ(charge_for(fields, chat).kept_bytes, 0U);
  EXPECT_GT(charge_for(fields, response).kept_bytes, 1000U);
  EXPECT_GT(charge_for(fields, response).answer_bytes,
            4 * charge_for(fields, chat).answer_bytes + 3 * 5000);
  fields.stream = false;
  EXPECT_EQ(charge_for(fields, response).kept_bytes, charge_for(fields, chat).kept_bytes);
}

}  // namespace
}  // namespace motley::server
