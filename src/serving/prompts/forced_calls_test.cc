#include "serving/prompts/forced_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "grammar/check/check.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace motley::serving {
namespace {

using ::testing::ElementsAre;

CallPiece call(std::string_view name, std::string_view arguments) {
  return {.begins = true, .name = std::string(name), .arguments = std::string(arguments)};
}

std::string qwen_file() {
  return read_text(MOTLEY_TOKENIZERS "/qwen2/tokenizer.json", 100'000'000).value();
}
text::Tokenizer qwen_tokenizer() {
  return text::Tokenizer::parse(qwen_file(), "tokenizer.json").value();
}
// With two special tokens renamed to these marks.
text::Tokenizer tokenizer_with(std::string_view first, std::string_view second) {
  std::string file = qwen_file();
  const auto rename = [&](std::string_view from, std::string_view to) {
    const std::size_t at = file.find(from);
    ASSERT_NE(at, std::string::npos);
    file.replace(at, from.size(), to);
  };
  rename("<|im_start|>", first);
  rename("<|im_end|>", second);
  return text::Tokenizer::parse(file, "tokenizer.json").value();
}
// With tags that are special tokens.
text::Tokenizer tokenizer_of_special_tags() {
  std::string file = qwen_file();
  for (const std::string_view tag : {"\"<tool_call>\"", "\"</tool_call>\""}) {
    constexpr std::string_view plain = "\"special\":false";
    const std::size_t at = file.find(plain, file.find(tag));
    EXPECT_NE(at, std::string::npos);
    file.replace(at, plain.size(), "\"special\":true");
  }
  return text::Tokenizer::parse(file, "tokenizer.json").value();
}
text::Tokenizer harmony_tokenizer() { return tokenizer_with("<|constrain|>", "<|message|>"); }

// With a vocabulary of bytes.
bool takes(const grammar::Spec& spec, std::string_view text) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  const auto vocabulary =
      grammar::Vocabulary::create({.bytes = bytes, .width = 257, .end_ids = {256}}).value();
  const auto grammar = grammar::Grammar::compile(spec, vocabulary);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message() << spec.text;
  if (!grammar.ok()) return false;
  grammar::Position state(*grammar, {});
  for (const char byte : text)
    if (!state.accept(static_cast<unsigned char>(byte))) return false;
  return state.may_end();
}

ChatRequest request_with(ToolUse use, std::string_view tools) {
  ChatRequest request{.tool_use = use};
  request.inputs.messages = json::parse(R"([{"role": "user", "content": "x"}])", "test").value();
  request.inputs.tools = json::parse(tools, "test").value();
  return request;
}

using Form = std::optional<grammar::Spec>;

struct Options {
  bool parallel = true;
  bool strict = false;
  text::Tokenizer tokenizer = qwen_tokenizer();
  Form form = {};  // of an answer without calls
};

