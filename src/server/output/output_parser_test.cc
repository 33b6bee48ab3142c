#include "server/output/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/output/forced_parsers.h"
#include "server/output/harmony_parser.h"
#include "server/output/tagged_parser.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ParsedOutput parse_in_pieces(OutputParser& parser, std::string_view text, std::size_t first,
                             std::size_t second) {
  ParsedOutput all;
  all.append(parser.push(text.substr(0, first)));
  all.append(parser.push(text.substr(first, second - first)));
  all.append(parser.push(text.substr(second)));
  all.append(parser.finish());
  return all;
}

// The same however the text is cut in three.
ParsedOutput parse(const std::function<std::unique_ptr<OutputParser>()>& make,
                   std::string_view text) {
  const ParsedOutput whole = parse_in_pieces(*make(), text, 0, text.size());
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      const ParsedOutput cut = parse_in_pieces(*make(), text, first, second);
      EXPECT_EQ(cut.reasoning, whole.reasoning) << first << " " << second;
      EXPECT_EQ(cut.content, whole.content) << first << " " << second;
      EXPECT_EQ(cut.calls, whole.calls) << first << " " << second;
    }
  }
  return whole;
}

ParsedOutput parse(const TaggedParser::Options& options, std::string_view text) {
  return parse([&] { return std::make_unique<TaggedParser>(options); }, text);
}

ParsedOutput parse_harmony(std::string_view text) {
  return parse([] { return std::make_unique<HarmonyParser>(); }, text);
}

CallPiece call(std::string_view name, std::string_view arguments) {
  return {.begins = true, .name = std::string(name), .arguments = std::string(arguments)};
}

// The arguments of a call, byte by byte: what has come when.
std::vector<std::string> arguments_in_time(OutputParser& parser, std::string_view text) {
  std::vector<std::string> pieces;
  for (const char& byte : text) {
    for (const CallPiece& piece : parser.push({&byte, 1}).calls)
      if (!piece.arguments.empty()) pieces.push_back(piece.arguments);
  }
  for (const CallPiece& piece : parser.finish().calls) pieces.push_back(piece.arguments);
  return pieces;
}

ToolSchemas schemas() {
  return ToolSchemas(json::parse(R"([{"type": "function", "function": {"name": "find",
    "parameters": {"properties": {"what": {"type": "string"}, "most": {"type": "integer"}}}}}])",
                                 "tools")
                         .value());
}

TEST(TaggedParser, PlainTextStaysAsItIs) {
  const std::string_view text = " \n<think>a <tool_call> b</tool_call> \n";
  EXPECT_EQ(parse(TaggedParser::Options{}, text).content, text);
}

TEST(TaggedParser, ReasoningComesFirstOrNotAtAll) {
  const TaggedParser::Options options{.reasoning = true};
  const ParsedOutput split = parse(options, "\n<think>\n one\n two \n</think>\n\n three\n");
  EXPECT_EQ(split.reasoning, "one\n two");
  EXPECT_EQ(split.content, "three\n");
  EXPECT_EQ(parse(options, "a <think>b</think>").content, "a <think>b</think>");
  EXPECT_EQ(parse(options, " <thin").content, " <thin");
}

TEST(TaggedParser, ReasoningThatThePromptHasBegun) {
  const TaggedParser::Options options{.reasoning = true, .begins_reasoning = true};
  EXPECT_EQ(parse(options, "\nso\n</think>\nyes").reasoning, "so");
  EXPECT_EQ(parse(options, "\nso\n</think>\nyes").content, "yes");
  // Never ended: there was no answer.
  EXPECT_EQ(parse(options, "and so on </thin").reasoning, "and so on </thin");
}

TEST(TaggedParser, CallsBetweenContent) {
  const TaggedParser::Options options{.calls = CallSyntax::json};
  const ParsedOutput split =
      parse(options,
            "Well. <tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
            "<tool_call>{\"name\": \"b\"}</tool_call> then");
  EXPECT_EQ(split.content, "Well.then");
  EXPECT_THAT(split.calls, ElementsAre(call("a", R"({"x": 1})"), call("b", "{}")));
}

