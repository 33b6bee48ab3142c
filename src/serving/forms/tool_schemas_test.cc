#include "serving/forms/tool_schemas.h"

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::serving {
namespace {

ToolSchemas schemas_of(std::string_view tools) {
  return ToolSchemas(json::parse(tools, "tools", {.depth = 1000}).value());
}

// A function "f" with these parameters.
ToolSchemas function_with(std::string_view parameters) {
  return schemas_of(
      cat(R"([{"type": "function", "function": {"name": "f", "parameters": )", parameters, "}}]"));
}

std::string names(const std::optional<JsonTypes>& types) {
  constexpr std::pair<JsonType, std::string_view> named[] = {
      {JsonType::null, "null"},     {JsonType::boolean, "boolean"}, {JsonType::integer, "integer"},
      {JsonType::number, "number"}, {JsonType::string, "string"},   {JsonType::array, "array"},
      {JsonType::object, "object"}};
  if (!types) return "undeclared";
  if (*types == JsonTypes::all()) return "all";
  std::string text;
  for (const auto& [type, name] : named)
    if (types->allows(type)) text += cat(text.empty() ? "" : " ", name);
  return text.empty() ? "none" : text;
}

// The types of a parameter with this schema.
std::string types_of(std::string_view schema, std::string_view beside = "") {
  return names(
      function_with(cat(R"({"properties": {"p": )", schema, "}", beside, "}")).types_of("f", "p"));
}

TEST(ToolSchemas, KnowsTheFunctionsThatAreGiven) {
  EXPECT_TRUE(ToolSchemas().empty());
  EXPECT_TRUE(schemas_of("[]").empty());
  EXPECT_TRUE(schemas_of(R"({"function": {"name": "f"}})").empty());
  EXPECT_TRUE(schemas_of(R"([1, {}, {"function": 2}, {"function": {"name": 3}}])").empty());
  const ToolSchemas schemas = schemas_of(
      R"([{"function": {"name": "f"}}, {"function": {"name": "g", "parameters": null}}])");
  EXPECT_FALSE(schemas.empty());
  EXPECT_TRUE(schemas.has("f"));
  EXPECT_TRUE(schemas.has("g"));
  EXPECT_FALSE(schemas.has("h"));
  EXPECT_EQ(names(schemas.types_of("f", "p")), "undeclared");
}

TEST(ToolSchemas, WhatIsNotDeclaredIsNoString) {
  const ToolSchemas schemas = function_with(R"({"properties": {"p": {"type": "string"}}})");
  EXPECT_TRUE(schemas.is_string("f", "p"));
  EXPECT_FALSE(schemas.is_string("f", "q"));
  EXPECT_FALSE(schemas.is_string("g", "p"));
  EXPECT_EQ(names(schemas.types_of("f", "q")), "undeclared");
  EXPECT_EQ(names(schemas.types_of("g", "p")), "undeclared");
}

TEST(ToolSchemas, TypesComeAsANameOrAList) {
  EXPECT_EQ(types_of(R"({"type": "null"})"), "null");
  EXPECT_EQ(types_of(R"({"type": "boolean"})"), "boolean");
  EXPECT_EQ(types_of(R"({"type": "integer"})"), "integer");
  EXPECT_EQ(types_of(R"({"type": "number"})"), "integer number");
  EXPECT_EQ(types_of(R"({"type": "string"})"), "string");
  EXPECT_EQ(types_of(R"({"type": "array"})"), "array");
  EXPECT_EQ(types_of(R"({"type": "object"})"), "object");
  EXPECT_EQ(types_of(R"({"type": ["integer", "null"]})"), "null integer");
  EXPECT_EQ(types_of(R"({"type": "array", "items": {"type": "string"}})"), "array");
}

TEST(ToolSchemas, AValueStaysAStringWhereOneIsAllowed) {
  const auto is_string = [](std::string_view schema) {
    return function_with(cat(R"({"properties": {"p": )", schema, "}}")).is_string("f", "p");
  };
  EXPECT_TRUE(is_string(R"({"type": ["string", "null"]})"));
  EXPECT_TRUE(is_string(R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})"));
  EXPECT_TRUE(is_string("{}"));
  EXPECT_FALSE(is_string(R"({"type": ["integer", "null"]})"));
  EXPECT_FALSE(is_string("false"));
}

TEST(ToolSchemas, WhatConstrainsNothingAllowsAll) {
  for (const std::string_view schema :
       {"{}", "true", R"({"description": "d"})", R"({"type": "any"})", R"({"type": []})",
        R"({"type": ["integer", "decimal"]})", R"({"type": 5})", R"({"anyOf": []})",
        R"({"anyOf": 1})", R"({"enum": []})", R"({"$ref": 1})", R"({"nullable": true})", "7",
        "null"})
    EXPECT_EQ(types_of(schema), "all") << schema;
  EXPECT_EQ(types_of("false"), "none");
}

TEST(ToolSchemas, SchemasAreCombined) {
  EXPECT_EQ(types_of(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})"), "null integer");
  EXPECT_EQ(types_of(R"({"oneOf": [{"type": "array"}, {"anyOf": [{"type": "boolean"}]}]})"),
            "boolean array");
  EXPECT_EQ(types_of(R"({"anyOf": [false, {"type": "object"}]})"), "object");
  EXPECT_EQ(types_of(R"({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]})"),
            "integer");
  EXPECT_EQ(types_of(R"({"allOf": [{"description": "d"}, {"type": "object"}]})"), "object");
  EXPECT_EQ(types_of(R"({"type": ["null", "array"], "anyOf": [{"type": "array"}, true]})"),
            "null array");
  EXPECT_EQ(types_of(R"({"type": "string", "allOf": [{"type": "integer"}]})"), "none");
}

TEST(ToolSchemas, ValuesHaveTheirTypes) {
  EXPECT_EQ(types_of(R"({"enum": ["a", "b"]})"), "string");
  EXPECT_EQ(types_of(R"({"enum": [1, 12345678901234567890, null]})"), "null integer");
  EXPECT_EQ(types_of(R"({"enum": [1.5, true, [], {}]})"), "boolean number array object");
  EXPECT_EQ(types_of(R"({"const": 5})"), "integer");
  EXPECT_EQ(types_of(R"({"const": null})"), "null");
  // The type is determined already.
  EXPECT_EQ(types_of(R"({"type": "string", "enum": [1, 2]})"), "string");
  EXPECT_EQ(types_of(R"({"enum": [1], "anyOf": [{"type": "integer"}, {"type": "null"}]})"),
            "integer");
}

TEST(ToolSchemas, NullableAddsNull) {
  EXPECT_EQ(types_of(R"({"type": "integer", "nullable": true})"), "null integer");
  EXPECT_EQ(types_of(R"({"anyOf": [{"type": "array"}], "nullable": true})"), "null array");
  EXPECT_EQ(types_of(R"({"type": "integer", "nullable": false})"), "integer");
  EXPECT_EQ(types_of(R"({"type": "integer", "nullable": 1})"), "integer");
}

TEST(ToolSchemas, ReferencesAreFollowed) {
  EXPECT_EQ(types_of(R"({"$ref": "#/$defs/n"})", R"(, "$defs": {"n": {"type": "integer"}})"),
            "integer");
  EXPECT_EQ(
      types_of(R"({"$ref": "#/definitions/n"})", R"(, "definitions": {"n": {"type": "array"}})"),
      "array");
  EXPECT_EQ(types_of(R"({"$ref": "#/x/a~1b%20c/1"})", R"(, "x": {"a/b c": [0, {"type": "null"}]})"),
            "null");
  EXPECT_EQ(types_of(R"({"$ref": "#/$defs/a"})",
                     R"(, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"enum": [true]}})"),
            "boolean");
  EXPECT_EQ(types_of(R"({"$ref": "#/$defs/n", "nullable": true})",
                     R"(, "$defs": {"n": {"type": "object"}})"),
            "null object");
  EXPECT_EQ(types_of(R"({"$ref": "#/$defs/missing"})"), "all");
  EXPECT_EQ(types_of(R"({"$ref": "https://example.com/schema"})"), "all");
}

TEST(ToolSchemas, ACycleAllowsEverything) {
  EXPECT_EQ(types_of(R"({"$ref": "#/properties/p"})"), "all");
  EXPECT_EQ(types_of(R"({"$ref": "#/$defs/a"})",
                     R"(, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}})"),
            "all");
  EXPECT_EQ(types_of(R"({"anyOf": [{"type": "null"}, {"$ref": "#/properties/p"}]})"), "all");
  // Keywords beside the reference still count.
  EXPECT_EQ(types_of(R"({"type": "array", "items": {"$ref": "#/properties/p"}})"), "array");
  EXPECT_EQ(types_of(R"({"type": "object", "allOf": [{"$ref": "#/properties/p"}]})"), "object");
}

TEST(ToolSchemas, ParametersAreDeclaredInPartsToo) {
  const ToolSchemas schemas = function_with(R"({
      "properties": {"own": {"type": "integer"}, "both": {"type": ["integer", "string"]}},
      "allOf": [{"properties": {"all": {"type": "array"}, "both": {"type": "integer"}}}],
      "anyOf": [{"properties": {"any": {"type": "integer"}, "one": {"type": "null"}}},
                {"$ref": "#/$defs/way"}],
      "oneOf": [{"allOf": [{"properties": {"deep": {"type": "object"}}}]}],
      "$ref": "#/$defs/more",
      "$defs": {"way": {"properties": {"any": {"type": "boolean"}}},
                "more": {"properties": {"more": {"$ref": "#/$defs/number"}}, "$ref": "#"},
                "number": {"type": "number"}}})");
  EXPECT_EQ(names(schemas.types_of("f", "own")), "integer");
  EXPECT_EQ(names(schemas.types_of("f", "both")), "integer");
  EXPECT_EQ(names(schemas.types_of("f", "all")), "array");
  EXPECT_EQ(names(schemas.types_of("f", "any")), "boolean integer");
  EXPECT_EQ(names(schemas.types_of("f", "one")), "null");
  EXPECT_EQ(names(schemas.types_of("f", "deep")), "object");
  EXPECT_EQ(names(schemas.types_of("f", "more")), "integer number");
}

TEST(ToolSchemas, AFunctionThatIsGivenTwiceMayBeEither) {
  const ToolSchemas schemas = schemas_of(
      R"([{"function": {"name": "f", "parameters": {"properties": {"p": {"type": "integer"}}}}},
          {"function": {"name": "f", "parameters": {"properties": {"p": {"type": "null"},
                                                                   "q": {"type": "array"}}}}}])");
  EXPECT_EQ(names(schemas.types_of("f", "p")), "null integer");
  EXPECT_EQ(names(schemas.types_of("f", "q")), "array");
}

TEST(ToolSchemas, NestingIsBounded) {
  const auto nested = [](int depth) {
    std::string schema = R"({"type": "integer"})";
    for (int i = 0; i < depth; ++i) schema = cat(R"({"anyOf": [)", schema, "]}");
    return schema;
  };
  EXPECT_EQ(types_of(nested(64)), "integer");
  EXPECT_EQ(types_of(nested(65)), "all");
  EXPECT_EQ(types_of(nested(450)), "all");
  std::string parameters = R"({"properties": {"p": {"type": "integer"}}})";
  for (int i = 0; i < 450; ++i) parameters = cat(R"({"allOf": [)", parameters, "]}");
  EXPECT_EQ(names(function_with(parameters).types_of("f", "p")), "undeclared");
}

// Each definition refers twice to the next: without bounds that is 2^50 visits.
TEST(ToolSchemas, ReferencesThatMultiplyAreFollowedOnce) {
  std::string definitions = R"("d50": {"type": "integer"})";
  for (int i = 0; i < 50; ++i) {
    const std::string next = cat(R"({"$ref": "#/$defs/d)", i + 1, R"("})");
    definitions += cat(R"(, "d)", i, R"(": {"anyOf": [)", next, ",", next, "]}");
  }
  const std::string beside = cat(R"(, "$defs": {)", definitions, "}");
  EXPECT_EQ(types_of(R"({"$ref": "#/$defs/d20"})", beside), "integer");
  EXPECT_EQ(names(function_with(cat(R"({"$ref": "#/$defs/d0")", beside, "}")).types_of("f", "p")),
            "undeclared");
}

TEST(ToolSchemas, AParameterOfTooManySchemasAllowsAll) {
  const auto ways = [](int count) {
    std::string list = R"({"type": "integer"})";
    for (int i = 1; i < count; ++i) list += R"(, {"type": "integer"})";
    return cat(R"({"anyOf": [)", list, "]}");
  };
  EXPECT_EQ(types_of(ways(9'999)), "integer");
  EXPECT_EQ(types_of(ways(10'000)), "all");
}

}  // namespace
}  // namespace motley::serving
