#include "grammar/check/check.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::grammar {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string schema_error(std::string_view text) {
  const Result<void> checked = check_schema(text, "JSON schema");
  return checked.ok() ? "" : checked.error().message();
}
std::string regex_error(std::string_view text) {
  const Result<void> checked = check_regex(text, "regex");
  return checked.ok() ? "" : checked.error().message();
}
std::string ebnf_error(std::string_view text) {
  const Result<void> checked = check_ebnf(text, "grammar");
  return checked.ok() ? "" : checked.error().message();
}

TEST(CheckStructuralTag, LooksAtEveryPartThatClientsWrite) {
  const auto error = [](std::string_view format) {
    const Result<void> checked =
        check_structural_tag(cat(R"({"type": "structural_tag", "format": )", format, "}"), "tags");
    return checked.ok() ? "" : checked.error().message();
  };
  EXPECT_EQ(error(R"({"type": "sequence", "elements": [{"type": "regex", "pattern": "a{3}"},
                      {"type": "grammar", "grammar": "root ::= \"a\""}]})"),
            "");
  EXPECT_NE(error(R"({"type": "regex", "pattern": "a{1000000000}"})"), "");
  EXPECT_NE(error(R"({"elements": [{"grammar": "root ::= \"a\"{1000000000}"}]})"), "");
  EXPECT_NE(error(R"({"type": "repeat", "min": 0, "max": 1000000000})"), "");
  EXPECT_NE(error(R"({"json_schema": {"minItems": 1000000000}})"), "");
}

