// What is done to messages before a template sees them.

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "templates/render.h"
#include "text/chat/chat_template.h"

namespace motley::text {
namespace {

ChatInputs conversation(std::string_view messages) {
  ChatInputs inputs;
  inputs.messages = json_of(messages);
  inputs.now = golden_time();
  return inputs;
}

ChatTemplate compile(std::string_view source) {
  auto compiled = ChatTemplate::compile(source, "chat_template.jinja");
  MOTLEY_CHECK(compiled.ok(), compiled.error().message());
  return std::move(compiled).value();
}

std::string rendered(std::string_view source, const ChatInputs& inputs) {
  const auto text = compile(source).render(inputs);
  return text.ok() ? text->text : text.error().message();
}

constexpr std::string_view prints_content = "{% for m in messages %}[{{ m.content }}]{% endfor %}";

TEST(Messages, NullContentIsEmpty) {
  EXPECT_EQ(rendered("{% for m in messages %}{{ m.content + '.' }}{% endfor %}",
                     conversation(R"([{"role": "assistant", "content": null, "tool_calls": []}])")),
            ".");
}

TEST(Messages, ContentLeftOutBesideCallsIsAsNull) {
  constexpr std::string_view calls =
      R"("tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}])";
  const ChatInputs left_out = conversation(cat(R"([{"role": "assistant", )", calls, "}]"));
  const ChatInputs null =
      conversation(cat(R"([{"role": "assistant", "content": null, )", calls, "}]"));
  for (const std::string_view source :
       {"{% for m in messages %}{{ m.content + '.' }}{% endfor %}",
        "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }}"
        "{% endif %}{% endfor %}"}) {
    EXPECT_EQ(rendered(source, left_out), rendered(source, null)) << source;
  }
  EXPECT_EQ(rendered("{% for m in messages %}{{ m.content + '.' }}{% endfor %}", left_out), ".");
}

TEST(Messages, NullContentStaysWhereATemplateLooksForCallsBesideIt) {
  constexpr std::string_view source =
      "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}{{ "
      "c.function.name ~ c.function.arguments }}"
      "{% endfor %}{% elif m.content %}{{ m.content }}{% endif %}{% endfor %}";
  const ChatTemplate compiled = compile(source);
  EXPECT_TRUE(compiled.habits().wants_null_content);
  EXPECT_TRUE(compiled.habits().wants_argument_strings);
}

TEST(Messages, TextPartsAreJoinedForTemplatesThatDoNotWalkThem) {
  constexpr std::string_view parts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  EXPECT_EQ(rendered(prints_content, conversation(parts)), "[ab]");
  EXPECT_EQ(
      rendered(
          "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}",
          conversation(parts)),
      "a;b;");
  EXPECT_EQ(rendered("{% for m in messages %}{{ 'x' if m.content is string else 'y' }}{% endfor %}",
                     conversation(parts)),
            "x");
}

TEST(Messages, EachRoleHasAFormOfContent) {
  constexpr std::string_view parts =
      R"([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}])";
  const ChatInputs of_parts =
      conversation(std::string(R"([{"role": "system", "content": )") + std::string(parts) +
                   R"(}, {"role": "user", "content": )" + std::string(parts) +
                   R"(}, {"role": "assistant", "content": )" + std::string(parts) + "}]");
  const ChatInputs of_text = conversation(
      R"([{"role": "system", "content": "a b"}, {"role": "user", "content": "a b"},
          {"role": "assistant", "content": "a b"}])");
  // As LFM2: what is no string goes out as JSON, but the system's content is concatenated.
  constexpr std::string_view concatenates =
      "{% for m in messages %}{% if m.role == 'system' %}{{ '[' + m.content + ']' }}{% else %}"
      "{{ m.content if m.content is string else m.content | tojson }};{% endif %}{% endfor %}";
  // Walks through the user's parts, reads the system's first, concatenates the assistant's.
  constexpr std::string_view mixes =
      "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}<{{ p.text }}>"
      "{% endfor %}{% elif m.role == 'system' %}{{ m.content[0].text }};{% else %}"
      "{{ m.content + ';' }}{% endif %}{% endfor %}";
  EXPECT_EQ(rendered(concatenates, of_parts), "[a b]a b;a b;");
  EXPECT_EQ(rendered(concatenates, of_text), "[a b]a b;a b;");
  EXPECT_EQ(rendered(mixes, of_parts), "a b;<a ><b>a b;");
  EXPECT_EQ(rendered(mixes, of_text), "a b;<a b>a b;");
  const TemplateHabits::ContentForms forms = compile(mixes).habits().content;
  EXPECT_EQ(forms.of("developer"), ContentForm::one_part);
  EXPECT_EQ(forms.of("user"), ContentForm::parts);
  EXPECT_EQ(forms.of("assistant"), ContentForm::text);
}

