#include "serving/forms/chat_format.h"

#include <map>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"

namespace motley::serving {
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
            (ChatFormat{.calls = find_tool_form("hermes"),
                        .reasoning = find_reasoning_form("think"),
                        .lacks_developer = true}));
  EXPECT_EQ(find_chat_format(model_with(corpus("glm4"))),
            (ChatFormat{.calls = find_tool_form("glm4"),
                        .reasoning = find_reasoning_form("think"),
                        .lacks_developer = true}));
  EXPECT_EQ(find_chat_format(model_with(corpus("mixtral"))), ChatFormat{.lacks_developer = true});
}

TEST(ChatFormat, ATemplateWithoutDevelopersTakesThemAsTheSystem) {
  constexpr std::string_view any_role =
      "{% for m in messages %}{{ m.role + m.content }}{% endfor %}";
  EXPECT_FALSE(find_chat_format(model_with(any_role)).lacks_developer);
  EXPECT_TRUE(find_chat_format(model_with(corpus("qwen3"))).lacks_developer);
  const json::Value messages =
      json::parse(R"([{"role": "developer", "content": "a"}, {"content": "b", "role": "user"}])",
                  "x")
          .value();
  EXPECT_EQ(json::write(developer_as_system(messages)),
            R"([{"role":"system","content":"a"},{"content":"b","role":"user"}])");
}

TEST(ChatFormat, HarmonyIsFoundInCallsToFunctions) {
  constexpr std::string_view harmony =
      "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<|start|>assistant"
      "<|channel|>commentary to=functions.{{ c.function.name }} <|constrain|>json<|message|>"
      "{{ c.function.arguments | tojson }}<|call|>{% endfor %}{% else %}<|start|>{{ m.role }}"
      "<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  EXPECT_EQ(find_chat_format(model_with(harmony)), ChatFormat{.calls = find_tool_form("gpt_oss")});
}