// Answers that must, or may, call one of two functions; one that is named is `find`.
class Forced {
 public:
  Forced(const ChatFormat& format, ToolUse use, Options options = {})
      : format_(format),
        tokenizer_(std::move(options.tokenizer)),
        special_(special_tokens(tokenizer_)),
        request_(request_with(use, cat(R"([
      {"type": "function", "function": {"name": "find", "strict": )",
                                       options.strict ? "true" : "false",
                                       R"(, "parameters": {"type": "object",
        "properties": {"what": {"$ref": "#/$defs/text"}, "most": {"type": "integer"}},
        "required": ["what"], "additionalProperties": false,
        "$defs": {"text": {"type": "string", "maxLength": 9}}}}},
      {"type": "function", "function": {"name": "stop", "parameters": {"type": "object",
        "properties": {}, "additionalProperties": false}}}])"))) {
    if (use == ToolUse::one_named) request_.tool_name = "find";
    request_.parallel_calls = options.parallel;
    GenerationSettings settings;
    settings.sampling.grammar = std::move(options.form);
    constexpr std::string_view prompt = "<|im_start|>assistant\n<think>\n";
    if (request_.must_call())
      calls_ = force_calls(request_, format_, special_, prompt);
    else if (auto either = calls_or_form(request_, settings, format_, special_, prompt).value())
      calls_ = *std::move(either);
    else
      calls_.grammar = strict_calls(request_, format_, special_).value_or(grammar::Spec{});
    const auto checked = grammar::check(calls_.grammar);
    EXPECT_TRUE(checked.ok()) << checked.error().message();
  }

  const std::string& opening() const { return calls_.opening; }
  const grammar::Spec& grammar() const { return calls_.grammar; }

  bool takes(std::string_view text) const { return serving::takes(calls_.grammar, text); }

  // The same with the model's tokens, including special ones.
  bool takes_tokens(std::string_view text) const {
    const auto ids = tokenizer_.encode(text, {.add_special_tokens = false}).value();
    const auto vocabulary =
        grammar::Vocabulary::create(grammar::grammar_tokens(tokenizer_, tokenizer_.size(), {}))
            .value();
    const auto grammar = grammar::Grammar::compile(calls_.grammar, vocabulary);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message() << calls_.grammar.text;
    if (!grammar.ok()) return false;
    grammar::Position state(*grammar, {});
    std::vector<std::uint32_t> mask((static_cast<std::size_t>(tokenizer_.size()) + 31) / 32);
    for (const std::int32_t id : ids) {
      state.fill_mask(mask);
      const bool may = ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32)) & 1U) != 0;
      EXPECT_EQ(state.accept(id), may) << "mask and state agree at " << tokenizer_.bytes_of(id);
      if (!may) return false;
    }
    return state.may_end();
  }

  std::vector<CallPiece> read(std::string_view text) const {
    ParsedOutput output = parse(text);
    EXPECT_EQ(output.content, "");
    return output.calls;
  }
  ParsedOutput parse(std::string_view text) const {
    const auto parser = make_forced_parser(calls_, request_, format_);
    ParsedOutput output = parser->push(text);
    output.append(parser->finish());
    return output;
  }

 private:
  ChatFormat format_;
  text::Tokenizer tokenizer_;
  std::vector<SpecialToken> special_;
  ChatRequest request_;
  ForcedCalls calls_;
};

constexpr ToolUse by_name = ToolUse::one_named;
constexpr ToolUse required = ToolUse::some;
constexpr ToolUse may_call = ToolUse::free;

TEST(ForcedCalls, InJson) {
  const ChatFormat format{.calls = find_tool_form("hermes"),
                          .reasoning = find_reasoning_form("think")};
  const Forced named(format, by_name);
  EXPECT_EQ(named.opening(), "\n</think>\n\n<tool_call>\n{\"name\": \"find\", \"arguments\": ");
  EXPECT_TRUE(named.takes(R"({"what": "x"})"));
  EXPECT_FALSE(named.takes(R"({"most": 3})"));
  EXPECT_THAT(named.read(R"({"what": "x"})"), ElementsAre(call("find", R"({"what": "x"})")));

  const std::string one =
      "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"what\": \"x\", \"most\": "
      "3}}\n</tool_call>";
  const std::string other = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  const Forced any(format, required);
  EXPECT_EQ(any.opening(), "\n</think>\n\n");
  EXPECT_TRUE(any.takes(one));
  EXPECT_TRUE(any.takes(cat(one, "\n", other)));
  EXPECT_FALSE(any.takes(""));
  EXPECT_FALSE(any.takes("Well. " + one));
  EXPECT_THAT(any.read(cat(one, "\n", other)),
              ElementsAre(call("find", R"({"what": "x", "most": 3})"), call("stop", "{}")));
  EXPECT_FALSE(Forced(format, required, {.parallel = false}).takes(cat(one, "\n", other)));
}

