// What users say stays marked, whatever a template does with it.

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "templates/render.h"

namespace motley::text {
namespace {

namespace fs = std::filesystem;

// Characters of these blocks are in what users say, and nowhere else.
constexpr std::string_view sentinel = "ᚠ";  // U+16A0, with U+16A1 ...
bool is_sentinel(std::string_view text, std::size_t at) {
  return at + 2 < text.size() && text[at] == '\xE1' &&
         (text[at + 1] == '\x9A' || text[at + 1] == '\x9B');
}

void expect_marked(const MarkedText& rendered, std::string_view what) {
  for (std::size_t at = 0; at + 2 < rendered.text.size(); ++at) {
    if (!is_sentinel(rendered.text, at)) continue;
    ASSERT_TRUE(rendered.any_untrusted(at, at + 1) && rendered.any_untrusted(at + 2, at + 3))
        << what << "\nbyte " << at << " of " << rendered.text;
  }
}

// The bytes that are untrusted, each run in brackets.
std::string marked(std::string_view source) {
  const auto rendered = render(
      source, json_of(R"({"s": "Said", "n": 5, "d": {"k": "v"}, "l": ["a", "b"], "e": ""})"));
  if (!rendered.ok()) return rendered.error().message();
  std::string shown;
  std::size_t at = 0;
  for (const Span span : rendered->untrusted) {
    shown += cat(rendered->text.substr(at, span.begin - at), "[",
                 rendered->text.substr(span.begin, span.end - span.begin), "]");
    at = span.end;
  }
  return shown + rendered->text.substr(at);
}

TEST(Marking, FollowsTheBytes) {
  EXPECT_EQ(marked("a{{ s }}b"), "a[Said]b");
  EXPECT_EQ(marked("{{ 'a' + s + 'b' }}"), "a[Said]b");
  EXPECT_EQ(marked("{{ 'a' ~ s ~ n }}"), "a[Said]5");
  EXPECT_EQ(marked("{{ s[1:3] }}{{ s[0] }}{{ s[::-1] }}"), "[aiSdiaS]");
  EXPECT_EQ(marked("{{ ('x' ~ s)[::2] }}"), "x[ad]");
  EXPECT_EQ(marked("{{ s | upper }}{{ s.lower() }}{{ s | title }}"), "[SAIDsaidSaid]");
  EXPECT_EQ(marked("{{ ('ab ' ~ s ~ ' c') | upper | trim }}"), "AB [SAID] C");
  EXPECT_EQ(marked("{{ s.replace('a', 'xy') }}"), "[S]xy[id]");
  EXPECT_EQ(marked("{{ 'a-b'.replace('-', s) }}"), "a[Said]b");
  EXPECT_EQ(marked("{{ s.split('i') | join('+') }}"), "[Sa]+[d]");
  EXPECT_EQ(marked("{{ l | join(', ') }}{{ l }}"), "[a], [b][['a'], ['b']]");
  EXPECT_EQ(marked("{{ '%s|%6s' % (s, s) }}"), "[Said]|  [Said]");
  EXPECT_EQ(marked("{{ '{}{:>6}'.format(s, s) }}"), "[Said]  [Said]");
  EXPECT_EQ(marked("{{ d | tojson }}"), "{[\"k\"]: [\"v\"]}");
  EXPECT_EQ(marked("{{ {'t': s} | tojson(indent=1) }}"), "{\n \"t\": [\"Said\"]\n}");
  EXPECT_EQ(marked("{{ s | e }}{{ ('<' ~ s) | e }}"), "[Said]&lt;[Said]");
  EXPECT_EQ(marked("{% set x %}a{{ s }}{% endset %}{{ x | trim }}"), "a[Said]");
  EXPECT_EQ(marked("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(s) }}"), "<[Said]>");
  EXPECT_EQ(marked("{% filter upper %}a{{ s }}{% endfilter %}"), "A[SAID]");
  EXPECT_EQ(marked("{% for c in s %}{{ c }}.{% endfor %}"), "[S].[a].[i].[d].");
  EXPECT_EQ(marked("{{ s | indent(2, true) }}{{ s | truncate(3, true, '…', 0) }}"), "  [SaidSa]…");
  EXPECT_EQ(marked("{{ n }}{{ e }}{{ s | length }}"), "54");
  EXPECT_EQ(marked("{% for k in d %}{{ k }}={{ d[k] }}{% endfor %}"), "[k]=[v]");
  EXPECT_EQ(marked("{{ strftime_now(s) }}"), "[Said]");
}

TEST(Marking, DoesNotChangeWhatIsEqual) {
  EXPECT_EQ(marked("{{ s == 'Said' }}{{ 'Said' in [s] }}{{ {'Said': 1}[s] }}{{ {s: 1}['Said'] }}{{ "
                   "s < 'Saie' }}"),
            "TrueTrue11True");
  EXPECT_EQ(marked("{{ [s, 'Said'] | unique | list | length }}"), "1");
}

TEST(Marking, MarksMadeOfARoleAreTheTemplatesOwn) {
  const auto compiled = ChatTemplate::compile(
      "{% for m in messages %}{{ '<|' + m.role + '|>' ~ m.content }}{% endfor %}", "roles");
  ASSERT_TRUE(compiled.ok());
  ChatInputs inputs;
  inputs.messages = json_of(R"([{"role": "user", "content": "user"},
                                {"role": "im_end", "content": ""}])");
  const MarkedText text = compiled->render(inputs).value();
  EXPECT_EQ(text.text, "<|user|>user<|im_end|>");
  EXPECT_EQ(text.untrusted, (std::vector<Span>{{8, 12}, {14, 20}}));
}

// Strings of random pieces: sentinels, special tokens, white space, what templates look for.
class Speaker {
 public:
  explicit Speaker(unsigned seed) : random_(seed) {}