TEST(ChatFormat, IsFoundForEveryForm) {
  constexpr std::string_view json_list =
      "{% for c in m.tool_calls %}{% if not loop.first %}, {% endif %}"
      R"({"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}})"
      "{% endfor %}";
  constexpr std::string_view values = "{% for k, v in c.function.arguments.items() %}";
  const auto each = [](std::string_view call) {
    return cat("{% for c in m.tool_calls %}", call, "{% endfor %}");
  };
  const auto deepseek = [&](std::string_view call) {
    return cat("<｜tool▁calls▁begin｜>",
               each(cat("<｜tool▁call▁begin｜>", call, "<｜tool▁call▁end｜>")),
               "<｜tool▁calls▁end｜>");
  };
  const auto invokes = [&](std::string_view mark, std::string_view section, std::string_view more) {
    return cat("<", mark, section, ">\n",
               each(cat("<", mark, "invoke name=\"{{ c.function.name }}\">\n", values, "<", mark,
                        "parameter name=\"{{ k }}\"", more, ">{{ v }}</", mark,
                        "parameter>\n{% endfor %}</", mark, "invoke>\n")),
               "</", mark, section, ">");
  };
  const auto functions = [&](std::string_view tag, std::string_view line) {
    return each(cat("\n<", tag, ">\n<function={{ c.function.name }}>\n", values,
                    "<parameter={{ k }}>", line, "{{ v }}", line,
                    "</parameter>\n{% endfor %}</function>\n</", tag, ">"));
  };
  const auto python = [&](std::string_view before, std::string_view after) {
    return cat(before,
               each(cat("{{ c.function.name }}(", values, "{{ k }}={{ v | tojson }}{% endfor %})")),
               after);
  };
  const std::string json =
      "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}";
  const std::map<std::string_view, std::string> families = {
      {"gpt_oss", each("<|channel|>commentary to=functions.{{ c.function.name }}<|message|>"
                       "{{ c.function.arguments | tojson }}<|call|>")},
      {"hermes", each(cat("\n<tool_call>\n", json, "\n</tool_call>"))},
      {"qwen3_coder", functions("tool_call", "\n")},
      {"seed_oss", functions("seed:tool_call", "")},
      {"glm4", each(cat("\n<tool_call>{{ c.function.name }}\n", values,
                        "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}"
                        "</tool_call>"))},
      {"minimax_m2", invokes("", "minimax:tool_call", "")},
      {"deepseek_v32", invokes("｜DSML｜", "function_calls", " string=\"true\"")},
      {"deepseek_v4", invokes("｜DSML｜", "tool_calls", " string=\"true\"")},
      {"deepseek_v3", deepseek("function<｜tool▁sep｜>{{ c.function.name }}\n```json\n"
                               "{{ c.function.arguments | tojson }}\n```")},
      {"deepseek_v31",
       deepseek("{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments | tojson }}")},
      {"kimi_k2", cat("<|tool_calls_section_begin|>",
                      each("<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
                           "{{ c.function.arguments | tojson }}<|tool_call_end|>"),
                      "<|tool_calls_section_end|>")},
      {"mistral", cat("{% if m.tool_calls[0].id | length != 9 %}{{ raise_exception('nine') }}"
                      "{% endif %}[TOOL_CALLS][",
                      json_list, "]")},
      {"mistral_v11",
       each("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}")},
      {"hunyuan", cat("<tool_calls>[", json_list, "]</tool_calls>")},
      {"granite3", cat("<|tool_call|>[", json_list, "]")},
      {"phi4_mini", cat("functools[", json_list, "]")},
      {"nemotron_v2", cat("<TOOLCALL>[", json_list, "]</TOOLCALL>")},
      {"lfm2", python("<|tool_call_start|>[", "]<|tool_call_end|>")},
      {"olmo3", python("<function_calls>", "</function_calls>")},
      {"llama4_pythonic", python("\n\n[", "]")},
      {"llama3_json", each("\n\n{\"name\": \"{{ c.function.name }}\", \"parameters\": "
                           "{{ c.function.arguments | tojson }}}")},
      {"gemma4", each(cat("<|tool_call>call:{{ c.function.name }}{{ '{' }}", values,
                          "{{ k }}:<|\"|>{{ v }}<|\"|>{% endfor %}{{ '}' }}<tool_call|>"))},
  };
  for (const ToolForm& form : tool_forms()) {
    SCOPED_TRACE(form.name);
    ASSERT_TRUE(families.contains(form.name));
    const ChatFormat found = find_chat_format(
        model_with(cat("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                       "{% if m.tool_calls %}",
                       families.at(form.name), "{% endif %}<|im_end|>\n{% endfor %}")));
    EXPECT_EQ(found.calls, &form) << (found.calls == nullptr ? "none" : found.calls->name);
  }
}

TEST(ChatFormat, OfGlmIsFoundWithLineEndsAndWithout) {
  // As GLM-4.7 writes what GLM-4.5 writes on lines of their own.
  const ChatFormat found = find_chat_format(model_with(
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}"
      "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
      "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
      "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>"
      "<arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>{% endfor %}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{{ '</think>' if enable_thinking is defined and "
      "not enable_thinking else '<think>' }}{% endif %}"));
  EXPECT_EQ(found.calls, find_tool_form("glm4"));
  EXPECT_EQ(found.reasoning, find_reasoning_form("think"));
}

TEST(ChatFormat, IsFoundWhereATemplateOnlyExplainsCalls) {
  const ChatFormat found = find_chat_format(model_with(
      "{% if tools %}Call {{ tools | tojson }} as <tool_call>{...}</tool_call>.\n{% endif %}"
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"));
  EXPECT_EQ(found.calls, find_tool_form("hermes"));
}

TEST(ChatFormat, TemplateThatWritesNoAnswerMarksNothing) {
  EXPECT_EQ(find_chat_format(model_with("{{ raise_exception('no') }}")), ChatFormat{});
}

TEST(ChatFormat, PromptSaysWhereTheAnswerBegins) {
  const ChatFormat format{.reasoning = find_reasoning_form("think")};
  const auto reasoning_of = [&](std::string_view prompt) {
    const auto parser = make_output_parser(format, prompt, {});
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
}  // namespace motley::serving
