#include "serving/forms/readers/argument_value.h"

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/utf8.h"

namespace motley::serving {
namespace {

using enum JsonType;

constexpr std::nullopt_t undeclared = std::nullopt;

std::string json_of(std::string_view text, const std::optional<JsonTypes>& types) {
  std::string written = argument_json(text, types);
  EXPECT_TRUE(json::parse(written, "written").ok()) << text << " became " << written;
  EXPECT_TRUE(utf8::valid(written)) << text << " became " << written;
  return written;
}

constexpr JsonTypes numbers = JsonTypes(integer) | number;

TEST(ArgumentValue, AStringIsTheTextAsGiven) {
  EXPECT_EQ(json_of("5", string), R"("5")");
  EXPECT_EQ(json_of(" a\n\"b\" ", string), R"(" a\n\"b\" ")");
  EXPECT_EQ(json_of("null", JsonTypes(string) | null), R"("null")");
  EXPECT_EQ(json_of("{\"a\": 1}", JsonTypes::all()), R"("{\"a\": 1}")");
  EXPECT_EQ(json_of("", string), R"("")");
  EXPECT_EQ(json_of("\xC3", string), "\"\xEF\xBF\xBD\"");
}

TEST(ArgumentValue, JsonThatIsAllowedStaysAsItIsWritten) {
  EXPECT_EQ(json_of(" 5\n", integer), "5");
  EXPECT_EQ(json_of("123456789012345678901234567890", integer), "123456789012345678901234567890");
  EXPECT_EQ(json_of("1.50", numbers), "1.50");
  EXPECT_EQ(json_of("\n[1, 2.0 ]\n", array), "[1, 2.0 ]");
  EXPECT_EQ(json_of("{\"a\" : null}", object), "{\"a\" : null}");
  EXPECT_EQ(json_of("null", JsonTypes(integer) | null), "null");
}

TEST(ArgumentValue, BooleansAndNullInAnyCase) {
  EXPECT_EQ(json_of("True", boolean), "true");
  EXPECT_EQ(json_of(" FALSE ", boolean), "false");
  EXPECT_EQ(json_of("None", JsonTypes(boolean) | null), "null");
  EXPECT_EQ(json_of("NULL", JsonTypes(integer) | null), "null");
  EXPECT_EQ(json_of("True", integer), R"("True")");
  EXPECT_EQ(json_of("None", boolean), R"("None")");
  EXPECT_EQ(json_of("truest", boolean), R"("truest")");
}

TEST(ArgumentValue, NumbersAsPythonWritesThem) {
  EXPECT_EQ(json_of("+5", integer), "5");
  EXPECT_EQ(json_of("+123456789012345678901234567890", integer), "123456789012345678901234567890");
  EXPECT_EQ(json_of(".5", numbers), "0.5");
  EXPECT_EQ(json_of("-5.", numbers), "-5.0");
  EXPECT_EQ(json_of("0x1F", integer), "31");
  EXPECT_EQ(json_of("1_000", integer), R"("1_000")");
  EXPECT_EQ(json_of("007", integer), R"("007")");
  EXPECT_EQ(json_of("(5)", integer), "\"(5)\"");
  EXPECT_EQ(json_of("NaN", numbers), R"("NaN")");
  EXPECT_EQ(json_of("1e999", numbers), R"("1e999")");
  EXPECT_EQ(json_of("+5", boolean), R"("+5")");
}

TEST(ArgumentValue, ListsAndObjectsAsPythonWritesThem) {
  EXPECT_EQ(json_of("['a', True]", array), R"(["a",true])");
  EXPECT_EQ(json_of("(1, 2)", array), "[1,2]");
  EXPECT_EQ(json_of("{'a': None}", object), R"({"a":null})");
  EXPECT_EQ(json_of("{'a': None}", array), R"("{'a': None}")");
  EXPECT_EQ(json_of("['a']", object), R"("['a']")");
  EXPECT_EQ(json_of("'a'", JsonTypes(array) | object), R"("'a'")");
  EXPECT_EQ(json_of("1_000", JsonTypes(array) | integer), R"("1_000")");
}

TEST(ArgumentValue, WhatIsNotDeclaredIsJsonOrAString) {
  EXPECT_EQ(json_of(" 5 ", undeclared), "5");
  EXPECT_EQ(json_of("\"a\"", undeclared), R"("a")");
  EXPECT_EQ(json_of("{\"a\": [0.10]}", undeclared), R"({"a": [0.10]})");
  EXPECT_EQ(json_of("True", undeclared), R"("True")");
  EXPECT_EQ(json_of("['a']", undeclared), R"("['a']")");
  EXPECT_EQ(json_of(" two words ", undeclared), R"(" two words ")");
}

TEST(ArgumentValue, WhatFitsNowhereIsNotBent) {
  EXPECT_EQ(json_of("5", boolean), "5");
  EXPECT_EQ(json_of("1.0", integer), "1.0");
  EXPECT_EQ(json_of(" \"5\" ", integer), R"("5")");
  EXPECT_EQ(json_of("null", integer), "null");
  EXPECT_EQ(json_of("[1]", object), "[1]");
  EXPECT_EQ(json_of("many ", integer), R"("many ")");
  EXPECT_EQ(json_of("", integer), R"("")");
  EXPECT_EQ(json_of("5", JsonTypes::none()), "5");
  EXPECT_EQ(json_of("five", JsonTypes::none()), R"("five")");
}

// JSON of each type, with all sets of allowed types: an allowed value stays as it is.
TEST(ArgumentValue, AnyJsonUnderAnyTypesStaysAValueOfItsOwn) {
  constexpr std::pair<JsonType, std::string_view> written[] = {
      {null, "null"},     {boolean, "true"}, {integer, "7"}, {number, "7.5"},
      {string, R"("s")"}, {array, "[7]"},    {object, "{}"}};
  for (unsigned bits = 0; bits < 128; ++bits) {
    JsonTypes types;
    for (unsigned i = 0; i < 7; ++i)
      if ((bits >> i & 1U) != 0) types = types | written[i].first;
    for (const auto& [type, text] : written) {
      const std::string expected =
          types.allows(string) ? json::write(json::Value(text)) : std::string(text);
      EXPECT_EQ(json_of(text, types), expected) << bits;
    }
  }
}

}  // namespace
}  // namespace motley::serving
