#include "server/api/calls/call_input.h"

#include <gtest/gtest.h>

#include "base/json/json.h"

namespace motley::server {
namespace {

struct Read {
  std::string passed;
  std::string whole;

  bool operator==(const Read&) const = default;
};

// The result must be the same wherever the text is split.
Read read(std::string_view text) {
  const auto in_two = [&](std::size_t cut) {
    CallInput input;
    std::string passed = input.take(text.substr(0, cut));
    passed += input.take(text.substr(cut));
    return Read{.passed = passed, .whole = input.whole(passed)};
  };
  const Read all = in_two(0);
  for (std::size_t cut = 1; cut <= text.size(); ++cut) EXPECT_EQ(in_two(cut), all) << cut;
  const auto parsed = json::parse(all.whole, "whole");
  EXPECT_TRUE(parsed.ok() && parsed->if_object() != nullptr) << all.whole;
  return all;
}

TEST(CallInput, AnObjectIsPassedOnAsItIs) {
  for (const std::string_view text :
       {R"({})", R"({"a": 1})",
        R"( {"a" : [1, -0.5e+3, 0, 20, {"b": "\u00e9\n\"x"}, []], "c":true} )",
        R"({"a": null, "b": false, "c": {}, "d": 12345678901234567890})"}) {
    const std::size_t begin = text.find('{');
    const std::string_view trimmed = text.substr(begin, text.rfind('}') + 1 - begin);
    EXPECT_EQ(read(text), (Read{std::string(trimmed), std::string(trimmed)})) << text;
  }
}

TEST(CallInput, OneThatIsCutOffHasItsCompleteMembers) {
  const auto whole = [](std::string_view text) {
    EXPECT_EQ(read(text).passed, text);
    return read(text).whole;
  };
  EXPECT_EQ(whole(""), "{}");
  EXPECT_EQ(whole("{"), "{}");
  EXPECT_EQ(whole(R"({"a)"), "{}");
  EXPECT_EQ(whole(R"({"a":)"), "{}");
  EXPECT_EQ(whole(R"({"a": "un)"), "{}");
  EXPECT_EQ(whole(R"({"a": "x", )"), R"({"a": "x"})");
  EXPECT_EQ(whole(R"({"a": 1, "b": tru)"), R"({"a": 1})");
  EXPECT_EQ(whole(R"({"a": 12)"), R"({"a": 12})");
  EXPECT_EQ(whole(R"({"a": 1, "b": 2.)"), R"({"a": 1})");
  EXPECT_EQ(whole(R"({"a": 1e-)"), "{}");
  EXPECT_EQ(whole(R"({"a": [{"b": 1}, {"c": "x)"), R"({"a": [{"b": 1}, {}]})");
}

TEST(CallInput, WhatIsNoJsonEndsIt) {
  EXPECT_EQ(read(" no"), (Read{"", "{}"}));
  EXPECT_EQ(read("[1]"), (Read{"", "{}"}));
  EXPECT_EQ(read(R"({"a": 1, 'b': 2})"), (Read{R"({"a": 1, )", R"({"a": 1})"}));
  EXPECT_EQ(read(R"({"a": [1, 2}})"), (Read{R"({"a": [1, 2)", R"({"a": [1, 2]})"}));
  EXPECT_EQ(read(R"({"a": 01})"), (Read{R"({"a": 0)", R"({"a": 0})"}));
  EXPECT_EQ(read(R"({"a": nil})"), (Read{R"({"a": n)", "{}"}));
  EXPECT_EQ(read(R"({"a": "\x"})"), (Read{R"({"a": "\)", "{}"}));
  EXPECT_EQ(read(R"({"a": 1} and more)"), (Read{R"({"a": 1})", R"({"a": 1})"}));
  EXPECT_EQ(read(R"({"a": 1,})"), (Read{R"({"a": 1,)", R"({"a": 1})"}));
}

TEST(CallInput, LinesInStringsAreEscaped) {
  EXPECT_EQ(read("{\"a\":\n\"one\ntwo\t\"}").whole, "{\"a\":\n\"one\\u000atwo\\u0009\"}");
}

TEST(CallInput, DepthHasAnEnd) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100; ++i) deep += '[';
  CallInput input;
  const std::string passed = input.take(deep);
  EXPECT_EQ(passed.size(), 5U + 49U);
  EXPECT_TRUE(json::parse(input.whole(passed), "whole", {.depth = 50}).ok());
}

}  // namespace
}  // namespace motley::server
