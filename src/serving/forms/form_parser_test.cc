#include "serving/forms/form_parser.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "serving/forms/forced_parsers.h"
#include "serving/forms/parser_checks.h"

namespace motley::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ParsedOutput parse(const FormParser::Options& options, std::string_view text) {
  return parse_every_cut([&] { return std::make_unique<FormParser>(options); }, text);
}

const ToolForm* form(std::string_view name) { return find_tool_form(name); }
const ReasoningForm* think() { return find_reasoning_form("think"); }

CallPiece call(std::string_view name, std::string_view arguments) {
  return {.begins = true, .name = std::string(name), .arguments = std::string(arguments)};
}

// The arguments of a call after each byte of the text.
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
  return ToolSchemas(
      json::parse(
          R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "find",
    "parameters": {"properties": {"what": {"type": "string"}, "most": {"type": "integer"}}}}}])",
          "tools")
          .value());
}

using Kind = OutputKind;

std::vector<Kind> kinds(const ParsedOutput& output) {
  std::vector<Kind> list;
  for (const ParsedOutput::Run& run : output.order) list.push_back(run.kind);
  return list;
}

TEST(OutputParser, PartsKeepTheOrderInWhichTheyWereWritten) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const ParsedOutput tagged = parse({.reasoning = think(), .calls = form("hermes")},
                                    cat("<think>a</think>b", call, call, "c", call, "d"));
  EXPECT_THAT(kinds(tagged), ElementsAre(Kind::reasoning, Kind::content, Kind::call, Kind::content,
                                         Kind::call, Kind::content));
}

TEST(OutputParser, SaysWhatTheTextStandsIn) {
  FormParser tagged(FormParser::Options{.reasoning = think(), .calls = form("hermes")});
  const auto after = [&](std::string_view text) {
    tagged.push(text);
    return tagged.section();
  };
  EXPECT_EQ(after(""), OutputSection::form);
  EXPECT_EQ(after("<think>"), OutputSection::reasoning);
  EXPECT_EQ(after(" so </think>"), OutputSection::form);
  EXPECT_EQ(after("\n"), OutputSection::form);
  EXPECT_EQ(after("\nyes"), OutputSection::content);
  EXPECT_EQ(after("<tool_call>{\"name\": \"f\", \"arguments\": {}}"), OutputSection::call);
  EXPECT_EQ(after("</tool_call>"), OutputSection::form);
  EXPECT_EQ(after("x"), OutputSection::content);
}

TEST(FormParser, PlainTextStaysAsItIs) {
  const std::string_view text = " \n<think>a <tool_call> b</tool_call> \n";
  EXPECT_EQ(parse(FormParser::Options{}, text).content, text);
}

TEST(FormParser, ReasoningComesFirstOrNotAtAll) {
  const FormParser::Options options{.reasoning = think()};
  const ParsedOutput split = parse(options, "\n<think>\n one\n two \n</think>\n\n three\n");
  EXPECT_EQ(split.reasoning, "one\n two");
  EXPECT_EQ(split.content, "three\n");
  EXPECT_EQ(parse(options, "a <think>b</think>").content, "a <think>b</think>");
  EXPECT_EQ(parse(options, " <thin").content, " <thin");
}

TEST(FormParser, ReasoningThatThePromptHasBegun) {
  const FormParser::Options options{.reasoning = think(), .begins_reasoning = true};
  EXPECT_EQ(parse(options, "\nso\n</think>\nyes").reasoning, "so");
  EXPECT_EQ(parse(options, "\nso\n</think>\nyes").content, "yes");
  // It never ended, so there is no answer.
  EXPECT_EQ(parse(options, "and so on </thin").reasoning, "and so on </thin");
}

TEST(FormParser, CallsBetweenContent) {
  const FormParser::Options options{.calls = form("hermes")};
  const ParsedOutput split =
      parse(options,
            "Well. <tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
            "<tool_call>{\"name\": \"b\"}</tool_call> then");
  EXPECT_EQ(split.content, "Well. \n\n then") << "as written, without the calls";
  EXPECT_THAT(split.calls, ElementsAre(call("a", R"({"x": 1})"), call("b", "{}")));
}