TEST(TaggedParser, CallsThatAreNoneStayContent) {
  const TaggedParser::Options options{.calls = CallSyntax::json};
  for (const std::string_view text :
       {"<tool_call>{\"name\": 3}</tool_call>", "<tool_call>nonsense</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>", "<tool_call>{\"name\":"}) {
    EXPECT_EQ(parse(options, text).content, text);
    EXPECT_THAT(parse(options, text).calls, IsEmpty());
  }
}

TEST(TaggedParser, LastCallNeedsNoEnd) {
  EXPECT_THAT(parse({.calls = CallSyntax::json}, "<tool_call>{\"name\": \"a\"}").calls,
              ElementsAre(call("a", "{}")));
}

TEST(TaggedParser, NameOfACallMayComeLast) {
  EXPECT_THAT(parse({.calls = CallSyntax::json},
                    "<tool_call>{\"arguments\": {\"x\": [1]}, \"name\": \"a\"}</tool_call>")
                  .calls,
              ElementsAre(call("a", R"({"x":[1]})")));
}

TEST(TaggedParser, NumbersKeepTheirDigitsInEveryForm) {
  EXPECT_THAT(parse({.calls = CallSyntax::json},
                    "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": "
                    "12345678901234567890}}</tool_call>")
                  .calls,
              ElementsAre(call("a", R"({"x": 12345678901234567890})")));
  EXPECT_THAT(parse({.calls = CallSyntax::json},
                    "<tool_call>{\"arguments\": {\"x\": [12345678901234567890, "
                    "-98765432109876543210]}, \"name\": \"a\"}</tool_call>")
                  .calls,
              ElementsAre(call("a", R"({"x":[12345678901234567890,-98765432109876543210]})")));
  EXPECT_THAT(
      parse({.calls = CallSyntax::arg_tags, .schemas = schemas()},
            "<tool_call>find<arg_key>most</arg_key><arg_value>12345678901234567890</arg_value>"
            "<arg_key>x</arg_key><arg_value>\n[0.10, -0.0, 1e5]\n</arg_value></tool_call>")
          .calls,
      ElementsAre(call("find", R"({"most":12345678901234567890,"x":[0.10, -0.0, 1e5]})")));
  EXPECT_THAT(parse({.calls = CallSyntax::parameters, .schemas = schemas()},
                    "<tool_call><function=find><parameter=most>\n12345678901234567890\n"
                    "</parameter></function></tool_call>")
                  .calls,
              ElementsAre(call("find", R"({"most":12345678901234567890})")));
}

TEST(TaggedParser, EndOfACallInAStringIsText) {
  const std::string_view arguments = R"({"x": "</tool_call>\"}", "y": {"z": "{"}})";
  EXPECT_THAT(parse({.calls = CallSyntax::json},
                    cat("<tool_call>{\"name\": \"a\", \"arguments\": ", arguments, "}</tool_call>"))
                  .calls,
              ElementsAre(call("a", arguments)));
}

TEST(TaggedParser, CallThatIsCutShortIsOneAsFarAsItCame) {
  EXPECT_THAT(
      parse({.calls = CallSyntax::json}, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": [1, ")
          .calls,
      ElementsAre(call("a", "{\"x\": [1, ")));
}

TEST(TaggedParser, ArgumentsComeAsTheyAreWritten) {
  TaggedParser quoted({.calls = CallSyntax::json});
  EXPECT_THAT(arguments_in_time(
                  quoted, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\":1}}</tool_call>"),
              ElementsAre("{", "\"", "x", "\"", ":", "1", "}"));
  TaggedParser tagged({.calls = CallSyntax::arg_tags, .schemas = schemas()});
  EXPECT_THAT(arguments_in_time(tagged,
                                "<tool_call>find<arg_key>what</arg_key><arg_value>\"a\n</arg_value>"
                                "<arg_key>most</arg_key><arg_value>12</arg_value></tool_call>"),
              ElementsAre("{\"what\":\"", "\\\"", "a", "\\n", "\"", ",\"most\":", "12", "}"));
}

