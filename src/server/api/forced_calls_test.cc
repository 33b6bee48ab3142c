#include "server/api/forced_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/files.h"
#include "engine/grammar/check.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace motley::server {
namespace {

using engine::GrammarSpec;
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
// With gpt-oss's marks for two of its own.
text::Tokenizer harmony_tokenizer() {
  std::string file = qwen_file();
  const auto rename = [&](std::string_view from, std::string_view to) {
    const std::size_t at = file.find(from);
    ASSERT_NE(at, std::string::npos);
    file.replace(at, from.size(), to);
  };
  rename("<|im_start|>", "<|constrain|>");
  rename("<|im_end|>", "<|message|>");
  return text::Tokenizer::parse(file, "tokenizer.json").value();
}

// Answers that must call some of two functions, under a grammar over bytes.
class Forced {
 public:
  Forced(const ChatFormat& format, std::string_view choice, bool parallel = true,
         bool strict = false, text::Tokenizer tokenizer = qwen_tokenizer())
      : format_(format), tokenizer_(std::move(tokenizer)) {
    const std::string body =
        cat(R"({"messages": [{"role": "user", "content": "x"}], "tools": [
      {"type": "function", "function": {"name": "find", "strict": )",
            strict ? "true" : "false", R"(, "parameters": {"type": "object",
        "properties": {"what": {"$ref": "#/$defs/text"}, "most": {"type": "integer"}},
        "required": ["what"], "additionalProperties": false,
        "$defs": {"text": {"type": "string", "maxLength": 9}}}}},
      {"type": "function", "function": {"name": "stop", "parameters": {"type": "object",
        "properties": {}, "additionalProperties": false}}}], "tool_choice": )",
            choice, R"(, "parallel_tool_calls": )", parallel ? "true" : "false", "}");
    const text::GenerationConfig defaults;
    request_ =
        read_chat_completion_request(json::parse(body, "body").value(),
                                     {.base = "base", .vocabulary = 256, .defaults = &defaults})
            .value();
    if (request_.must_call())
      calls_ = force_calls(request_, format_, tokenizer_, "<|im_start|>assistant\n<think>\n");
    else
      calls_.grammar = strict_calls(request_, format_, tokenizer_).value_or(GrammarSpec{});
    const auto checked = engine::check_grammar(calls_.grammar);
    EXPECT_TRUE(checked.ok()) << checked.error().message();
  }

  const std::string& opening() const { return calls_.opening; }
  const GrammarSpec& grammar() const { return calls_.grammar; }

  bool takes(std::string_view text) const {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    const auto vocabulary = engine::GrammarVocabulary::create(bytes, 257, {256}).value();
    const auto grammar = engine::Grammar::compile(calls_.grammar, vocabulary);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message() << calls_.grammar.text;
    if (!grammar.ok()) return false;
    engine::GrammarState state(*grammar, {});
    for (const char byte : text)
      if (!state.accept(static_cast<unsigned char>(byte))) return false;
    return state.may_end();
  }

  // The same in tokens of the model, special ones among them.
  bool takes_tokens(std::string_view text) const {
    const auto ids = tokenizer_.encode(text, {.add_special_tokens = false}).value();
    const auto vocabulary = engine::grammar_vocabulary(tokenizer_, tokenizer_.size(), {}).value();
    const auto grammar = engine::Grammar::compile(calls_.grammar, vocabulary);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message() << calls_.grammar.text;
    if (!grammar.ok()) return false;
    engine::GrammarState state(*grammar, {});
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
    const auto parser = make_forced_parser(calls_, request_, format_);
    ParsedOutput output = parser->push(text);
    output.append(parser->finish());
    EXPECT_EQ(output.content, "");
    return output.calls;
  }

 private:
  ChatFormat format_;
  text::Tokenizer tokenizer_;
  ChatCompletionRequest request_;
  ForcedCalls calls_;
};

constexpr std::string_view by_name = R"({"type": "function", "function": {"name": "find"}})";
constexpr std::string_view required = "\"required\"";

TEST(ForcedCalls, InJson) {
  const ChatFormat format{.think_tags = true, .calls = CallSyntax::json};
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
  EXPECT_FALSE(Forced(format, required, false).takes(cat(one, "\n", other)));
}

TEST(ForcedCalls, InTags) {
  const ChatFormat format{.calls = CallSyntax::arg_tags};
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
  const ChatFormat format{.calls = CallSyntax::parameters};
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
  const ChatFormat format{.think_tags = true, .calls = CallSyntax::json};
  const Forced strict(format, "\"auto\"", true, true);
  const auto call_with = [](std::string_view arguments) {
    return cat("<tool_call>\n{\"name\": \"find\", \"arguments\": ", arguments, "}\n</tool_call>");
  };
  const std::string good = call_with(R"({"what": "x"})");
  EXPECT_TRUE(strict.takes("<think>\nHm <tool\n</think>\n\nNo call."));
  EXPECT_TRUE(strict.takes(cat("Well.\n", good, "\n", good)));
  EXPECT_FALSE(strict.takes(call_with(R"({"most": "x"})")));
  EXPECT_FALSE(strict.takes("<tool_call>find</tool_call>"));
  EXPECT_TRUE(strict.takes_tokens("Well.<|im_start|>")) << "free, as without a grammar";
  EXPECT_FALSE(Forced(format, "\"auto\"", false, true).takes(cat(good, "\n", good)));
  // Nobody asked for it, or no grammar can write the form.
  EXPECT_EQ(Forced(format, "\"auto\"").grammar(), GrammarSpec{});
  EXPECT_EQ(Forced({.harmony = true}, "\"auto\"", true, true).grammar(), GrammarSpec{});
}

TEST(ForcedCalls, InHarmony) {
  const Forced any({.harmony = true}, required, true, false, harmony_tokenizer());
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

TEST(ForcedCalls, OfModelsWithoutAFormThatGrammarsCanWrite) {
  const Forced harmony({.harmony = true}, by_name);
  EXPECT_EQ(harmony.opening(),
            "<|channel|>commentary to=functions.find <|constrain|>json<|message|>");
  EXPECT_TRUE(harmony.takes(R"({"what": "x"})"));
  const std::string list =
      R"([{"name": "find", "parameters": {"what": "x"}}, {"name": "stop", "parameters": {}}])";
  for (const ChatFormat& format : {ChatFormat{.harmony = true}, ChatFormat{}}) {
    const Forced any(format, required);
    EXPECT_TRUE(any.takes(list));
    EXPECT_THAT(any.read(list), ElementsAre(call("find", R"({"what": "x"})"), call("stop", "{}")));
    EXPECT_FALSE(Forced(format, required, false).takes(list));
  }
}

}  // namespace
}  // namespace motley::server