  std::string say() {
    static const std::string pieces[] = {"<|im_end|>",
                                         "<|im_start|>",
                                         "</think>",
                                         "<think>",
                                         "\n",
                                         " ",
                                         "<tool_response>",
                                         "</tool_response>",
                                         "[INST]",
                                         "</s>",
                                         "<｜User｜>",
                                         "\"",
                                         "'",
                                         "\\",
                                         "{{",
                                         "%}",
                                         "<",
                                         "&",
                                         "é",
                                         "x",
                                         "/nothink",
                                         "\t"};
    std::string text;
    for (std::size_t i = below(8); i > 0; --i) {
      // U+16A0 to U+16BF, so that no two neighbours are alike.
      if (below(2) == 0)
        text += cat("\xE1\x9A", std::string(1, static_cast<char>(0xA0 + below(32))));
      else
        text += pieces[below(std::size(pieces))];
    }
    return text;
  }

  json::Value conversation() {
    json::Array messages;
    if (below(2) == 0) messages.push_back(message("system"));
    for (std::size_t turns = 1 + below(3); turns > 0; --turns) {
      messages.push_back(message("user"));
      if (below(3) == 0) {
        messages.push_back(call());
        messages.push_back(message("tool"));
      }
      messages.push_back(message("assistant"));
    }
    messages.push_back(message("user"));
    return json::Value(std::move(messages));
  }

  json::Value tools() {
    json::Object property;
    property.add("type", "string");
    property.add("description", say());
    json::Object properties;
    properties.add(cat(sentinel, say()), std::move(property));
    json::Object parameters;
    parameters.add("type", "object");
    parameters.add("properties", std::move(properties));
    json::Object function;
    function.add("name", cat(sentinel, say()));
    function.add("description", say());
    function.add("parameters", std::move(parameters));
    json::Object tool;
    tool.add("type", "function");
    tool.add("function", std::move(function));
    return json::Value(json::Array{json::Value(std::move(tool))});
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  json::Value message(const char* role) {
    json::Object made;
    made.add("role", role);
    made.add("content", say());
    if (below(3) == 0) made.add("reasoning_content", say());
    return json::Value(std::move(made));
  }

  json::Value call() {
    json::Object arguments;
    arguments.add(cat(sentinel, say()), say());
    arguments.add("number", static_cast<std::int64_t>(below(100)));
    json::Object function;
    function.add("name", cat(sentinel, say()));
    if (below(2) == 0)
      function.add("arguments", json::write(json::Value(std::move(arguments))));
    else
      function.add("arguments", std::move(arguments));
    json::Object tool_call;
    tool_call.add("id", "abcdef123");
    tool_call.add("type", "function");
    tool_call.add("function", std::move(function));
    json::Object made;
    made.add("role", "assistant");
    made.add("content", nullptr);
    made.add("tool_calls", json::Array{json::Value(std::move(tool_call))});
    return json::Value(std::move(made));
  }

  std::mt19937 random_;
};

class MarkingOfShapes : public testing::TestWithParam<const char*> {};

TEST_P(MarkingOfShapes, NeverLosesWhatUsersSay) {
  const fs::path path = fs::path(MOTLEY_TEMPLATES) / "shapes" / cat(GetParam(), ".jinja");
  const auto compiled = ChatTemplate::compile(read_text(path, 1'000'000).value(), GetParam());
  ASSERT_TRUE(compiled.ok()) << compiled.error().message();
  Speaker speaker(7);
  int rendered = 0;
  for (int i = 0; i < 300; ++i) {
    ChatInputs inputs;
    inputs.messages = speaker.conversation();
    if (speaker.below(2) == 0) inputs.tools = speaker.tools();
    inputs.kwargs.add("model_identity", speaker.say());
    inputs.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    const auto text = compiled->render(inputs);
    if (!text.ok()) continue;
    expect_marked(*text, json::write(inputs.messages));
    ++rendered;
  }
  EXPECT_GT(rendered, 60);
}

INSTANTIATE_TEST_SUITE_P(All, MarkingOfShapes,
                         testing::Values("deepseek_v3", "gemma3n", "glm4", "gpt_oss", "kimi_k2",
                                         "lfm2", "llama3", "mixtral", "parts_only", "qwen3",
                                         "qwen3_5"));

}  // namespace
}  // namespace motley::text
