#include "text/chat/chat_request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::text {
namespace {

using testing::HasSubstr;

Result<ChatInputs> read(std::string_view text) {
  return read_chat_request(json::parse(text, "test").value(), "input");
}

TEST(ChatRequest, ReadsEveryField) {
  const auto inputs = read(R"({"messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function"}], "documents": [], "add_generation_prompt": false,
    "chat_template_kwargs": {"enable_thinking": true}})");
  ASSERT_TRUE(inputs.ok()) << inputs.error().message();
  EXPECT_EQ(inputs->messages.if_array()->size(), 1U);
  EXPECT_EQ(inputs->tools->if_array()->size(), 1U);
  EXPECT_EQ(inputs->documents->if_array()->size(), 0U);
  EXPECT_FALSE(inputs->add_generation_prompt);
  EXPECT_TRUE(inputs->kwargs.contains("enable_thinking"));
}

TEST(ChatRequest, OnlyMessagesAreNeeded) {
  const auto inputs =
      read(R"({"messages": [], "tools": null, "documents": null, "chat_template_kwargs": null})");
  ASSERT_TRUE(inputs.ok()) << inputs.error().message();
  EXPECT_FALSE(inputs->tools);
  EXPECT_FALSE(inputs->documents);
  EXPECT_TRUE(inputs->add_generation_prompt);
  EXPECT_TRUE(inputs->kwargs.empty());
}

TEST(ChatRequest, RefusesByName) {
  for (const auto& [text, named] :
       {std::pair{"[]", "input"},
        {"{}", "no messages"},
        {R"({"messages": "hi"})", "input, messages"},
        {R"({"messages": ["hi"]})", "messages[0]"},
        {R"({"messages": [], "tools": {}})", "input, tools"},
        {R"({"messages": [], "documents": [1]})", "documents[0]"},
        {R"({"messages": [], "add_generation_prompt": 1})", "add_generation_prompt"},
        {R"({"messages": [], "chat_template_kwargs": []})", "chat_template_kwargs"},
        {R"({"messages": [], "temperature": 1})", "unknown field 'temperature'"}}) {
    const auto inputs = read(text);
    ASSERT_FALSE(inputs.ok()) << text;
    EXPECT_THAT(inputs.error().message(), HasSubstr(named));
  }
}

}  // namespace
}  // namespace motley::text
