#include "serving/forms/harmony_parser.h"

#include <array>
#include <random>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "serving/forms/parser_checks.h"

namespace motley::serving {
namespace {

using ::testing::ElementsAre;

ParsedOutput parse_in_pieces(std::string_view text, std::size_t first, std::size_t second) {
  HarmonyParser parser;
  return parse_in_pieces(parser, text, first, second);
}

ParsedOutput parse_bytes(std::string_view text) {
  HarmonyParser parser;
  return parse_bytes(parser, text);
}

ParsedOutput parse(std::string_view text) {
  return parse_every_cut([] { return std::make_unique<HarmonyParser>(); }, text);
}

// "f({}) g({})"
std::string written(const std::vector<CallPiece>& calls) {
  std::string text;
  for (const CallPiece& call : calls)
    text += cat(text.empty() ? "" : " ", call.name, "(", call.arguments, ")");
  return text;
}

struct Vector {
  std::string_view text;
  std::string_view reasoning;
  std::string_view content;
  std::string_view calls;
};

void check(std::span<const Vector> vectors) {
  for (const Vector& vector : vectors) {
    SCOPED_TRACE(vector.text);
    const ParsedOutput output = parse(vector.text);
    EXPECT_EQ(output.reasoning, vector.reasoning);
    EXPECT_EQ(output.content, vector.content);
    EXPECT_EQ(written(output.calls), vector.calls);
  }
}

TEST(HarmonyParser, ChannelsAreReasoningAndContent) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes"
       "<|return|>",
       "hm", "Yes", ""},
      {"<|start|>assistant<|channel|>final<|message|>Yes", "", "Yes", ""},
      {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f <|constrain|>json<|message|>{}<|call|>",
       "", "I look.", "f({})"},
      {"<|channel|>final<|message|> a < b <| c <|end> \n", "", " a < b <| c <|end> \n", ""},
      {"<|channel|>final<|message|>a <|en", "", "a <|en", ""},
      {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b", ""},
      {"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b", "a", "b",
       ""},
      {"<|channel|>final<|message|>a<|end|><|return|>", "", "a", ""},
      {"<|channel|>final <|constrain|>json<|message|>{\"a\": 1}", "", "{\"a\": 1}", ""},
      {"<|channel|> final \n<|message|>a", "", "a", ""},
      {"<|channel|>commentary to=user<|message|>a", "", "a", ""},
      {"<|channel|>analysis to=assistant<|message|>a", "a", "", ""},
  });
  check(vectors);
}

TEST(HarmonyParser, MessagesToFunctionsAreCalls) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>", "",
       "", "f({\"x\": 1})"},
      {"<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f <|constrain|> json <|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f<|constrain|><|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f json<|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f code<|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f\n<|constrain|>json\n<|message|>\n{}<|call|>", "", "",
       "f(\n{})"},
      {"<|channel|>commentary<|constrain|>json to=functions.f<|message|>{}", "", "", "f({})"},
      {" to=functions.f<|channel|>commentary<|message|>{}", "", "", "f({})"},
      {" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}", "", "", "f({})"},
      {"to=functions.f json<|message|>{}", "", "", "f({})"},
      {"<|start|>assistant to=functions.f<|channel|>analysis<|message|>{}", "", "", "f({})"},
      {"<|start|>assistant to=functions.f<|message|>{}", "", "", "f({})"},
      {"<|channel|>analysis to=functions.f code<|message|>{}", "", "", "f({})"},
      {"<|channel|>to=functions.f<|message|>{}", "", "", "f({})"},
      {"<|channel|>final to=functions.f<|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=get_current_weather<|message|>{}", "", "",
       "get_current_weather({})"},
      {"<|channel|>commentary to=functions.weather.get<|message|>{}", "", "", "weather.get({})"},
      {"<|channel|>commentary to=weather.get<|message|>{}", "", "", "weather.get({})"},
      {"<|channel|>commentary to=functions.web-browsing<|message|>{}", "", "", "web-browsing({})"},
      {"<|channel|>analysis to=python code<|message|>print(1)<|call|>", "", "", "python(print(1))"},
      {"<|channel|>analysis to=browser.search<|message|>{\"query\": \"x\"}", "", "",
       "browser.search({\"query\": \"x\"})"},
      {"<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>"
       "commentary<|message|>{\"x\": 1}<|call|><|start|>assistant<|channel|>commentary "
       "to=functions.g<|message|>{}<|call|>",
       "hm", "", "f({\"x\": 1}) g({})"},
      {"<|channel|>commentary to=functions.f<|message|>{}<|channel|>commentary to=functions.f"
       "<|message|>{\"x\": 1}<|start|>assistant<|channel|>final<|message|>so",
       "", "so", "f({}) f({\"x\": 1})"},
      {"<|channel|>commentary to=functions.f<|message|>{}<|return|>", "", "", "f({})"},
  });
  check(vectors);
}

