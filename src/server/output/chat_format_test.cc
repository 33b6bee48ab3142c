#include "server/output/chat_format.h"

#include <gtest/gtest.h>

#include "base/temporary_folder.h"

namespace motley::server {
namespace {

text::ModelText model_with(std::string_view chat_template) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(MOTLEY_TOKENIZERS "/qwen2/tokenizer.json", folder / "tokenizer.json");
  folder.file("chat_template.jinja", chat_template);
  return text::ModelText::load(folder.path()).value();
}

std::string corpus(const char* name) {
  return motley::read_text(std::filesystem::path(MOTLEY_TEMPLATES) / name, 1 << 20).value();
}

TEST(ChatFormat, IsFoundInTheTemplate) {
  EXPECT_EQ(find_chat_format(model_with(corpus("qwen3"))),
            (ChatFormat{.think_tags = true, .calls = CallSyntax::json}));
  EXPECT_EQ(find_chat_format(model_with(corpus("glm4"))),
            (ChatFormat{.think_tags = true, .calls = CallSyntax::arg_tags}));
  EXPECT_EQ(find_chat_format(model_with(corpus("mixtral"))), ChatFormat{});
}

TEST(ChatFormat, HarmonyIsFoundInCallsToFunctions) {
  constexpr std::string_view harmony =
      "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<|start|>assistant"
      "<|channel|>commentary to=functions.{{ c.function.name }} <|constrain|>json<|message|>"
      "{{ c.function.arguments | tojson }}<|call|>{% endfor %}{% else %}<|start|>{{ m.role }}"
      "<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  EXPECT_EQ(find_chat_format(model_with(harmony)), ChatFormat{.harmony = true});
}

TEST(ChatFormat, TemplateThatWritesNoAnswerMarksNothing) {
  EXPECT_EQ(find_chat_format(model_with("{{ raise_exception('no') }}")), ChatFormat{});
}

TEST(ChatFormat, PromptSaysWhereTheAnswerBegins) {
  const ChatFormat format{.think_tags = true};
  const auto reasoning_of = [&](std::string_view prompt) {
    const auto parser = make_output_parser(format, prompt, nullptr);
    ParsedOutput output = parser->push("x<think>y</think>z");
    return output.reasoning + parser->finish().reasoning;
  };
  EXPECT_EQ(reasoning_of("assistant\n<think>\n"), "x<think>y");
  EXPECT_EQ(reasoning_of("assistant\n"), "");
  EXPECT_EQ(reasoning_of("assistant\n<think>\n\n</think>\n\n"), "");
  EXPECT_EQ(opening_of_content(format, "assistant\n<think>\n"), "\n</think>\n\n");
  EXPECT_EQ(opening_of_content(format, "assistant\n"), "");
}

}  // namespace
}  // namespace motley::server