TEST(FormParser, CallsThatAreNoneStayContent) {
  const FormParser::Options options{.calls = form("hermes")};
  for (const std::string_view text :
       {"<tool_call>{\"name\": 3}</tool_call>", "<tool_call>nonsense</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>", "<tool_call>{\"name\":"}) {
    EXPECT_EQ(parse(options, text).content, text);
    EXPECT_THAT(parse(options, text).calls, IsEmpty());
  }
}

TEST(FormParser, LastCallNeedsNoEnd) {
  EXPECT_THAT(parse({.calls = form("hermes")}, "<tool_call>{\"name\": \"a\"}").calls,
              ElementsAre(call("a", "{}")));
}

TEST(FormParser, NameOfACallMayComeLast) {
  EXPECT_THAT(parse({.calls = form("hermes")},
                    "<tool_call>{\"arguments\": {\"x\": [1]}, \"name\": \"a\"}</tool_call>")
                  .calls,
              ElementsAre(call("a", R"({"x":[1]})")));
}

TEST(FormParser, NumbersKeepTheirDigitsInEveryForm) {
  EXPECT_THAT(parse({.calls = form("hermes")},
                    "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": "
                    "12345678901234567890}}</tool_call>")
                  .calls,
              ElementsAre(call("a", R"({"x": 12345678901234567890})")));
  EXPECT_THAT(parse({.calls = form("hermes")},
                    "<tool_call>{\"arguments\": {\"x\": [12345678901234567890, "
                    "-98765432109876543210]}, \"name\": \"a\"}</tool_call>")
                  .calls,
              ElementsAre(call("a", R"({"x":[12345678901234567890,-98765432109876543210]})")));
  EXPECT_THAT(
      parse({.calls = form("glm4"), .tools = schemas()},
            "<tool_call>find<arg_key>most</arg_key><arg_value>12345678901234567890</arg_value>"
            "<arg_key>x</arg_key><arg_value>\n[0.10, -0.0, 1e5]\n</arg_value></tool_call>")
          .calls,
      ElementsAre(call("find", R"({"most":12345678901234567890,"x":[0.10, -0.0, 1e5]})")));
  EXPECT_THAT(parse({.calls = form("qwen3_coder"), .tools = schemas()},
                    "<tool_call><function=find><parameter=most>\n12345678901234567890\n"
                    "</parameter></function></tool_call>")
                  .calls,
              ElementsAre(call("find", R"({"most":12345678901234567890})")));
}

TEST(FormParser, EndOfACallInAStringIsText) {
  const std::string_view arguments = R"({"x": "</tool_call>\"}", "y": {"z": "{"}})";
  EXPECT_THAT(parse({.calls = form("hermes")},
                    cat("<tool_call>{\"name\": \"a\", \"arguments\": ", arguments, "}</tool_call>"))
                  .calls,
              ElementsAre(call("a", arguments)));
}

TEST(FormParser, CallThatIsCutShortIsOneAsFarAsItCame) {
  EXPECT_THAT(
      parse({.calls = form("hermes")}, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": [1, ")
          .calls,
      ElementsAre(call("a", "{\"x\": [1, ")));
}

TEST(FormParser, StringsThatAreCutShortBeginAsJsonDoes) {
  const FormParser::Options options{.calls = form("gemma4"), .tools = schemas()};
  for (const auto& [text, arguments] : std::initializer_list<std::pair<std::string, std::string>>{
           {"{what:<|\"|>a \"b\"", R"({"what":"a \"b\")"},
           {"{what:'a \"b\"", R"({"what":"a \"b\")"},
           {"{what:\"a\nb", R"({"what":"a\nb)"},
           {"{what:\"a\\\"b", R"({"what":"a\"b)"}}) {
    const ParsedOutput cut = parse(options, cat("<|tool_call>call:find", text));
    EXPECT_THAT(cut.calls, ElementsAre(call("find", arguments)));
    EXPECT_EQ(cut.content, "");
  }
}