TEST(HarmonyParser, ArgumentsAreTheTextAsItWasWritten) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|channel|>commentary to=functions.f<|message|> well, no<|call|>", "", "", "f( well, no)"},
      {"<|channel|>commentary to=functions.f<|message|>[1]<|call|>", "", "", "f([1])"},
      {"<|channel|>commentary to=functions.f<|message|>{\"x\": ", "", "", "f({\"x\": )"},
      {"<|channel|>commentary to=functions.f<|message|>{\"x\": \"<|\"}", "", "",
       "f({\"x\": \"<|\"})"},
      {"<|channel|>commentary to=functions.f<|message|> \n<|call|>", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f<|message|><|call|>", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f<|message|>", "", "", "f({})"},
  });
  check(vectors);
}

TEST(HarmonyParser, TextWithoutAHeadIsContent) {
  constexpr auto vectors = std::to_array<Vector>({
      {"Plain text of a tuned model.", "", "Plain text of a tuned model.", ""},
      {" \n Plain", "", " \n Plain", ""},
      {"final", "", "final", ""},
      {"json", "", "json", ""},
      {"assistant to=nothing", "", "assistant to=nothing", ""},
      {"analysis of to=functions.f json", "", "analysis of to=functions.f json", ""},
      {"to=functions.f is a recipient", "", "to=functions.f is a recipient", ""},
      {"<", "", "<", ""},
      {"<|channe", "", "<|channe", ""},
      {"a<|return|>", "", "a", ""},
      {"a<|channel|>final<|message|>b", "", "ab", ""},
      {"<|channel|>analysis<|message|>a<|end|>b", "a", "b", ""},
      {"<|channel|>final<|message|>a<|end|> b<|end|>\n", "", "a b", ""},
      {"<|channel|>final<|message|>a<|return|> final", "", "a", ""},
      {"<|message|>a", "", "a", ""},
      {"<|start|>assistant Hello", "", "Hello", ""},
      {"", "", "", ""},
      {" \n", "", "", ""},
  });
  check(vectors);
}

TEST(HarmonyParser, HeadsWithoutMessageMarkSayTheirBody) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|channel|>final Hello there", "", "Hello there", ""},
      {"<|channel|>final\nHello<|end|>", "", "Hello", ""},
      {"<|channel|>final to be or not, and so on: a text that is longer than any head has words",
       "", "to be or not, and so on: a text that is longer than any head has words", ""},
      {"<|channel|>final a text that is longer than any head has words for it, also said twice"
       "<|message|>!",
       "", "a text that is longer than any head has words for it, also said twice!", ""},
      {"<|channel|>analysis hm<|end|><|start|>assistant<|channel|>final<|message|>Yes", "hm", "Yes",
       ""},
      {"<|channel|>Hello", "", "Hello", ""},
      {"<|channel|>?? so<|end|><|start|>assistant<|channel|>analysis<|message|>hm", "hm", "?? so",
       ""},
      {"<|channel|>commentary to=functions.f {\"x\": 1}<|call|>", "", "", "f({\"x\": 1})"},
      {"<|channel|>commentary to=functions.f <|constrain|>json{\"x\": 1}<|call|>", "", "",
       "f(json{\"x\": 1})"},
      {"<|channel|>commentary to=functions.f well<|call|>", "", "", "f(well)"},
      {"<|channel|>commentary to=functions.f<|call|>", "", "", "f({})"},
      {" to=functions.f {\"x\": 1}", "", "", "f({\"x\": 1})"},
      {" to=functions.f", "", "", "f({})"},
      {"<|start|>assistant to=functions.f {\"x\": 1}", "", "", "f({\"x\": 1})"},
      {"<|start|>assistantanalysis hm", "hm", "", ""},
      {"<|channel|>final<|mess", "", "", ""},
      {"<|channel|>final", "", "", ""},
      {"<|channel|>commentary to=assistant<|end|>", "", "", ""},
      {"<|start|>assis", "", "assis", ""},
      {"<|start|>assistant", "", "", ""},
      {"<|end|><|sta", "", "", ""},
  });
  check(vectors);
}

