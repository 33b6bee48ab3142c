#include "base/json/json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/utf8.h"

namespace motley::json {
namespace {

using testing::HasSubstr;

Value parsed(std::string_view text) {
  auto value = parse(text, "input");
  EXPECT_TRUE(value.ok()) << text << "\n" << value.error().message();
  return value.ok() ? *std::move(value) : Value();
}

// The message of a text that must be refused.
std::string refusal(std::string_view text, const ParseLimits& limits = {}) {
  const auto value = parse(text, "input", limits);
  EXPECT_FALSE(value.ok()) << text << " gives " << (value.ok() ? write(*value) : "");
  return value.ok() ? "" : value.error().message();
}

std::string round_trip(std::string_view text) { return write(parsed(text)); }

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(JsonParse, ReadsEveryKindOfValue) {
  EXPECT_TRUE(parsed("null").is_null());
  EXPECT_EQ(*parsed("true").if_boolean(), true);
  EXPECT_EQ(*parsed("false").if_boolean(), false);
  EXPECT_EQ(*parsed("12").if_integer(), 12);
  EXPECT_EQ(parsed("1.5").as_number("").value(), 1.5);
  EXPECT_EQ(*parsed("\"text\"").if_string(), "text");
  EXPECT_TRUE(parsed("[]").if_array()->empty());
  EXPECT_TRUE(parsed("{}").if_object()->empty());
}

TEST(JsonParse, AcceptsWhatTheStandardAllows) {
  const std::vector<std::string> texts = {
      " \t\r\n[ 1 , 2 ]\n",
      "[[],{},[[]],\"\",0]",
      "{\"\":0}",
      "{\"a\":{\"a\":{\"a\":1}}}",
      "[0,-0,0.0,-0.0,0e0,0E+1,1e-1,1.25E+10,-12.5e-3]",
      "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"",
      "\"\x7f\"",
      "\"\\u0000\"",
      "\"\xe2\x80\xa8\xe2\x80\xa9\"",
      "\"\xef\xbf\xbf\xf4\x8f\xbf\xbf\"",
  };
  for (const std::string& text : texts) EXPECT_TRUE(parse(text, "input").ok()) << text;
}

const std::string_view forbidden[] = {
    "",
    " ",
    "[",
    "]",
    "{",
    "}",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[,]",
    "[1 2]",
    "[1,,2]",
    "[1]]",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{,}",
    "{\"a\" 1}",
    "{a:1}",
    "{1:1}",
    "{null:1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\"::1}",
    "[1}",
    "{\"a\":1]",
    "nul",
    "tru",
    "fals",
    "nulll",
    "True",
    "NULL",
    "undefined",
    "NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "inf",
    "+1",
    "01",
    "-01",
    "1.",
    ".5",
    "-.5",
    "-",
    "1e",
    "1e+",
    "1.e1",
    "0x10",
    "1_000",
    "1,000",
    "--1",
    "1e1.5",
    "'a'",
    "\"a",
    "\"",
    "\"\\\"",
    "\"\\x41\"",
    "\"\\a\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\U00000041\"",
    "\"a\nb\"",
    "\"a\tb\"",
    "\"\x01\"",
    "\"\x1f\"",
    "1 2",
    "1,",
    "null null",
    "{}{}",
    "[] x",
    "// note\n1",
    "1 // note",
    "/* note */ 1",
    "# note",
    "\\n1",
    "\xc2\xa0 1",
    "\x0c 1",
    "\xef\xbb 1",
    "\xfe\xff",
};

TEST(JsonParse, RefusesWhatTheStandardForbids) {
  for (const std::string_view text : forbidden)
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON")) << text;
}

TEST(JsonParse, RefusesAZeroByteAnywhere) {
  const std::string_view texts[] = {{"\0", 1},       {"1\0", 2},          {"{}\0{}", 5},
                                    {"[1,\0 2]", 7}, {"\"a\0b\"", 5},     {"\0null", 5},
                                    {"1\0\0\0", 4},  {"{\"a\":1}\0x", 9}, {"1 \0", 3}};
  for (const std::string_view text : texts)
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON at '\\x00' (input, line 1, column "))
        << printable(text);
}

TEST(JsonParse, RefusesAByteOrderMark) {
  for (const char* rest : {"", "5", "{}"})
    EXPECT_EQ(refusal(cat("\xef\xbb\xbf", rest)),
              "JSON that begins with a byte-order mark (input, line 1, column 1): save it as UTF-8 "
              "without the mark");
}

TEST(JsonParse, ErrorsNameThePlace) {
  struct Case {
    std::string text;
    std::string found;
    int line;
    int column;
  };
  const std::vector<Case> cases = {
      {"", "the end", 1, 1},
      {"[1,\n2", "the end", 2, 2},
      {"[\n", "the end", 2, 1},
      {"\"abc", "the end", 1, 5},
      {"tru", "the end", 1, 4},
      {"x", "'x'", 1, 1},
      {"  x", "'x'", 1, 3},
      {"[1,]", "']'", 1, 4},
      {"[[[ ]}", "'}'", 1, 6},
      {"{\n  \"a\": 1,\n  \"b\" 2\n}", "'2'", 3, 7},
      {"[1 234]", "'234'", 1, 4},
      {"[1 -2.5e7]", "'-2.5e7'", 1, 4},
      {"[1 \"abc\"]", "'\"abc\"'", 1, 4},
      {"[1 true]", "'true'", 1, 4},
      {"[1 false]", "'false'", 1, 4},
      {"{\"a\": 1, null: 2}", "'null'", 1, 10},
      {"[nuxl]", "'x'", 1, 4},
      {"[NaN]", "'N'", 1, 2},
      {"[01]", "'1'", 1, 3},
      {"[1.]", "']'", 1, 4},
      {"[\"a\nb\"]", "'\\n'", 1, 4},
      {"[\"a\\qb\"]", "'q'", 1, 5},
      {"[\"\xc3\xa9\xe2\x82\xac\", x]", "'x'", 1, 8},
      {"[\"a\xff\"]", "'\\xff'", 1, 4},
      {"[\"a\xe2\x82(\"]", "'\\xe2\\x82'", 1, 4},
      {"[\xc3\xa9]", "'\xc3\xa9'", 1, 2},
      {"[1]\n\n  [2]", "'['", 3, 3},
      {"{\"a\":1}\r\n}", "'}'", 2, 1},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(refusal(c.text), cat("not valid JSON at ", c.found, " (input, line ", c.line,
                                   ", column ", c.column, "): correct the text there"))
        << c.text;
  }
}

TEST(JsonParse, ErrorsAreInvalidArgumentsOnOneLine) {
  for (const std::string& text :
       {std::string("[\n\n\x01"), std::string("\"\xff\n"), repeated("x", 100'000)}) {
    const auto value = parse(text, "a\nb");
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.error().code(), ErrorCode::invalid_argument);
    EXPECT_EQ(value.error().message().find('\n'), std::string::npos);
    EXPECT_LT(value.error().message().size(), 1000U);
  }
}

TEST(JsonParse, IntegersFill64BitsAndLargerOnesAreFloats) {
  EXPECT_EQ(*parsed("9223372036854775807").if_integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(*parsed("-9223372036854775808").if_integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(*parsed("9007199254740993").if_integer(), 9007199254740993);
  for (const auto& [text, wanted] :
       std::vector<std::pair<std::string, double>>{{"9223372036854775808", 0x1p63},
                                                   {"18446744073709551615", 0x1p64},
                                                   {"18446744073709551616", 0x1p64},
                                                   {"-9223372036854775809", -0x1p63},
                                                   {"1" + std::string(300, '0'), 1e300}}) {
    const Value value = parsed(text);
    EXPECT_EQ(value.kind(), Kind::number) << text;
    EXPECT_EQ(value.as_number("").value(), wanted) << text;
    EXPECT_FALSE(value.as_integer("").ok()) << text;
  }
}

TEST(JsonParse, IntegersBeyond64BitsKeepTheirDigits) {
  const std::string longest = "17" + std::string(307, '6');  // below 1.797e308
  for (const std::string& text :
       {std::string("9223372036854775808"), std::string("18446744073709551615"),
        std::string("12345678901234567890"), std::string("-9223372036854775809"),
        std::string("-123456789012345678901234567890"), longest}) {
    const Value value = parsed(text);
    EXPECT_EQ(*value.if_big_integer(), text);
    EXPECT_EQ(value.if_integer(), nullptr);
    EXPECT_EQ(write(value), text);
    EXPECT_EQ(round_trip("{\"a\":[" + text + "]}"), "{\"a\":[" + text + "]}");
    EXPECT_EQ(value.as_integer("n").error().message(),
              "an integer beyond 64 bits (n): give a smaller one");
  }
  EXPECT_EQ(parsed("12345678901234567890").as_number("").value(), 12345678901234567890.0);
  EXPECT_EQ(parsed("-9223372036854775808").if_big_integer(), nullptr);
  EXPECT_EQ(parsed("1e20").if_big_integer(), nullptr);
  EXPECT_EQ(parsed("100000000000000000000.0").if_big_integer(), nullptr);
}

TEST(JsonParse, FractionOrExponentMakesAFloat) {
  for (const char* text : {"1.0", "1e0", "1E2", "-0.0", "0e5"})
    EXPECT_EQ(parsed(text).kind(), Kind::number) << text;
  EXPECT_EQ(*parsed("-0").if_integer(), 0);
  EXPECT_TRUE(std::signbit(parsed("-0.0").as_number("").value()));
  EXPECT_EQ(parsed("1e-400").as_number("").value(), 0.0);
  EXPECT_EQ(parsed("2.2250738585072011e-308").as_number("").value(), 2.2250738585072011e-308);
}

TEST(JsonParse, RefusesNumbersBeyondAFloat) {
  EXPECT_EQ(refusal("[1, 1e400]"),
            "the number '1e400' is beyond the range of a 64-bit float (input, line 1, column 5): "
            "write a smaller one");
  EXPECT_THAT(refusal("-1e309"), HasSubstr("'-1e309' is beyond the range"));
  EXPECT_THAT(refusal("1" + std::string(400, '0')), HasSubstr("is beyond the range"));
}

TEST(JsonParse, DecodesEscapes) {
  EXPECT_EQ(*parsed(R"("\"\\\/\b\f\n\r\t")").if_string(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(*parsed(R"("\u0041\u00e9\u20AC\u20ac")").if_string(), "A\u00e9\u20ac\u20ac");
  EXPECT_EQ(*parsed(R"("\uD83D\uDE00")").if_string(), "\U0001F600");
  EXPECT_EQ(*parsed(R"("\uDBFF\uDFFF")").if_string(), "\U0010FFFF");
  EXPECT_EQ(*parsed(R"("a\u0000b")").if_string(), std::string("a\0b", 3));
  EXPECT_EQ(*parsed(R"({"\u0061":1})").if_object()->find("a")->if_integer(), 1);
}

TEST(JsonParse, RefusesHalvesOfSurrogatePairs) {
  for (const char* text : {R"("\uD83D")", R"("\uDE00")", R"("\uD83Dx")", R"("\uD83D\n")",
                           R"("\uD83D\uD83D")", R"("\uDE00\uD83D")", R"("\uD83D\u0041")"})
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON")) << text;
}

TEST(JsonParse, RefusesBrokenUtf8) {
  for (const char* broken : {"\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                             "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xf0\x9f\x98"}) {
    EXPECT_THAT(refusal(cat("\"", broken, "\"")), HasSubstr("not valid JSON")) << broken;
    EXPECT_THAT(refusal(cat("{\"", broken, "\":1}")), HasSubstr("not valid JSON")) << broken;
  }
}

TEST(JsonParse, RefusesKeyTwiceInOneObject) {
  for (const std::size_t members : {2, 7, 8, 9, 100}) {
    for (const std::size_t twice : {std::size_t{0}, (members - 1) / 2, members - 2}) {
      std::string text = "{";
      for (std::size_t i = 0; i + 1 < members; ++i) text += cat("\"k", i, "\":", i, ",");
      text += cat("\"k", twice, "\":0}");
      EXPECT_EQ(refusal(text),
                cat("key 'k", twice, "' twice in one object (input): keep one of them"))
          << members;
    }
  }
  EXPECT_THAT(refusal(R"({"a":1,"\u0061":2})"), HasSubstr("key 'a' twice"));
  EXPECT_EQ(
      write(parse(R"({"a":1,"b":{"c":1,"c":[2]},"\u0061":2})", "x", {.last_of_key = true}).value()),
      R"({"b":{"c":[2]},"a":2})");
  EXPECT_THAT(refusal(R"([{"x":{"a":1,"b":2,"a":3}}])"), HasSubstr("key 'a' twice"));
  EXPECT_EQ(refusal(R"({"x":{},"y":{"z":{"a":1,"a":2}}})"),
            "key 'a' twice in one object (input, in 'y'): keep one of them");
  EXPECT_EQ(round_trip(R"({"a":{"a":1},"b":{"a":2}})"), R"({"a":{"a":1},"b":{"a":2}})");
}

TEST(JsonParse, FindsEveryKeyInObjectsOfAnySize) {
  for (const int members : {0, 1, 2, 7, 8, 9, 100, 1000}) {
    std::string text = "{";
    for (int i = 0; i < members; ++i)
      text += cat(i == 0 ? "" : ",", "\"k", (i * 7919) % members, "\":", i);
    const Value value = parsed(text + "}");
    const Object& object = *value.if_object();
    ASSERT_EQ(object.size(), static_cast<std::size_t>(members));
    for (int i = 0; i < members; ++i) {
      const std::string key = cat("k", (i * 7919) % members);
      ASSERT_NE(object.find(key), nullptr) << key << " of " << members;
      EXPECT_EQ(*object.find(key)->if_integer(), i) << key << " of " << members;
      EXPECT_EQ(object.members()[static_cast<std::size_t>(i)].key, key) << "order is kept";
    }
    for (const char* missing : {"", "k", "zz", "A", "k01"}) EXPECT_FALSE(object.contains(missing));
  }
}

TEST(JsonParse, DepthHasALimit) {
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"[", "]"}, {"{\"a\":", "}"}}) {
    const std::string inner = open == "[" ? "" : "1";
    EXPECT_TRUE(parse(repeated(open, 64) + inner + repeated(close, 64), "input").ok());
    EXPECT_EQ(refusal(repeated(open, 65) + inner + repeated(close, 65)),
              cat("JSON nested deeper than 64 (input", open == "[" ? "" : ", in 'a'",
                  "): make it flatter"));
  }
  EXPECT_TRUE(parse("1", "input", {.depth = 0}).ok());
  EXPECT_THAT(refusal("[]", {.depth = 0}), HasSubstr("deeper than 0"));
  EXPECT_TRUE(parse("[[],[],[]]", "input", {.depth = 2}).ok());
}

TEST(JsonParse, MillionsOfBracketsDoNotOverflowTheStack) {
  for (const char* open : {"[", "{\"a\":", "[{\"a\":"})
    EXPECT_THAT(refusal(repeated(open, 1'000'000)), HasSubstr("deeper than 64"));
}

TEST(JsonParse, DeepestAllowedValueIsWrittenAndDestroyed) {
  const std::string text = repeated("[", 1000) + repeated("]", 1000);
  const auto value = parse(text, "input", {.depth = 1000});
  ASSERT_TRUE(value.ok()) << value.error().message();
  EXPECT_EQ(write(*value), text);
}

TEST(JsonParseDeathTest, DepthThatCouldOverflowTheStackAborts) {
  EXPECT_DEATH(static_cast<void>(parse("1", "input", {.depth = 1001})), "broken invariant");
}

TEST(JsonParse, NumberOfValuesHasALimit) {
  EXPECT_TRUE(parse("[1,2,3]", "input", {.values = 4}).ok());
  EXPECT_EQ(refusal("[1,2,3]", {.values = 3}), "more than 3 JSON values (input): make it smaller");
  EXPECT_TRUE(parse(R"({"a":1,"b":[]})", "input", {.values = 3}).ok());
  EXPECT_THAT(refusal(R"({"a":1,"b":[]})", {.values = 2}), HasSubstr("more than 2"));
}

TEST(JsonValue, WrongKindSaysWhatWasWantedAndFound) {
  const Value text = "5";
  EXPECT_EQ(text.as_integer("rank").error().message(),
            "expected an integer, found a string (rank): make it an integer");
  EXPECT_EQ(Value(1.5).as_integer("rank").error().what(), "expected an integer, found a number");
  EXPECT_EQ(Value().as_object("a").error().what(), "expected an object, found null");
  EXPECT_EQ(Value(true).as_array("a").error().what(), "expected a list, found true or false");
  EXPECT_EQ(Value(Array()).as_string("a").error().what(), "expected a string, found a list");
  EXPECT_EQ(Value(Object()).as_number("a").error().what(), "expected a number, found an object");
  EXPECT_EQ(Value(1).as_boolean("a").error().what(), "expected true or false, found an integer");
}

TEST(JsonValue, GivesItsValueOnlyAsItsKind) {
  EXPECT_EQ(Value(3).as_number("").value(), 3.0);
  EXPECT_EQ(Value(3).as_integer("").value(), 3);
  EXPECT_EQ(Value(true).as_boolean("").value(), true);
  EXPECT_EQ(*Value("a").as_string("").value(), "a");
  const Value values[] = {Value(),    Value(true),    Value(1),       Value(1.5),
                          Value("a"), Value(Array()), Value(Object())};
  for (std::size_t i = 0; i < std::size(values); ++i) {
    const Value& value = values[i];
    EXPECT_EQ(static_cast<std::size_t>(value.kind()), i);
    EXPECT_EQ(value.is_null(), i == 0);
    EXPECT_EQ(value.if_boolean() != nullptr, i == 1);
    EXPECT_EQ(value.if_integer() != nullptr, i == 2);
    EXPECT_EQ(value.as_number("").ok(), i == 2 || i == 3);
    EXPECT_EQ(value.if_string() != nullptr, i == 4);
    EXPECT_EQ(value.if_array() != nullptr, i == 5);
    EXPECT_EQ(value.if_object() != nullptr, i == 6);
  }
}

TEST(JsonObject, AddAfterParseIsFound) {
  Value value = parsed(R"({"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":1})");
  Object object = *value.if_object();
  object.add("0", 2);
  EXPECT_EQ(*object.find("0")->if_integer(), 2);
  EXPECT_EQ(*object.find("a")->if_integer(), 1);
  EXPECT_EQ(write(object), R"({"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":1,"0":2})");
}

TEST(JsonWrite, IsCompactAndKeepsTheOrderOfKeys) {
  EXPECT_EQ(round_trip(" { \"z\" : [ 1 , null , true , false ] , \"a\" : { } , \"m\" : \"x\" } "),
            R"({"z":[1,null,true,false],"a":{},"m":"x"})");
}

TEST(JsonWrite, PrettyHasALineForEachMember) {
  EXPECT_EQ(write_pretty(parsed(R"({"a":[1,{"b":[]}],"c":{},"d":"x"})")),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ],\n  \"c\": {},\n"
            "  \"d\": \"x\"\n}");
  EXPECT_EQ(write_pretty(Value(1)), "1");
}

TEST(JsonWrite, EscapesStringsMinimally) {
  std::string every;
  for (int c = 0; c < 0x80; ++c) every += static_cast<char>(c);
  const std::string text = write(Value(every));
  EXPECT_EQ(*parsed(text).if_string(), every);
  EXPECT_TRUE(text.starts_with(
      R"("\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008\t\n\u000b\u000c\r\u000e)"))
      << text;
  EXPECT_THAT(text, HasSubstr(R"( !\"#$%&'()*+,-./0123)"));
  EXPECT_THAT(text, HasSubstr(R"([\\]^_)"));
  EXPECT_TRUE(text.ends_with(R"(~\u007f")")) << text;
  EXPECT_EQ(write(Value("\u00e9\u20ac\U0001F600")), "\"\u00e9\u20ac\U0001F600\"");
  EXPECT_EQ(write(Value("\u0080\u009f\u00a0")), "\"\\u0080\\u009f\u00a0\"");
}

TEST(JsonWrite, RepairsBrokenUtf8InStringsAndKeys) {
  EXPECT_EQ(write(Value("a\xff"
                        "b\xe2\x82")),
            "\"a\xef\xbf\xbd"
            "b\xef\xbf\xbd\"");
  Object object;
  object.add("\x80", 1);
  EXPECT_EQ(write(object), "{\"\xef\xbf\xbd\":1}");
}

TEST(JsonWrite, FloatsStayFloatsInTheShortestForm) {
  const std::vector<std::pair<double, std::string>> cases = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {-3.0, "-3.0"},
      {0.1, "0.1"},
      {1e5, "1e+05"},
      {1e22, "1e+22"},
      {123456.0, "123456.0"},
      {1.5e-7, "1.5e-07"},
      {0x1p63, "9.223372036854775808e+18"},  // checked by value below
      {std::numeric_limits<double>::denorm_min(), "5e-324"}};
  for (const auto& [number, wanted] : cases) {
    const std::string text = write(Value(number));
    if (number != 0x1p63) {
      EXPECT_EQ(text, wanted);
    }
    const Value back = parsed(text);
    EXPECT_EQ(back.kind(), Kind::number) << text;
    EXPECT_EQ(back.as_number("").value(), number) << text;
    EXPECT_EQ(std::signbit(back.as_number("").value()), std::signbit(number)) << text;
  }
  std::string single;
  append_number(single, 0.1F);
  EXPECT_EQ(single, "0.1");
}

TEST(JsonWrite, WhatJsonLacksBecomesNull) {
  for (const double number : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    EXPECT_EQ(write(Value(number)), "null");
  std::string text;
  append_number(text, std::numeric_limits<float>::infinity());
  EXPECT_EQ(text, "null");
}

TEST(JsonWrite, RandomFloatsReadBackTheSame) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 50'000; ++i) {
    const auto number = __builtin_bit_cast(double, static_cast<std::uint64_t>(random()));
    if (!std::isfinite(number)) continue;
    const auto back = parse(write(Value(number)), "input");
    ASSERT_TRUE(back.ok()) << back.error().message();
    ASSERT_EQ(back->kind(), Kind::number) << number;
    ASSERT_EQ(back->as_number("").value(), number);
  }
}

Value random_value(std::mt19937& random, int depth) {
  switch (random() % (depth == 0 ? 5 : 7)) {
    case 0:
      return {};
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<std::int64_t>((std::uint64_t{random()} << 32) | random());
    case 3:
      return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 600) - 300);
    case 4: {
      std::string text;
      for (std::size_t n = random() % 8; n > 0; --n) {
        const auto c = static_cast<char32_t>(random() % (random() % 2 == 0 ? 0x80 : 0x110000));
        utf8::append(text, c >= 0xD800 && c < 0xE000 ? U'?' : c);
      }
      return text;
    }
    case 5: {
      Array array;
      for (std::size_t n = random() % 6; n > 0; --n)
        array.push_back(random_value(random, depth - 1));
      return array;
    }
    default: {
      Object object;
      const std::size_t members = random() % 12;
      for (std::size_t i = 0; i < members; ++i)
        object.add(cat(random() % 100, "\n\u20ac", i), random_value(random, depth - 1));
      return object;
    }
  }
}

TEST(JsonWrite, RandomValuesSurviveWritingAndParsing) {
  std::mt19937 random(5);
  for (int i = 0; i < 2'000; ++i) {
    const Value value = random_value(random, 4);
    const std::string text = write(value);
    ASSERT_EQ(round_trip(text), text);
    ASSERT_EQ(round_trip(write_pretty(value)), text);
  }
}

TEST(JsonDescribe, NamesEveryKind) {
  for (int kind = 0; kind <= static_cast<int>(Kind::object); ++kind)
    EXPECT_NE(describe(static_cast<Kind>(kind)), "");
}

}  // namespace
}  // namespace motley::json