TEST(ForcedCalls, InTags) {
  const ChatFormat format{.calls = find_tool_form("glm4")};
  const std::string pairs =
      "<arg_key>what</arg_key>\n<arg_value>x</arg_value>\n"
      "<arg_key>most</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  const Forced named(format, by_name);
  EXPECT_EQ(named.opening(), "<tool_call>find\n");
  EXPECT_TRUE(named.takes(pairs));
  EXPECT_THAT(named.read(pairs), ElementsAre(call("find", R"({"what":"x","most":3})")));
  const Forced any(format, required);
  EXPECT_TRUE(any.takes("<tool_call>find\n" + pairs));
  EXPECT_THAT(any.read("<tool_call>find\n" + pairs),
              ElementsAre(call("find", R"({"what":"x","most":3})")));
}

TEST(ForcedCalls, AsParameters) {
  const ChatFormat format{.calls = find_tool_form("qwen3_coder")};
  const std::string pairs =
      "<parameter=what>\nx\n</parameter>\n<parameter=most>\n3\n</parameter>\n</function>\n"
      "</tool_call>";
  const Forced named(format, by_name);
  EXPECT_EQ(named.opening(), "<tool_call>\n<function=find>\n");
  EXPECT_TRUE(named.takes(pairs));
  EXPECT_THAT(named.read(pairs), ElementsAre(call("find", R"({"what":"x","most":3})")));
  EXPECT_TRUE(Forced(format, required).takes("<tool_call>\n<function=find>\n" + pairs));
}

TEST(StrictCalls, FollowTheirSchemasInTextThatIsFree) {
  const ChatFormat format{.calls = find_tool_form("hermes"),
                          .reasoning = find_reasoning_form("think")};
  const Forced strict(format, may_call, {.strict = true});
  const auto call_with = [](std::string_view arguments) {
    return cat("<tool_call>\n{\"name\": \"find\", \"arguments\": ", arguments, "}\n</tool_call>");
  };
  const std::string good = call_with(R"({"what": "x"})");
  EXPECT_TRUE(strict.takes("<think>\nHm <tool\n</think>\n\nNo call."));
  EXPECT_TRUE(strict.takes(cat("Well.\n", good, "\n", good)));
  EXPECT_FALSE(strict.takes(call_with(R"({"most": "x"})")));
  EXPECT_FALSE(strict.takes("<tool_call>find</tool_call>"));
  EXPECT_TRUE(strict.takes_tokens("Well.<|im_start|>")) << "free, as without a grammar";
  EXPECT_FALSE(
      Forced(format, may_call, {.parallel = false, .strict = true}).takes(cat(good, "\n", good)));
  // It was not requested, or no grammar can express the form.
  EXPECT_EQ(Forced(format, may_call).grammar(), grammar::Spec{});
  EXPECT_EQ(Forced({.calls = find_tool_form("gpt_oss")}, may_call, {.strict = true}).grammar(),
            grammar::Spec{});
}

TEST(ForcedCalls, InHarmony) {
  const Forced any({.calls = find_tool_form("gpt_oss")}, required,
                   {.tokenizer = harmony_tokenizer()});
  EXPECT_EQ(any.opening(), "<|channel|>commentary to=functions.");
  const std::string_view found = R"(find <|constrain|>json<|message|>{"what": "x"})";
  EXPECT_TRUE(any.takes_tokens(found));
  EXPECT_TRUE(any.takes_tokens("stop <|constrain|>json<|message|>{}"));
  EXPECT_FALSE(any.takes_tokens("lose <|constrain|>json<|message|>{}"));
  EXPECT_FALSE(any.takes_tokens("find json<|message|>{}"));
  EXPECT_FALSE(any.takes_tokens(R"(find <|constrain|>json<|message|>{"what": "<|message|>"})"))
      << "what a grammar says of text never leads to a special token";
  EXPECT_THAT(any.read(found), ElementsAre(call("find", R"({"what": "x"})")));
}