TEST(HarmonyParser, WhatAHeadSaysBeyondItsWordsIsReasoning) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|channel|>thoughts<|message|>Hello", "thoughts", "Hello", ""},
      {"<|channel|>final <|constrain|>response<|message|>{\"a\": 1}", "response", "{\"a\": 1}", ""},
      {"<|channel|>comment to=functions.f json<|message|>{}", "comment", "", "f({})"},
      {"<|channel|>commentary?commentary?<|message|>a", "commentary?commentary?", "a", ""},
      {"<|channel|>commentary to=functions.f please\nnow<|message|>{}", "please now", "", "f({})"},
      {"<|channel|>commentary to=functions.f to=functions.g<|message|>{}", "to=functions.g", "",
       "f({})"},
      {"<|channel|>commentary ––commentary<|message|>a", "––commentary", "a", ""},
  });
  check(vectors);
}

TEST(HarmonyParser, MarksThatAreDoubledOrLeftOutChangeNothing) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|start|>assistant<|start|>assistant<|channel|>final<|message|>a", "", "a", ""},
      {"assistant<|channel|>final<|message|>a", "", "a", ""},
      {"<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b", "a", "b", ""},
      {"<|channel|><|channel|>final<|message|><|message|>a<|end|><|end|>", "", "a", ""},
      {"<|channel|>analysis<|message|>a<|end|><|start|>assistantfinal<|message|>b", "a", "b", ""},
      {"<|start|>assistantcommentary to=functions.f<|message|>{}", "", "", "f({})"},
      {"analysis<|message|>a", "a", "", ""},
      {"<|channel|>commentary to=functions.f<|channel|>commentary<|message|>{}", "", "", "f({})"},
      {"<|channel|>commentary to=functions.f<|channel|>commentary to=functions.f <|constrain|>json"
       "<|message|>{}",
       "", "", "f({})"},
      {"<|channel|>commentary to=assistant<|channel|>commentary to=functions.f<|message|>{}", "",
       "", "f({})"},
      {"<|channel|>commentary to=assistant<|channel|>analysis<|message|>hm", "hm", "", ""},
      {"<|channel|>analysis<|start|>assistant<|channel|>final<|message|>a", "", "a", ""},
      {"<|channel|>commentary to=functions.f<|start|>assistant<|channel|>commentary "
       "to=functions.f<|message|>{\"x\": 1}",
       "", "to=functions.f", "f({\"x\": 1})"},
  });
  check(vectors);
}

TEST(HarmonyParser, MessagesOfOtherRolesAreContent) {
  constexpr auto vectors = std::to_array<Vector>({
      {"<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>functions.f to=assistant"
       "<|channel|>commentary<|message|>\"sunny\"<|end|>",
       "", "functions.f to=assistant\"sunny\"", "f({})"},
      {"<|start|>user<|message|>Hello<|end|><|start|>assistant<|channel|>analysis<|message|>hm",
       "hm", "userHello", ""},
  });
  check(vectors);
}

TEST(HarmonyParser, TextIsSentAsSoonAsItIsCertain) {
  HarmonyParser plain;
  EXPECT_EQ(plain.push("an").content, "");
  EXPECT_EQ(plain.push("d").content, "and");
  EXPECT_EQ(plain.push(" so<").content, " so");
  EXPECT_EQ(plain.push("|x").content, "<|x");
  HarmonyParser call;
  const auto arguments = [&](std::string_view piece) { return written(call.push(piece).calls); };
  EXPECT_EQ(arguments("<|channel|>commentary to=functions.f<|message|>\n"), "");
  EXPECT_EQ(arguments("{"), "f(\n{)");
  EXPECT_EQ(arguments("\"x\""), "(\"x\")");
  HarmonyParser unmarked;
  EXPECT_EQ(written(unmarked.push("<|channel|>commentary to=functions.f {\"x").calls), "f({\"x)");
}