// Sent text cannot be retracted, so the string continues to the end.
TEST(FormParser, AStringOfJsonThatNeverClosesKeepsAllThatFollows) {
  const std::string_view open = R"({"x": "a</tool_call> and so on)";
  EXPECT_THAT(
      parse({.calls = form("hermes")}, cat("<tool_call>{\"name\": \"f\", \"arguments\": ", open))
          .calls,
      ElementsAre(call("f", open)));
  const std::string late = cat("<tool_call>{\"arguments\": ", open);
  EXPECT_EQ(parse({.calls = form("hermes")}, late).content, late) << "no name, no call";
}

TEST(FormParser, ArgumentsComeAsTheyAreWritten) {
  FormParser quoted(FormParser::Options{.calls = form("hermes")});
  EXPECT_THAT(arguments_in_time(
                  quoted, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\":1}}</tool_call>"),
              ElementsAre("{", "\"", "x", "\"", ":", "1", "}"));
  FormParser tagged(FormParser::Options{.calls = form("glm4"), .tools = schemas()});
  EXPECT_THAT(arguments_in_time(tagged,
                                "<tool_call>find<arg_key>what</arg_key><arg_value>\"a\n</arg_value>"
                                "<arg_key>most</arg_key><arg_value>12</arg_value></tool_call>"),
              ElementsAre("{\"what\":\"", "\\\"", "a", "\\n\"", ",\"most\":", "12}"));
}

TEST(FormParser, ArgumentsInTags) {
  const FormParser::Options options{.calls = form("glm4"), .tools = schemas()};
  EXPECT_THAT(parse(options,
                    "<tool_call>find\n<arg_key>what</arg_key>\n<arg_value>5</arg_value>\n"
                    "<arg_key>most</arg_key>\n<arg_value>5</arg_value>\n</tool_call>")
                  .calls,
              ElementsAre(call("find", R"({"what":"5","most":5})")));
  EXPECT_THAT(parse(options, "<tool_call>find</tool_call>").calls, ElementsAre(call("find", "{}")));
  EXPECT_THAT(parse(options, "<tool_call>find<arg_key>a</arg_key></tool_call>").calls, IsEmpty());
}

TEST(FormParser, ArgumentsAsParameters) {
  const FormParser::Options options{.calls = form("qwen3_coder"), .tools = schemas()};
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
  // A JSON reader uses the last value of a key; words between calls belong to the answer.
  const ParsedOutput twice =
      parse(options,
            "<tool_call><function=find><parameter=what>a</parameter><parameter=what>b"
            "</parameter> or <parameter=most>1</parameter></function></tool_call>");
  EXPECT_THAT(twice.calls, ElementsAre(call("find", R"({"what":"a","what":"b","most":1})")));
  EXPECT_EQ(twice.content, "or");
  EXPECT_THAT(parse(options, "<tool_call><function=find>\n</function>\n</tool_call>").calls,
              ElementsAre(call("find", "{}")));
}

TEST(FormParser, AnArgumentStaysAStringWhereItsSchemaAllowsOne) {
  const FormParser::Options options{
      .calls = form("glm4"),
      .tools = ToolSchemas(json::parse(R"([{"function": {"name": "f", "parameters": {
          "properties": {"a": {"$ref": "#/$defs/name"}, "b": {"type": ["integer", "null"]},
                         "c": {"description": "any"}},
          "$defs": {"name": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}}])",
                                       "tools")
                               .value())};
  EXPECT_THAT(parse(options,
                    "<tool_call>f<arg_key>a</arg_key><arg_value>5</arg_value><arg_key>b</arg_key>"
                    "<arg_value>5</arg_value><arg_key>c</arg_key><arg_value>5</arg_value>"
                    "</tool_call>")
                  .calls,
              ElementsAre(call("f", R"({"a":"5","b":5,"c":"5"})")));
}