TEST(TaggedParser, ArgumentsInTags) {
  const TaggedParser::Options options{.calls = CallSyntax::arg_tags, .schemas = schemas()};
  EXPECT_THAT(parse(options,
                    "<tool_call>find\n<arg_key>what</arg_key>\n<arg_value>5</arg_value>\n"
                    "<arg_key>most</arg_key>\n<arg_value>5</arg_value>\n</tool_call>")
                  .calls,
              ElementsAre(call("find", R"({"what":"5","most":5})")));
  EXPECT_THAT(parse(options, "<tool_call>find</tool_call>").calls, ElementsAre(call("find", "{}")));
  EXPECT_THAT(parse(options, "<tool_call>find<arg_key>a</arg_key></tool_call>").calls, IsEmpty());
}

TEST(TaggedParser, ArgumentsAsParameters) {
  const TaggedParser::Options options{.calls = CallSyntax::parameters, .schemas = schemas()};
  EXPECT_THAT(parse(options,
                    "<tool_call>\n<function=find>\n<parameter=what>\n a\nb\n</parameter>\n"
                    "<parameter=most>\n7\n</parameter>\n</function>\n</tool_call>")
                  .calls,
              ElementsAre(call("find", R"({"what":" a\nb","most":7})")));
  EXPECT_THAT(parse(options,
                    "<tool_call><function=find><parameter=what>h\xC3\xA9\xEF\xBF\xBD"
                    "</parameter></function></tool_call>")
                  .calls,
              ElementsAre(call("find", "{\"what\":\"h\xC3\xA9\xEF\xBF\xBD\"}")));
  // A key counts once, and what is no pair ends them.
  EXPECT_THAT(parse(options,
                    "<tool_call><function=find><parameter=what>a</parameter><parameter=what>b"
                    "</parameter> or <parameter=most>1</parameter></function></tool_call>")
                  .calls,
              ElementsAre(call("find", R"({"what":"a"})")));
  EXPECT_THAT(parse(options, "<tool_call><function=find>\n</function>\n</tool_call>").calls,
              ElementsAre(call("find", "{}")));
}

TEST(HarmonyParser, ChannelsAreReasoningAndContent) {
  const ParsedOutput split = parse_harmony(
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes"
      "<|return|>");
  EXPECT_EQ(split.reasoning, "hm");
  EXPECT_EQ(split.content, "Yes");
}

TEST(HarmonyParser, CommentaryToAFunctionIsACall) {
  for (const std::string_view head :
       {"<|channel|>commentary to=functions.find <|constrain|>json<|message|>",
        " to=functions.find<|channel|>commentary<|message|>"}) {
    const ParsedOutput split = parse_harmony(std::string(head) + "{\"what\": \"x\"}<|call|>");
    EXPECT_THAT(split.calls, ElementsAre(call("find", "{\"what\": \"x\"}")));
  }
}

TEST(HarmonyParser, WhatIsNoObjectIsNoCall) {
  const std::string_view head = "<|channel|>commentary to=functions.find<|message|>";
  EXPECT_THAT(parse_harmony(cat(head, "{\"what\": ")).calls,
              ElementsAre(call("find", "{\"what\": ")));
  const ParsedOutput text = parse_harmony(cat(head, " well<|call|>"));
  EXPECT_THAT(text.calls, IsEmpty());
  EXPECT_EQ(text.content, " well");
  EXPECT_THAT(parse_harmony(cat(head, " <|call|>")).calls, ElementsAre(call("find", "{}")));
  EXPECT_TRUE(parse_harmony("<|channel|>final<|mess").empty());
}

TEST(ForcedParsers, TakeWhatTheirGrammarsMake) {
  const auto list = [] { return std::make_unique<CallListParser>(); };
  EXPECT_THAT(
      parse(list, R"([{"name": "a", "parameters": {"x": 1}}, {"name":"b","parameters":{}}])").calls,
      ElementsAre(call("a", R"({"x": 1})"), call("b", "{}")));
  EXPECT_TRUE(parse(list, R"([{"name": "a", "param)").empty());
  EXPECT_THAT(parse([] { return std::make_unique<NamedCallParser>("a"); }, R"({"x": 1})").calls,
              ElementsAre(call("a", R"({"x": 1})")));
}

}  // namespace
}  // namespace motley::server