TEST(CheckSchema, TakesWhatPeopleWrite) {
  EXPECT_EQ(schema_error("true"), "");
  EXPECT_EQ(schema_error(R"({"type": "object", "properties": {"maxLength": {"type": "string"},
                            "$ref": {"type": "integer"}}, "enum": [{"maxLength": -1}]})"),
            "");
  // A list whose recursion passes through a part of its value.
  EXPECT_EQ(schema_error(R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
      "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}}})"),
            "");
  EXPECT_EQ(schema_error(R"({"type": "array", "items": {"$ref": "#"}})"), "");
}

TEST(CheckSchema, RefusesIntegersThatAGrammarWouldWriteAsFloats) {
  EXPECT_EQ(schema_error(R"({"const": 12345678901234567890})"),
            "no grammar can write 12345678901234567890 of const, an integer beyond 64 bits "
            "(JSON schema): make it a string, or leave it out");
  EXPECT_THAT(
      schema_error(R"({"properties": {"id": {"enum": [1, {"a": [-9223372036854775809]}]}}})"),
      HasSubstr("-9223372036854775809 of enum"));
  EXPECT_EQ(schema_error(R"({"enum": [9223372036854775807, "12345678901234567890", 1e30]})"), "");
  EXPECT_EQ(schema_error(R"({"type": "integer", "default": 12345678901234567890})"), "");
}

TEST(CheckSchema, BoundsDepth) {
  const auto nested = [](int depth) {
    return repeated(R"({"items": )", depth) + "{}" + repeated("}", depth);
  };
  EXPECT_EQ(schema_error(nested(60)), "");
  EXPECT_NE(schema_error(nested(64)), "");
}

TEST(CheckSchema, BoundsWhatReferencesUnfoldTo) {
  const auto laughs = [](int levels) {
    std::string definitions = R"("a0": {"type": "integer"})";
    for (int i = 1; i < levels; ++i) {
      const std::string reference = cat(R"({"$ref": "#/$defs/a)", i - 1, R"("})");
      definitions += cat(R"(, "a)", i, R"(": {"prefixItems": [)", reference, ", ", reference, "]}");
    }
    return cat(R"({"$defs": {)", definitions, R"(}, "$ref": "#/$defs/a)", levels - 1, R"("})");
  };
  EXPECT_EQ(schema_error(laughs(12)), "");
  EXPECT_THAT(schema_error(laughs(60)), HasSubstr("once every $ref is replaced"));
  EXPECT_THAT(schema_error(laughs(1000)), HasSubstr("more than 256 deep"));
}

TEST(CheckSchema, RefusesReferencesThatLeadNowhere) {
  EXPECT_THAT(schema_error(R"({"$ref": "#/$defs/a"})"), HasSubstr("names nothing"));
  EXPECT_THAT(schema_error(R"({"$ref": "http://example.org/schema"})"), HasSubstr("names nothing"));
  EXPECT_THAT(schema_error(R"({"$ref": 3})"), HasSubstr("no string"));
  EXPECT_THAT(schema_error(R"({"$ref": "#"})"), HasSubstr("refers to itself"));
  EXPECT_THAT(schema_error(R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [
                              {"type": "null"}, {"$ref": "#/$defs/a"}]}}})"),
              HasSubstr("refers to itself"));
}

TEST(CheckSchema, TakesWhatNoGrammarFollows) {
  EXPECT_EQ(schema_error(R"({"type": "array", "uniqueItems": true})"), "");
  EXPECT_EQ(schema_error(R"({"items": {"not": {"type": "null"}}})"), "");
  EXPECT_EQ(schema_error(R"({"maxLength": 1000000, "maxItems": 5.0})"), "");
}

TEST(CheckSchema, RefusesCountsAndKindsThatAreNone) {
  EXPECT_THAT(schema_error(R"({"minLength": 1000000000000})"), HasSubstr("minLength"));
  EXPECT_THAT(schema_error(R"({"maxItems": -1})"), HasSubstr("maxItems is -1"));
  EXPECT_THAT(schema_error(R"({"maxItems": "7"})"), HasSubstr("a string"));
  EXPECT_THAT(schema_error(R"({"properties": []})"), HasSubstr("no object"));
  EXPECT_THAT(schema_error(R"({"anyOf": {}})"), HasSubstr("no list"));
  EXPECT_THAT(schema_error(R"({"items": 3})"), HasSubstr("a schema is"));
  EXPECT_THAT(schema_error(R"({"pattern": "(a{9999}){9999}"})"), HasSubstr("pattern"));
  EXPECT_THAT(schema_error(R"({"patternProperties": {"a{1000000}": {}}})"),
              HasSubstr("patternProperties"));
  EXPECT_NE(schema_error("{"), "");
}

TEST(CheckRegex, BoundsNestingAndRepeats) {
  EXPECT_EQ(regex_error(R"(\{[({]*(\(|a{2,5})+x{3,}[^\]]{4}{)"), "");
  EXPECT_EQ(regex_error(repeated("(", 400) + "a" + repeated(")", 400)), "");
  EXPECT_THAT(regex_error(repeated("(", 402)), HasSubstr("groups are nested"));
  EXPECT_EQ(regex_error(repeated("(", 15) + "a*" + repeated(")*", 15)), "");
  EXPECT_THAT(regex_error(repeated("(", 17) + "a" + repeated(")*", 17)),
              HasSubstr("repeated groups"));
  EXPECT_THAT(regex_error("a{1,99999999999999999999}"), HasSubstr("times"));
  EXPECT_THAT(regex_error("((a{1000}){1000}){2}"), HasSubstr("counts within counts"));
  EXPECT_EQ(regex_error("a{1000}b{1000}c{1000}"), "") << "side by side they don't multiply";
}

// Each is a state in which all tokens are tried: seconds for a few hundred.
TEST(CheckRegex, BoundsCharactersOutOfClasses) {
  EXPECT_EQ(regex_error("[a-z]{1,200}-[0-9]{3}"), "");
  EXPECT_EQ(regex_error("([a-z]+ )*\\.{1,2000}"), "");
  for (const std::string_view long_one : {"[a-z]{1,2000}", "([a-z]){500}", "((x|[0-9]{20}){30}",
                                          ".{401}", "\\w{401}", "[a-z]{200}[a-z]{201}"})
    EXPECT_THAT(regex_error(long_one), HasSubstr("characters out of classes")) << long_one;
  EXPECT_THAT(ebnf_error("root ::= [a-z]{1, 2000}"), HasSubstr("characters out of classes"));
  EXPECT_THAT(schema_error(R"({"type": "string", "minLength": 201})"), HasSubstr("at least 201"));
  EXPECT_EQ(schema_error(R"({"type": "string", "maxLength": 20000})"), "");
}

TEST(CheckEbnf, ReadsNoNestingInStringsAndComments) {
  EXPECT_EQ(ebnf_error("root ::= " + repeated("\"(\" ", 500) + "# " + repeated("(", 500)), "");
  EXPECT_EQ(ebnf_error(R"(root ::= ("\"" [(\]]* "a" {2, 5})+)"), "");
  EXPECT_THAT(ebnf_error("root ::= " + repeated("(", 500)), HasSubstr("groups are nested"));
  EXPECT_THAT(ebnf_error("root ::= \"a\"{1, 200000}"), HasSubstr("times"));
}

TEST(CheckGrammar, LooksAtTheSchemasBetweenStrings) {
  const auto error = [](std::string_view schema) {
    const Spec spec{
        .kind = Spec::Kind::structural_tag,
        .text = cat(R"({"type": "structural_tag", "format": {"type": "sequence", "elements": [
            {"type": "const_string", "value": "a"}, {"type": "json_schema", "json_schema": )",
                    schema, "}]}}")};
    const Result<void> checked = check(spec);
    return checked.ok() ? "" : checked.error().message();
  };
  EXPECT_EQ(error(R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}})"), "");
  EXPECT_THAT(error(R"({"items": {"$ref": "#/a"}})"), HasSubstr("names nothing"));
  EXPECT_THAT(error("3"), HasSubstr("a schema is"));
}

TEST(CheckGrammar, BoundsBytes) {
  const Spec spec{.kind = Spec::Kind::regex, .text = std::string(300'000, 'a')};
  EXPECT_THAT(check(spec).error().message(), HasSubstr("300000 bytes"));
}

}  // namespace
}  // namespace motley::grammar