TEST(Messages, NullStaysWhereATemplateWithoutCallsRefusesItInItsOwnWords) {
  constexpr std::string_view refuses =
      "{% for m in messages %}{{ m.content if m.content is string else "
      "raise_exception('Invalid content') }};{% endfor %}";
  const ChatInputs call = conversation(
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": null,
          "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}])");
  EXPECT_EQ(compile(refuses).render(call).error().what(), "Invalid content");
  EXPECT_EQ(rendered(refuses, conversation(R"([{"role": "assistant", "content": null}])")), ";");
  // Python's complaint about null is none of the template's.
  EXPECT_EQ(rendered("{% for m in messages %}{{ m.content + ';' }}{% endfor %}", call), "q;;");
}

TEST(Messages, IntegersBeyond64BitsKeepTheirDigits) {
  constexpr std::string_view source =
      "{% for c in messages[0].tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson "
      "}}{% for k, v in c.function.arguments.items() %}{{ v }};{% endfor %}{% endfor %}{{ tools | "
      "tojson }}{{ documents }}{{ seed }}";
  for (const std::string_view arguments : {R"({"id": 12345678901234567890, "x": 0.10})",
                                           R"("{\"id\": 12345678901234567890, \"x\": 0.10}")"}) {
    ChatInputs inputs = conversation(
        std::string(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", )") +
        R"("arguments": )" + std::string(arguments) + "}}]}]");
    inputs.tools = json_of(R"([{"maximum": 98765432109876543210}])");
    inputs.documents = json_of(R"([{"n": -98765432109876543210}])");
    inputs.kwargs.add("seed", json_of("18446744073709551615"));
    EXPECT_EQ(rendered(source, inputs),
              R"(f{"id": 12345678901234567890, "x": 0.1}12345678901234567890;0.1;)"
              R"([{"maximum": 98765432109876543210}][{'n': -98765432109876543210}])"
              "18446744073709551615");
  }
}

TEST(Messages, PartsThatAreNoTextAreRefused) {
  EXPECT_EQ(
      rendered(prints_content,
               conversation(R"([{"role": "user", "content": [{"type": "image_url"}]}])")),
      "a content part of type 'image_url' (messages[0].content): only parts of text are taken");
  EXPECT_EQ(rendered(prints_content, conversation(R"([{"role": "user", "content": [5]}])")),
            "a content part that is no object (messages[0].content): send {\"type\": \"text\", "
            "\"text\": ...}");
}

TEST(Messages, ArgumentsComeAsTheTemplateWantsThem) {
  const ChatInputs as_text = conversation(
      R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1.0, \"b\": [null]}"}}]}])");
  const ChatInputs as_mapping = conversation(
      R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.0, "b": [null]}}}]}])");
  constexpr std::string_view concatenates =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name + "
      "c.function.arguments }}{% endfor %}{% endfor %}";
  constexpr std::string_view walks =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in "
      "c.function.arguments.items() %}"
      "{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}";
  constexpr std::string_view prints =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ "
      "c.function.arguments }}{% endfor %}{% endfor %}";
  constexpr std::string_view dumps =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ "
      "c.function.arguments | tojson }}{% endfor %}{% endfor %}";
  // What a model writes twice comes back from its client.
  const ChatInputs twice = conversation(
      R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1, \"a\": 2}"}}]}])");
  EXPECT_EQ(rendered(walks, twice), "fa=2;");
  for (const ChatInputs& inputs : {as_text, as_mapping}) {
    EXPECT_EQ(rendered(concatenates, inputs), R"(f{"a": 1.0, "b": [null]})");
    EXPECT_EQ(rendered(prints, inputs), R"(f{"a": 1.0, "b": [null]})");
    EXPECT_EQ(rendered(dumps, inputs), R"(f{"a": 1.0, "b": [null]})");
    EXPECT_EQ(rendered(walks, inputs), "fa=1.0;b=[None];");
  }
}

