// Answers in the forms of other families than the test server's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// A template that has words for messages, and none for calls.
constexpr std::string_view plain_template =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

constexpr std::string_view tools =
    R"("tools": [{"type": "function", "function": {"name": "look"}}])";

json::Value chat(TestServer& server, std::string_view more) {
  const Received answer = server.ask(post(
      "/v1/chat/completions",
      cat(R"({"model": "base", "messages": [{"role": "user", "content": "x"}], )", more, "}")));
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.json();
}

TEST(ToolForms, ThatAreNotKnownLeaveTheTextAsItIsWithItsMarks) {
  TestServer server({.chat_template = std::string(plain_template)});
  server.engine().say("Well.<|im_start|>look {}");
  EXPECT_EQ(text_at(chat(server, tools), "choices.0.message.content"), "Well.<|im_start|>look {}");
  EXPECT_EQ(text_at(chat(server, R"("n": 1)"), "choices.0.message.content"), "Well.look {}")
      << "special tokens are not shown where there are no tools";
}

TEST(ToolForms, CanBeNamed) {
  TestServer server({.chat_template = std::string(plain_template),
                     .forms = {.calls = "kimi_k2", .reasoning = "think"}});
  server.engine().say(
      "<think>Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0"
      "<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>");
  const json::Value body = chat(server, tools);
  EXPECT_EQ(text_at(body, "choices.0.message.reasoning_content"), "Hm.");
  EXPECT_EQ(text_at(body, "choices.0.message.content"), "I look.");
  EXPECT_EQ(text_at(body, "choices.0.message.tool_calls.0.id"), "functions.look:0");
  EXPECT_EQ(text_at(body, "choices.0.message.tool_calls.0.function.arguments"), R"({"a": 1})");
  EXPECT_FALSE((serving::FormNames{.calls = "qwen4"}).check().ok());
  EXPECT_THAT((serving::FormNames{.reasoning = "qwen4"}).check().error().message(),
              HasSubstr("think"));
  EXPECT_TRUE((serving::FormNames{.calls = "none", .reasoning = "none"}).check().ok());
}

TEST(ToolForms, GiveTheIdsThatTheirTemplatesTake) {
  TestServer mistral(
      {.chat_template = std::string(plain_template), .forms = {.calls = "mistral_v11"}});
  mistral.engine().say("[TOOL_CALLS]look[ARGS]{}");
  EXPECT_THAT(text_at(chat(mistral, tools), "choices.0.message.tool_calls.0.id"),
              MatchesRegex("[0-9a-z]+"));
  EXPECT_EQ(text_at(chat(mistral, tools), "choices.0.message.tool_calls.0.id").size(), 9U);
  TestServer kimi({.chat_template = std::string(plain_template), .forms = {.calls = "kimi_k2"}});
  kimi.engine().say("{}");
  const json::Value forced =
      chat(kimi, cat(tools, R"(, "tool_choice": {"type": "function", "function": {"name":
                               "look"}})"));
  EXPECT_EQ(text_at(forced, "choices.0.message.tool_calls.0.id"), "functions.look:0");
}

TEST(ToolForms, StopBehindOneCallWhereOneIsAsked) {
  TestServer server(
      {.chat_template = std::string(plain_template), .forms = {.calls = "llama3_json"}});
  server.engine().say(R"({"name": "look", "parameters": {}}; {"name": "look", "parameters": {}})");
  EXPECT_EQ(text_at(chat(server, tools), "choices.0.message.tool_calls.1.type"), "function");
  const json::Value one = chat(server, cat(tools, R"(, "parallel_tool_calls": false)"));
  EXPECT_EQ(text_at(one, "choices.0.message.tool_calls.0.type"), "function");
  EXPECT_EQ(text_at(one, "choices.0.message.tool_calls.1"), "(absent)");
  EXPECT_EQ(text_at(one, "choices.0.message.content"), "null");
}

TEST(ToolForms, ReasoningIsFoundInThePromptThatWasWritten) {
  TestServer server(
      {.chat_template = cat(plain_template, "{% if depth == 'deep' %}<think>\n{% endif %}")});
  server.engine().say("Hm.</think>Yes.");
  const json::Value deep = chat(server, R"("chat_template_kwargs": {"depth": "deep"})");
  EXPECT_EQ(text_at(deep, "choices.0.message.reasoning_content"), "Hm.");
  EXPECT_EQ(text_at(deep, "choices.0.message.content"), "Yes.");
  EXPECT_EQ(text_at(chat(server, R"("n": 1)"), "choices.0.message.content"), "Hm.</think>Yes.");
}

}  // namespace
}  // namespace motley::server