TEST(HarmonyParser, PartsKeepTheOrderInWhichTheyWereWritten) {
  const ParsedOutput output = parse(
      "<|channel|>final<|message|>one<|end|><|start|>assistant<|channel|>analysis<|message|>"
      "two<|end|><|start|>assistant<|channel|>final<|message|>three");
  EXPECT_THAT(output.order, ElementsAre(ParsedOutput::Run{OutputKind::content, 3},
                                        ParsedOutput::Run{OutputKind::reasoning, 3},
                                        ParsedOutput::Run{OutputKind::content, 5}));
}

TEST(HarmonyParser, SaysWhatTheTextStandsIn) {
  HarmonyParser parser;
  const auto after = [&](std::string_view text) {
    parser.push(text);
    return parser.section();
  };
  EXPECT_EQ(after("<|channel|>analysis"), OutputSection::form);
  EXPECT_EQ(after("<|message|>"), OutputSection::reasoning);
  EXPECT_EQ(after("<|end|>"), OutputSection::form);
  EXPECT_EQ(after("<|channel|>commentary to=functions.f<|message|>{"), OutputSection::call);
  EXPECT_EQ(after("<|call|>Well"), OutputSection::content);
}

TEST(HarmonyParser, WordsThatAreTooLongAreNoRecipients) {
  const std::string name(300, 'x');
  const ParsedOutput output = parse_bytes(cat("<|channel|>final to=", name, "<|message|>a"));
  EXPECT_EQ(output.content, cat("to=", name, "a"));
  expect_same(output, parse_in_pieces(cat("<|channel|>final to=", name, "<|message|>a"), 0, 0),
              "whole");
}

// A text of marks, words of the form and other words, each of which occurs once.
struct RandomText {
  std::string text;
  std::vector<std::string> words;
};

RandomText random_text(std::mt19937& random) {
  constexpr auto parts = std::to_array<std::string_view>({"<|start|>",
                                                          "<|channel|>",
                                                          "<|constrain|>",
                                                          "<|message|>",
                                                          "<|end|>",
                                                          "<|call|>",
                                                          "<|return|>",
                                                          "<|start|>assistant",
                                                          "assistant",
                                                          "analysis",
                                                          "commentary",
                                                          "final",
                                                          "json",
                                                          " ",
                                                          "\n",
                                                          "<",
                                                          "<|",
                                                          "{",
                                                          "}",
                                                          "to=",
                                                          "to=functions.",
                                                          " to=assistant"});
  RandomText made;
  const std::size_t count = 1 + random() % 14;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t choice = random() % (parts.size() + 10);
    if (choice < parts.size()) {
      made.text += parts[choice];
      continue;
    }
    made.words.push_back(cat("w", i, "x"));
    constexpr auto before = std::to_array<std::string_view>({"", " ", " to=", "to=functions."});
    constexpr auto after = std::to_array<std::string_view>({"", " "});
    made.text +=
        cat(before[random() % before.size()], made.words.back(), after[random() % after.size()]);
  }
  return made;
}

TEST(HarmonyParser, EveryWordComesOutHoweverTheTextIsCut) {
  std::mt19937 random(20);
  for (int round = 0; round < 20'000; ++round) {
    const RandomText made = random_text(random);
    SCOPED_TRACE(made.text);
    const ParsedOutput whole = parse_in_pieces(made.text, 0, made.text.size());
    const std::string parts = cat(whole.reasoning, "\n", whole.content, "\n", written(whole.calls));
    for (const std::string& word : made.words)
      EXPECT_NE(parts.find(word), std::string::npos) << word << " is not in:\n" << parts;
    expect_same(parse_bytes(made.text), whole, "every byte");
    for (std::size_t cut = 0; cut <= made.text.size(); ++cut)
      expect_same(parse_in_pieces(made.text, cut, cut), whole, cat(cut));
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace motley::serving