TEST(ForcedCalls, OfAFunctionWithoutParametersHaveNone) {
  for (const std::string_view parameters :
       {"", R"(, "parameters": null)", R"(, "parameters": {})",
        R"(, "parameters": {"type": "object", "properties": {}})"}) {
    const ChatRequest request = request_with(
        required, cat(R"([{"type": "function", "function": {"name": "now")", parameters, "}}]"));
    const ChatFormat format{.calls = find_tool_form("hermes")};
    const text::Tokenizer tokenizer = qwen_tokenizer();
    const ForcedCalls forced = force_calls(request, format, special_tokens(tokenizer), "");
    EXPECT_TRUE(
        takes(forced.grammar, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"))
        << parameters;
    for (const std::string_view other : {R"({"a": 1})", R"("x")", "[]", "3"})
      EXPECT_FALSE(takes(forced.grammar, cat("<tool_call>\n{\"name\": \"now\", \"arguments\": ",
                                             other, "}\n</tool_call>")))
          << parameters << other;
  }
}

// {"good": true} or {"good": false}
Form verdict_form() {
  return grammar::Spec{.kind = grammar::Spec::Kind::json_schema, .text = R"({"type": "object",
      "properties": {"good": {"type": "boolean"}}, "required": ["good"],
      "additionalProperties": false})"};
}

TEST(CallsOrForm, LetTheModelChoose) {
  const ChatFormat format{.calls = find_tool_form("hermes"),
                          .reasoning = find_reasoning_form("think")};
  const std::string call_text =
      "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"what\": \"x\"}}\n</tool_call>";
  const Forced either(format, may_call, {.form = verdict_form()});
  EXPECT_EQ(either.opening(), "\n</think>\n\n");
  EXPECT_TRUE(either.takes(R"({"good": true})"));
  EXPECT_TRUE(either.takes(call_text));
  EXPECT_TRUE(either.takes(cat(call_text, "\n", call_text)));
  EXPECT_FALSE(either.takes(R"({"bad": true})"));
  EXPECT_FALSE(either.takes("Well."));
  EXPECT_EQ(either.parse(R"({"good": true})").content, R"({"good": true})");
  EXPECT_THAT(either.read(call_text), ElementsAre(call("find", R"({"what": "x"})")));
  using enum grammar::Spec::Kind;
  for (const auto& [form, text] : std::initializer_list<std::pair<grammar::Spec, std::string>>{
           {{.kind = json_object}, R"({"any": [1]})"},
           {{.kind = regex, .text = "ab+"}, "abb"},
           {{.kind = ebnf, .text = R"(root ::= "yes" | "no")"}, "no"}}) {
    const Forced other(format, may_call, {.form = form});
    EXPECT_TRUE(other.takes(text)) << form.text;
    EXPECT_TRUE(other.takes(call_text)) << form.text;
    EXPECT_FALSE(other.takes("Well.")) << form.text;
  }
}

TEST(CallsOrForm, LetItChooseInHarmony) {
  const Forced either({.calls = find_tool_form("gpt_oss")}, may_call,
                      {.tokenizer = harmony_tokenizer(), .form = verdict_form()});
  EXPECT_EQ(either.opening(), "<|channel|>");
  const std::string_view found =
      R"(commentary to=functions.find <|constrain|>json<|message|>{"what": "x"})";
  EXPECT_TRUE(either.takes_tokens(R"(final<|message|>{"good": true})"));
  EXPECT_TRUE(either.takes_tokens(found));
  EXPECT_FALSE(either.takes_tokens("final<|message|>Well."));
  EXPECT_EQ(either.parse(R"(final<|message|>{"good": true})").content, R"({"good": true})");
  EXPECT_THAT(either.read(found), ElementsAre(call("find", R"({"what": "x"})")));
}

// A call of find and one of stop, as a model writes them.
constexpr std::string_view find_object = R"({"name": "find", "arguments": {"what": "x"}})";
constexpr std::string_view stop_object = R"({"name": "stop", "arguments": {}})";

std::string example_of(std::string_view form) {
  const auto object_list = [](std::string_view begin, std::string_view end) {
    return cat(begin, find_object, ", ", stop_object, end);
  };
  const auto invokes = [](std::string_view mark, std::string_view section) {
    return cat("<", mark, section, ">\n<", mark, "invoke name=\"find\">\n<", mark,
               "parameter name=\"what\"", mark.empty() ? "" : " string=\"true\"", ">x</", mark,
               "parameter>\n</", mark, "invoke>\n<", mark, "invoke name=\"stop\">\n\n</", mark,
               "invoke>\n</", mark, section, ">");
  };
  const auto functions = [](std::string_view tag) {
    return cat("<", tag, ">\n<function=find>\n<parameter=what>\nx\n</parameter>\n</function>\n</",
               tag, ">\n<", tag, ">\n<function=stop>\n\n</function>\n</", tag, ">");
  };
  if (form == "hermes")
    return cat("<tool_call>\n", find_object, "\n</tool_call>\n<tool_call>\n", stop_object,
               "\n</tool_call>");
  if (form == "glm4")
    return "<tool_call>find\n<arg_key>what</arg_key>\n<arg_value>x</arg_value>\n</tool_call>\n"
           "<tool_call>stop\n\n</tool_call>";
  if (form == "qwen3_coder") return functions("tool_call");
  if (form == "seed_oss") return functions("seed:tool_call");
  if (form == "minimax_m2") return invokes("", "minimax:tool_call");
  if (form == "deepseek_v32") return invokes("｜DSML｜", "function_calls");
  if (form == "deepseek_v4") return invokes("｜DSML｜", "tool_calls");
  if (form == "deepseek_v3")
    return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json\n"
           "{\"what\": "
           "\"x\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n"
           "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  if (form == "deepseek_v31")
    return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>{\"what\": \"x\"}"
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
           "<｜tool▁calls▁end｜>";
  if (form == "kimi_k2")
    return "<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0"
           "<|tool_call_argument_begin|>{\"what\": \"x\"}<|tool_call_end|><|tool_call_begin|>"
           "functions.stop:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
           "<|tool_calls_section_end|>";
  if (form == "mistral") return object_list("[TOOL_CALLS][", "]");
  if (form == "mistral_v11")
    return "[TOOL_CALLS]find[ARGS]{\"what\": \"x\"}[TOOL_CALLS]stop[ARGS]{}";
  if (form == "hunyuan") return object_list("<tool_calls>[", "]</tool_calls>");
  if (form == "granite3") return object_list("<|tool_call|>[", "]");
  if (form == "phi4_mini") return object_list("functools[", "]");
  if (form == "nemotron_v2") return object_list("<TOOLCALL>[", "]</TOOLCALL>");
  if (form == "lfm2") return object_list("<|tool_call_start|>[", "]<|tool_call_end|>");
  if (form == "llama3_json")
    return "{\"name\": \"find\", \"parameters\": {\"what\": \"x\"}}; {\"name\": \"stop\", "
           "\"parameters\": {}}";
  // No grammar expresses these: a JSON list is used.
  return R"([{"name": "find", "parameters": {"what": "x"}}, {"name": "stop", "parameters": {}}])";
}

TEST(ForcedCalls, InEveryForm) {
  const std::string compact = R"({"what":"x"})";
  for (const ToolForm& form : tool_forms()) {
    if (form.body == CallBody::harmony) continue;
    SCOPED_TRACE(form.name);
    const ChatFormat format{.calls = &form};
    const std::string text = example_of(form.name);
    const Forced any(format, required);
    EXPECT_TRUE(any.takes(text)) << text;
    EXPECT_FALSE(any.takes("Well."));
    EXPECT_FALSE(Forced(format, required, {.parallel = false}).takes(text)) << "one call alone";
    const std::vector<CallPiece> calls = any.read(text);
    ASSERT_EQ(calls.size(), 2U) << text;
    EXPECT_EQ(calls[0].name, "find");
    EXPECT_EQ(json::write(json::parse(calls[0].arguments, "arguments").value()), compact);
    EXPECT_EQ(calls[1].name, "stop");
    EXPECT_EQ(calls[1].arguments, "{}");
    // A function by its name: the beginning of the call is given to the model.
    const Forced named(format, by_name);
    if (named.takes(R"({"what": "x"})")) {
      EXPECT_THAT(named.read(R"({"what": "x"})"), ElementsAre(call("find", R"({"what": "x"})")));
    } else {
      ASSERT_TRUE(text.starts_with(named.opening())) << named.opening();
      EXPECT_EQ(named.read(text.substr(named.opening().size())).front().name, "find");
    }
    // Strict calls within free text.
    const Forced strict(format, may_call, {.strict = true});
    if (strict.grammar() == grammar::Spec{}) continue;
    EXPECT_TRUE(strict.takes("Well."));
    EXPECT_TRUE(strict.takes(text)) << text << strict.grammar().text;
    EXPECT_TRUE(strict.takes("Well.\n" + text));
    const std::size_t key = text.find("what");
    EXPECT_FALSE(strict.takes(cat(text.substr(0, key), "else", text.substr(key + 4))));
  }
}

TEST(ForcedCalls, WithMarksThatAreSpecialTokens) {
  const auto tokenizer = [] { return tokenizer_with("[TOOL_CALLS]", "[ARGS]"); };
  const ChatFormat format{.calls = find_tool_form("mistral_v11")};
  const std::string text = example_of("mistral_v11");
  const Forced any(format, required, {.tokenizer = tokenizer()});
  EXPECT_TRUE(any.takes_tokens(text)) << any.grammar().text;
  EXPECT_FALSE(any.takes_tokens("[TOOL_CALLS]lose[ARGS]{}"));
  const Forced strict(format, may_call, {.strict = true, .tokenizer = tokenizer()});
  EXPECT_TRUE(strict.takes_tokens(cat("Well.", text))) << strict.grammar().text;
  EXPECT_FALSE(strict.takes_tokens("[TOOL_CALLS]find[ARGS]{\"most\": 1}"));

  const ChatFormat granite{.calls = find_tool_form("hermes")};
  const Forced closed(granite, may_call,
                      {.strict = true, .tokenizer = tokenizer_of_special_tags()});
  EXPECT_TRUE(closed.takes_tokens(cat("Well.", example_of("hermes"), " So.")))
      << closed.grammar().text;
  EXPECT_FALSE(closed.takes_tokens("<tool_call>find</tool_call>"));
}

TEST(ForcedCalls, OfModelsWithoutAFormThatGrammarsCanWrite) {
  const Forced harmony({.calls = find_tool_form("gpt_oss")}, by_name);
  EXPECT_EQ(harmony.opening(),
            "<|channel|>commentary to=functions.find <|constrain|>json<|message|>");
  EXPECT_TRUE(harmony.takes(R"({"what": "x"})"));
  const std::string list =
      R"([{"name": "find", "parameters": {"what": "x"}}, {"name": "stop", "parameters": {}}])";
  for (const ChatFormat& format : {ChatFormat{.calls = find_tool_form("gpt_oss")}, ChatFormat{}}) {
    const Forced any(format, required);
    EXPECT_TRUE(any.takes(list));
    EXPECT_THAT(any.read(list), ElementsAre(call("find", R"({"what": "x"})"), call("stop", "{}")));
    EXPECT_FALSE(Forced(format, required, {.parallel = false}).takes(list));
  }
}

}  // namespace
}  // namespace motley::serving