// Texts of marks, complete and incomplete calls, and words that occur once each.
class RandomTexts {
 public:
  explicit RandomTexts(const ToolForm& form) : random_(7) {
    for (const std::string_view mark : form.marks()) pieces_.emplace_back(mark);
    for (const std::string_view piece : {"<think>",
                                         "</think>",
                                         "\n",
                                         "\n",
                                         " ",
                                         "[",
                                         "]",
                                         ",",
                                         ";",
                                         "{",
                                         "}",
                                         "\"",
                                         "'",
                                         "(",
                                         ")",
                                         "=",
                                         ":",
                                         "<",
                                         ">",
                                         "f",
                                         "f(",
                                         "f{",
                                         "call:f{",
                                         "a=",
                                         "a:",
                                         "functions.f:0",
                                         "```json\n",
                                         "```",
                                         "{\"name\": \"f\", \"arguments\": {",
                                         "{\"name\": \"f\", \"arguments\": {}}",
                                         "<function=f>",
                                         "<parameter=a>",
                                         "\"a\": ",
                                         "\"a\": \"",
                                         "{'name': 'f', 'arguments': {'a': '",
                                         "{\"arguments\": {\"a\": \"",
                                         "<|\"|>",
                                         "a:<|\"|>",
                                         "\\",
                                         "it's",
                                         "\"\"\"",
                                         "string=\"true\"",
                                         "name=\"f\""})
      pieces_.emplace_back(piece);
  }

  std::string next() {
    std::string text;
    words_.clear();
    for (int i = 0, size = 1 + pick(14); i < size; ++i) {
      if (pick(3) > 0) {
        text += pieces_[static_cast<std::size_t>(pick(static_cast<int>(pieces_.size())))];
      } else {
        words_.push_back(cat("w", words_.size(), "q"));
        text += words_.back();
      }
    }
    return text;
  }
  const std::vector<std::string>& words() const { return words_; }
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

 private:
  std::mt19937 random_;
  std::vector<std::string> pieces_;
  std::vector<std::string> words_;
};

TEST(FormParser, EveryWordComesOutHoweverTheTextIsCut) {
  for (const ToolForm& form : tool_forms()) {
    if (form.body == CallBody::harmony) continue;
    RandomTexts texts(form);
    for (int round = 0; round < 3000; ++round) {
      const std::string text = texts.next();
      const int way = texts.pick(3);
      const FormParser::Options options{.reasoning = way > 0 ? think() : nullptr,
                                        .begins_reasoning = way > 1,
                                        .calls = &form,
                                        .tools = schemas()};
      FormParser parser(options);
      const ParsedOutput whole = parse_whole(parser, text);
      FormParser bytewise(options);
      ASSERT_EQ(described(parse_bytes(bytewise, text)), described(whole))
          << form.name << ": " << text;
      std::string all = cat(whole.reasoning, "\n", whole.content);
      for (const CallPiece& call : whole.calls)
        all += cat("\n", call.name, call.arguments, call.id);
      for (const std::string& word : texts.words())
        ASSERT_NE(all.find(word), std::string::npos)
            << form.name << " loses " << word << " of " << text << "\n"
            << described(whole);
    }
  }
}

TEST(ForcedParsers, TakeWhatTheirGrammarsMake) {
  const auto list = [] { return std::make_unique<CallListParser>(); };
  EXPECT_THAT(parse_every_cut(
                  list, R"([{"name": "a", "parameters": {"x": 1}}, {"name":"b","parameters":{}}])")
                  .calls,
              ElementsAre(call("a", R"({"x": 1})"), call("b", "{}")));
  EXPECT_TRUE(parse_every_cut(list, R"([{"name": "a", "param)").empty());
  EXPECT_THAT(
      parse_every_cut([] { return std::make_unique<NamedCallParser>("a"); }, R"({"x": 1})").calls,
      ElementsAre(call("a", R"({"x": 1})")));
}

}  // namespace
}  // namespace motley::serving
