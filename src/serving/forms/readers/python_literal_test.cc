#include "serving/forms/readers/python_literal.h"

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/utf8.h"

namespace motley::serving {
namespace {

// Its JSON, or "none". The JSON must be valid.
std::string json_of(std::string_view text) {
  const auto written = python_literal_to_json(text);
  if (!written) return "none";
  EXPECT_TRUE(json::parse(*written, "written").ok()) << text << " became " << *written;
  EXPECT_TRUE(utf8::valid(*written)) << text << " became " << *written;
  return *written;
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(PythonLiteral, ConstantsOfPythonAndOfJson) {
  EXPECT_EQ(json_of("None"), "null");
  EXPECT_EQ(json_of(" True\n"), "true");
  EXPECT_EQ(json_of("False"), "false");
  EXPECT_EQ(json_of("[null, true, false]"), "[null,true,false]");
}

TEST(PythonLiteral, WhatIsNone) {
  for (const std::string_view text :
       {"",          " ",     "x",        "true1", "TRUE", "none",     "nan",     "inf",
        "-inf",      "NaN",   "Infinity", "f()",   "1 2",  "1,",       "1, 2",    "{1}",
        "{1, 2}",    "[1",    "[1, 2",    "(1",    "{'a'", "{'a':",    "{'a': 1", "[,]",
        "[1,,]",     "(,)",   "{,}",      "[1)",   "(1]",  "{(1): 2}", "{[]: 1}", "{'a': 1 'b': 2}",
        "'a",        "'",     "'''a''",   "'a\\'", "b'a'", "f'a'",     "1 + 2",   "[1] + [2]",
        "'a' + 'b'", "set()", "...",      "]",     "1j",   "not True", "-True",   "--5",
        "'a' 5"})
    EXPECT_EQ(json_of(text), "none") << text;
}

TEST(PythonLiteral, NumbersKeepTheirDigits) {
  EXPECT_EQ(json_of("0"), "0");
  EXPECT_EQ(json_of("-12"), "-12");
  EXPECT_EQ(json_of("+12"), "12");
  EXPECT_EQ(json_of("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(json_of("1_000_000"), "1000000");
  EXPECT_EQ(json_of("00"), "0");
  EXPECT_EQ(json_of("1.50"), "1.50");
  EXPECT_EQ(json_of("1."), "1.0");
  EXPECT_EQ(json_of("-.5"), "-0.5");
  EXPECT_EQ(json_of("01.5"), "1.5");
  EXPECT_EQ(json_of("1E5"), "1e5");
  EXPECT_EQ(json_of("2.e+07"), "2.0e07");
  EXPECT_EQ(json_of("1e-5"), "1e-5");
  EXPECT_EQ(json_of("0xFf"), "255");
  EXPECT_EQ(json_of("-0b101"), "-5");
  EXPECT_EQ(json_of("0o17"), "15");
}

TEST(PythonLiteral, WhatIsNoNumber) {
  for (const std::string_view text :
       {"007", "1__0", "_1", "1_", "1e", "1e+", ".", "+", "-", "+-1", "0x", "0xg", "1.2.3", "1e1.5",
        "0x1FFFFFFFFFFFFFFFFF", "1e999", "-1e999"})
    EXPECT_EQ(json_of(text), "none") << text;
  EXPECT_EQ(json_of(repeated("9", 308)), repeated("9", 308));
  EXPECT_EQ(json_of(repeated("9", 400)), "none");
}

TEST(PythonLiteral, StringsInAnyQuotes) {
  EXPECT_EQ(json_of("''"), R"("")");
  EXPECT_EQ(json_of("'a \"b\"'"), R"("a \"b\"")");
  EXPECT_EQ(json_of("\"it's\""), R"("it's")");
  EXPECT_EQ(json_of("'''a'b''c\n'''"), R"("a'b''c\n")");
  EXPECT_EQ(json_of("\"\"\"\"a\"\"\""), R"("\"a")");
  EXPECT_EQ(json_of("''''''"), R"("")");
  EXPECT_EQ(json_of("u'a'"), R"("a")");
  EXPECT_EQ(json_of("'a' \"b\"\n r'\\c'"), R"("ab\\c")");
  EXPECT_EQ(json_of("'a\nb'"), R"("a\nb")");
}

TEST(PythonLiteral, EscapesAreThoseOfPython) {
  EXPECT_EQ(json_of(R"('\n\t\r\\\'\"')"), R"("\n\t\r\\'\"")");
  EXPECT_EQ(json_of(R"('\a\b\f\v')"), R"("\u0007\u0008\u000c\u000b")");
  EXPECT_EQ(json_of(R"('\x41\xe9')"), "\"A\xC3\xA9\"");
  EXPECT_EQ(json_of(R"('\u20ac\U0001F600')"), "\"\xE2\x82\xAC\xF0\x9F\x98\x80\"");
  EXPECT_EQ(json_of(R"('\0\1018')"), R"("\u0000A8")");
  EXPECT_EQ(json_of("'a\\\nb\\\r\nc'"), R"("abc")");
  EXPECT_EQ(json_of(R"('\d\/\ \8')"), R"("\\d\\/\\ \\8")");
  EXPECT_EQ(json_of(R"(r'\n\'')"), R"("\\n\\'")");
  EXPECT_EQ(json_of(R"(R"\\")"), R"("\\\\")");
  for (const std::string_view text :
       {R"('\x4')", R"('\xg0')", R"('\u123')", R"('\U0011FFFF')", R"('\UFFFFFFFF')", R"('\U1234')",
        R"('\N{BULLET}')", R"('\x-1')", R"(r'\')"})
    EXPECT_EQ(json_of(text), "none") << text;
}

TEST(PythonLiteral, TextIsValidUtf8) {
  EXPECT_EQ(json_of(R"('\ud83d\ude00')"), "\"\xF0\x9F\x98\x80\"");
  EXPECT_EQ(json_of(R"('\ud83d \ude00')"), "\"\xEF\xBF\xBD \xEF\xBF\xBD\"");
  EXPECT_EQ(json_of(R"('\ud83d\u0041')"),
            "\"\xEF\xBF\xBD"
            "A\"");
  EXPECT_EQ(json_of(R"('\U0000d83d')"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(json_of("'\xC3'"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(json_of(std::string_view("'\0'", 3)), R"("\u0000")");
}

TEST(PythonLiteral, ListsTuplesAndDicts) {
  EXPECT_EQ(json_of("[]"), "[]");
  EXPECT_EQ(json_of("[ 1, 'a' ,[None] , ]"), R"([1,"a",[null]])");
  EXPECT_EQ(json_of("()"), "[]");
  EXPECT_EQ(json_of("(1,)"), "[1]");
  EXPECT_EQ(json_of("(1, 2)"), "[1,2]");
  EXPECT_EQ(json_of("((1, 2), ('a'), ((),))"), R"([[1,2],"a",[[]]])");
  EXPECT_EQ(json_of("{}"), "{}");
  EXPECT_EQ(json_of("{'a': 1, \"b\": {'c': (True, None)},\n}"), R"({"a":1,"b":{"c":[true,null]}})");
}

TEST(PythonLiteral, KeysAreStringsAndThereOnce) {
  EXPECT_EQ(json_of("{1: 'a', -1.5: 'b', None: 'c', True: 'd'}"),
            R"({"1":"a","-1.5":"b","null":"c","true":"d"})");
  EXPECT_EQ(json_of("{'a': 1, 'b': 2, 'a': [3]}"), R"({"a":[3],"b":2})");
  EXPECT_EQ(json_of("{1: 1, '1': 2, '\\x31': 3}"), R"({"1":3})");
  // Both are U+FFFD.
  EXPECT_EQ(json_of("{'\xFE': 1, '\xFF': 2}"), "{\"\xEF\xBF\xBD\":2}");
}

TEST(PythonLiteral, DepthIsBounded) {
  EXPECT_EQ(json_of(cat(repeated("[", 64), repeated("]", 64))),
            cat(repeated("[", 64), repeated("]", 64)));
  EXPECT_EQ(json_of(cat(repeated("[", 65), repeated("]", 65))), "none");
  EXPECT_EQ(json_of(cat(repeated("(", 64), "1", repeated(")", 64))), "1");
  EXPECT_EQ(json_of(cat(repeated("(", 65), "1", repeated(")", 65))), "none");
  EXPECT_EQ(json_of(cat(repeated("{'a':", 64), "1", repeated("}", 64))),
            cat(repeated("{\"a\":", 64), "1", repeated("}", 64)));
  EXPECT_EQ(json_of(cat(repeated("{'a':", 65), "1", repeated("}", 65))), "none");
  EXPECT_EQ(json_of(repeated("[", 1'000'000)), "none");
}

// The extent of the literal, checked for every division into three pieces.
std::string extent_of(std::string_view text) {
  LiteralExtent all;
  const std::size_t whole = all.take(text);
  EXPECT_EQ(all.ended(), whole < text.size()) << text;
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      LiteralExtent extent;
      const std::size_t taken = extent.take(text.substr(0, first)) +
                                extent.take(text.substr(first, second - first)) +
                                extent.take(text.substr(second));
      EXPECT_EQ(taken, whole) << text << " cut at " << first << " and " << second;
      EXPECT_EQ(extent.ended(), all.ended()) << text << " cut at " << first << " and " << second;
    }
  }
  return std::string(text.substr(0, whole));
}

TEST(LiteralExtent, EndsBeforeWhatStandsBehindTheLiteral) {
  EXPECT_EQ(extent_of("5, b=6)"), "5");
  EXPECT_EQ(extent_of("5)]"), "5");
  EXPECT_EQ(extent_of("None]"), "None");
  EXPECT_EQ(extent_of(" 'a' }"), " 'a' ");
  EXPECT_EQ(extent_of(",5"), "");
  EXPECT_EQ(extent_of("[1, (2, 3), {'a': 4}], 5"), "[1, (2, 3), {'a': 4}]");
  EXPECT_EQ(extent_of("(1, 2))"), "(1, 2)");
  EXPECT_EQ(extent_of("[1, 2"), "[1, 2");
}

TEST(LiteralExtent, QuotesHideWhatIsInThem) {
  EXPECT_EQ(extent_of("'a,)]}', 1"), "'a,)]}'");
  EXPECT_EQ(extent_of("\"',\", 1"), "\"',\"");
  EXPECT_EQ(extent_of(R"('a\',b\\', 1)"), R"('a\',b\\')");
  EXPECT_EQ(extent_of(R"('\\',')"), R"('\\')");
  EXPECT_EQ(extent_of("'', 1"), "''");
  EXPECT_EQ(extent_of("''"), "''");
  EXPECT_EQ(extent_of("''',','',''', 1"), "''',','','''");
  EXPECT_EQ(extent_of("'''a\\''',', 1"), "'''a\\''',', 1");
  EXPECT_EQ(extent_of("'''''', 1"), "''''''");
  EXPECT_EQ(extent_of("'a''b', 1"), "'a''b'");
  EXPECT_EQ(extent_of("['(', '[']) "), "['(', '[']");
}

}  // namespace
}  // namespace motley::serving