TEST(Messages, ArgumentsThatAreNoObjectStayText) {
  constexpr std::string_view dumps =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ "
      "c.function.arguments | tojson }}{% endfor %}{% endfor %}";
  const auto with = [](std::string_view arguments) {
    return conversation(
        std::string(
            R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )") +
        std::string(arguments) + "}}]}]");
  };
  EXPECT_EQ(rendered(dumps, with(R"("{broken")")), R"(f"{broken")");
  EXPECT_EQ(rendered(dumps, with(R"("")")), "f{}");
  EXPECT_EQ(rendered(dumps, with("null")), "fnull");
}

// Its probe passes with mappings; this call has what only text survives.
TEST(Messages, TheOtherFormIsTriedWhereOneFails) {
  constexpr std::string_view source =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
      "{% if c.function.arguments is mapping and 'bad' in c.function.arguments %}{{ "
      "raise_exception('no') }}{% endif %}"
      "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | "
      "tojson }}{% endfor %}{% endfor %}";
  EXPECT_EQ(
      rendered(
          source,
          conversation(
              R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"bad": 1}}}]}])")),
      R"(f{"bad": 1})");
}

TEST(Messages, ReasoningIsThereUnderBothNames) {
  constexpr std::string_view source =
      "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m | list }}{% endfor "
      "%}";
  EXPECT_EQ(rendered(source, conversation(R"([{"role": "assistant", "thinking": "t"}])")),
            "t|t|['thinking', 'role', 'reasoning_content']");
  EXPECT_EQ(rendered(source, conversation(
                                 R"([{"role": "assistant", "reasoning": "r", "thinking": null}])")),
            "r|None|['thinking', 'role', 'reasoning', 'reasoning_content']");
  EXPECT_EQ(rendered(source,
                     conversation(
                         R"([{"role": "assistant", "reasoning_content": "a", "thinking": "b"}])")),
            "a|b|['thinking', 'role', 'reasoning_content']");
}

TEST(Messages, AbsentToolsAndDocumentsAreNone) {
  EXPECT_EQ(rendered("{{ tools }}{{ documents }}{{ tools is defined }}", conversation("[]")),
            "NoneNoneTrue");
}

TEST(Messages, WhatIsNoConversationIsRefused) {
  EXPECT_EQ(rendered("", conversation("{}")),
            "an object instead of a list (messages): send a list of objects");
  EXPECT_EQ(rendered("", conversation(R"([{"role": "user"}, "x"])")),
            "str instead of an object (messages[1]): send an object with role and content");
}

TEST(Messages, ArgumentsOfTheTemplateAreVariablesButNotItsInputs) {
  ChatInputs inputs = conversation("[]");
  inputs.kwargs.add("enable_thinking", false);
  inputs.special_tokens.emplace_back("bos_token", "<s>");
  EXPECT_EQ(rendered("{{ bos_token }}{{ enable_thinking }}", inputs), "<s>False");
  inputs.kwargs.add("messages", 1);
  EXPECT_EQ(rendered("", inputs),
            "an argument of the template named 'messages' (chat_template_kwargs)");
}

TEST(Messages, SpecialTokensAreTrustedAndArgumentsAreNot) {
  ChatInputs inputs = conversation("[]");
  inputs.special_tokens.emplace_back("bos_token", "<s>");
  inputs.kwargs.add("x", "<s>");
  const auto text = compile("{{ bos_token }}{{ x }}").render(inputs);
  EXPECT_EQ(text->untrusted, (std::vector<Span>{{3, 6}}));
}

TEST(Messages, ManyThreadsRenderOneTemplate) {
  const ChatTemplate compiled = compile(
      "{% set l = [1] %}{% set _ = l.append(2) %}{% for m in messages %}{{ m.content | upper }}{{ "
      "l }}{% endfor %}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(8);
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i)
        text = compiled.render(conversation(R"([{"role": "user", "content": "é"}])"))->text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "É[1, 2]");
}

}  // namespace
}  // namespace motley::text
