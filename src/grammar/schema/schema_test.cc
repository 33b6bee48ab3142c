#include "grammar/schema/schema.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "grammar/grammar.h"

namespace motley::grammar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json::Value parsed(std::string_view text) { return json::parse(text, "JSON schema").value(); }

std::vector<std::string> unenforced(std::string_view schema) {
  return read_schema(parsed(schema), "JSON schema").value().unenforced;
}

std::string error(std::string_view schema) {
  const auto read = read_schema(parsed(schema), "JSON schema");
  return read.ok() ? "" : read.error().message();
}

// Whether a schema's grammar accepts whole texts.
class Answers {
 public:
  explicit Answers(std::string_view schema)
      : grammar_(Grammar::compile({.kind = Spec::Kind::json_schema, .text = std::string(schema)},
                                  vocabulary())
                     .value()) {}

  bool operator()(std::string_view text) const {
    Position state(grammar_, {});
    return std::ranges::all_of(
               text, [&](char c) { return state.accept(static_cast<unsigned char>(c)); }) &&
           state.may_end();
  }

 private:
  static Vocabulary vocabulary() {
    Tokens tokens{.bytes = {}, .width = 288, .end_ids = {256}};
    for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
    return Vocabulary::create(tokens).value();
  }

  Grammar grammar_;
};

// A union of models with a discriminator and a default, as pydantic writes it.
constexpr std::string_view pets = R"({
  "$defs": {
    "Cat": {"properties": {"kind": {"const": "cat", "default": "cat", "title": "Kind", "type": "string"},
        "lives": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["lives"], "title": "Cat",
        "type": "object"},
    "Dog": {"properties": {"kind": {"const": "dog", "title": "Kind", "type": "string"},
        "friend": {"anyOf": [{"$ref": "#/$defs/Dog"}, {"type": "null"}], "default": null}},
        "required": ["kind"], "title": "Dog", "type": "object"}},
  "properties": {"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
      "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "title": "Pet"},
    "best": {"$ref": "#/$defs/Cat", "description": "the best one"}},
  "required": ["pet"], "title": "Owner", "type": "object"})";

TEST(Schema, HoldsUnionsOfModels) {
  EXPECT_THAT(unenforced(pets), IsEmpty());
  const Answers answer(pets);
  EXPECT_TRUE(answer(R"({"pet": {"kind": "cat", "lives": 7}})"));
  EXPECT_TRUE(
      answer(R"({"pet": {"kind": "dog", "friend": {"kind": "dog"}}, "best": {"lives": 9}})"));
  EXPECT_FALSE(answer(R"({"pet": {"lives": 7}})")) << "the discriminator says which it is";
  EXPECT_FALSE(answer(R"({"pet": {"kind": "cat"}})"));
  EXPECT_FALSE(answer(R"({"pet": {"kind": "dog", "lives": 7}})"));
}

// Records, sets, tuples, enums, bounds and formats as zod and pydantic write them.
TEST(Schema, HoldsWhatLibrariesWrite) {
  constexpr std::string_view schema = R"({"$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object", "additionalProperties": false, "properties": {
      "id": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
      "email": {"type": "string", "format": "email",
        "pattern": "^[A-Za-z0-9_+-]+@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},
      "scores": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}},
      "flags": {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
        "additionalProperties": {"type": "boolean"}},
      "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "maxItems": 2},
      "roles": {"type": "array", "items": {"enum": ["r", "w"]}, "uniqueItems": true},
      "code": {"type": "string", "pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 3},
      "step": {"type": "integer", "multipleOf": 5},
      "both": {"allOf": [{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        {"type": "object", "properties": {"y": {"type": "null"}}, "required": ["y"]}]},
      "maybe": {"type": ["string", "null"], "maxLength": 3, "readOnly": true, "x-unknown": 1},
      "never": {"not": {}}},
    "required": ["id"]})";
  EXPECT_THAT(unenforced(schema), IsEmpty());
  const Answers answer(schema);
  const auto with = [&](std::string_view rest) { return answer(cat(R"({"id": 1, )", rest, "}")); };
  EXPECT_TRUE(answer(R"({"id": -9007199254740991})"));
  EXPECT_FALSE(answer(R"({"id": 9007199254740992})"));
  EXPECT_TRUE(with(R"("email": "a@b.org")"));
  EXPECT_FALSE(with(R"("email": "a@b")"));
  EXPECT_TRUE(with(R"("scores": {"any": 1.5, "name": 2})"));
  EXPECT_FALSE(with(R"("scores": {"any": "1.5"})"));
  EXPECT_TRUE(with(R"("flags": {"a": true, "b": false})"));
  EXPECT_FALSE(with(R"("flags": {"c": true})"));
  EXPECT_TRUE(with(R"("pair": ["a", 1])"));
  EXPECT_FALSE(with(R"("pair": ["a"])"));
  EXPECT_TRUE(with(R"("roles": ["w", "r"])"));
  EXPECT_FALSE(with(R"("roles": ["w", "w"])"));
  EXPECT_TRUE(with(R"("code": "ABC")"));
  EXPECT_FALSE(with(R"("code": "A")"));
  EXPECT_FALSE(with(R"("code": "ABCD")"));
  EXPECT_TRUE(with(R"("step": 125)"));
  EXPECT_FALSE(with(R"("step": 126)"));
  EXPECT_TRUE(with(R"("both": {"x": 1, "y": null})"));
  EXPECT_FALSE(with(R"("both": {"x": 1})"));
  EXPECT_TRUE(with(R"("maybe": null)"));
  EXPECT_FALSE(with(R"("maybe": "four")"));
  EXPECT_FALSE(with(R"("never": 1)"));
}

TEST(Schema, NamesWhatNoGrammarHolds) {
  EXPECT_THAT(unenforced(R"({"type": "object", "properties": {
      "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
      "price": {"type": "number", "multipleOf": 0.01},
      "list": {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}},
      "a.b, c": {"not": {"pattern": "x"}},
      "email": {"type": "string", "pattern": "^(?!\\.)[a-z]+$", "format": "email"},
      "name": {"type": "string", "format": "email", "maxLength": 40},
      "any": {"anyOf": [{"if": {"minimum": 1}, "then": {"maximum": 5}}]},
      "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}})"),
              ElementsAre("properties.tags.uniqueItems", "properties.price.multipleOf",
                          "properties.list.contains", "properties.a%2Eb%2C%20c.not",
                          "properties.email.pattern", "properties.name.maxLength",
                          "properties.any.anyOf.0.if", "properties.one.oneOf"));
  EXPECT_THAT(unenforced(R"({"type": "string", "oneOf": [{"items": {}}, {"enum": ["a"]}]})"),
              ElementsAre("oneOf"))
      << "a string satisfies what is said of lists";
  // A schema with very many properties.
  std::string many = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 500; ++i)
    many += cat(i > 0 ? ", " : "", R"("p)", i, R"(": {"not": {"minimum": 3}})");
  EXPECT_EQ(unenforced(many + "}}").size(), 64U);
}

TEST(Schema, JoinsKeywordsWithAlternatives) {
  const Answers answer(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "dependentRequired": {"a": ["b"]}})");
  EXPECT_TRUE(answer(R"({"b": 1})"));
  EXPECT_TRUE(answer(R"({"a": 1, "b": 1})"));
  EXPECT_FALSE(answer(R"({"a": 1})"));
  EXPECT_FALSE(answer("{}"));
  const Answers bounded(
      R"({"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {"type": "integer", "minimum": 3}}})");
  EXPECT_TRUE(bounded("4"));
  EXPECT_FALSE(bounded("6"));
  EXPECT_FALSE(bounded("2"));
  const Answers filtered(
      R"({"type": "string", "enum": ["a", 1, "long", "b"], "maxLength": 1, "not": {"const": "b"}})");
  EXPECT_TRUE(filtered("\"a\""));
  for (const std::string_view other : {"1", "\"long\"", "\"b\""}) EXPECT_FALSE(filtered(other));
}

TEST(Schema, ReadsSchemasAsTheirAuthorsMeanThem) {
  const Answers closed(R"({"properties": {"a": {"type": "integer"}}})");
  EXPECT_TRUE(closed(R"({"a": 1})"));
  EXPECT_FALSE(closed(R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(closed("3"));
  const Answers empty(R"({"type": "object", "properties": {}})");
  EXPECT_TRUE(empty("{}"));
  EXPECT_FALSE(empty(R"({"a": 1})"));
  EXPECT_THAT(unenforced(R"({"type": "string", "format": "password"})"), IsEmpty());
  const Answers unreadable(
      R"x({"type": "object", "patternProperties": {"^(?!_)": {"type": "integer"}},
      "additionalProperties": false, "required": ["a"]})x");
  EXPECT_TRUE(unreadable(R"({"a": 1})"));
  const Answers open(R"({"type": "object"})");
  EXPECT_TRUE(open(R"({"x": [1, {"y": null}]})"));
  EXPECT_TRUE(Answers("{}")("[1]"));
  const Answers whole(R"({"pattern": "[a-z]{2}"})");
  EXPECT_TRUE(whole("\"ab\""));
  EXPECT_FALSE(whole("\"abc\""));
  const Answers begin(R"({"pattern": "^https://"})");
  EXPECT_TRUE(begin("\"https://example.org\""));
  const Answers letters(R"({"pattern": "^é.\"?$", "maxLength": 9})");
  EXPECT_TRUE(letters("\"éx\""));
  const Answers optional(R"({"pattern": "^([a-z]+\\.)?[A-Z]+(-[0-9]+)?$"})");
  for (const std::string_view each : {"A", "A-1", "b.A", "ab.AB-12"})
    EXPECT_TRUE(optional(cat('"', each, '"'))) << each;
  for (const std::string_view each : {"A1", "bA", "A-", ".A"})
    EXPECT_FALSE(optional(cat('"', each, '"'))) << each;
  const Answers numbers(R"({"pattern": "^[\\u00e0-\\u{ff}]\\x41$"})");
  EXPECT_TRUE(numbers("\"éA\""));
  EXPECT_FALSE(numbers("\"eA\""));
}

TEST(Schema, WritesLiteralsOfAnyKind) {
  const Answers answer(R"({"enum": [null, "a/b", 0.1, 1e3, {"x": [1, "y"], "z": {}}, []]})");
  for (const std::string_view each : {"null", "\"a/b\"", "0.1", R"({"x": [1, "y"], "z": {}})",
                                      "{\n  \"x\": [1,\"y\"],\n  \"z\": {}\n}", "[]"})
    EXPECT_TRUE(answer(each)) << each;
  for (const std::string_view each : {"0.2", R"({"x": [1]})", "[1]"}) EXPECT_FALSE(answer(each));
}

TEST(Schema, HoldsAsManyLiteralsAsFitASchema) {
  std::string values = "0";
  for (int i = 1; i < 40'000; ++i) values += cat(",", i);
  const auto read = read_schema(parsed(cat(R"({"enum": [)", values, "]}")), "JSON schema");
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->schema.if_object()->find("enum")->if_array()->size(), 40'000U);
}

TEST(Schema, DatesFollowTheCalendar) {
  const Answers answer(R"({"type": "string", "format": "date"})");
  const auto digits = [](int number, std::size_t width) {
    const std::string text = cat(number);
    return std::string(width - std::min(width, text.size()), '0') + text;
  };
  for (const int year :
       {0, 1, 4, 10, 96, 100, 400, 1000, 1900, 2000, 2023, 2024, 2100, 9996, 9999}) {
    for (int month = 0; month <= 13; ++month) {
      for (int day = 0; day <= 32; ++day) {
        const std::chrono::year_month_day date(std::chrono::year(year),
                                               std::chrono::month(static_cast<unsigned>(month)),
                                               std::chrono::day(static_cast<unsigned>(day)));
        const std::string text = cat(digits(year, 4), "-", digits(month, 2), "-", digits(day, 2));
        EXPECT_EQ(answer(cat('"', text, '"')), year > 0 && date.ok()) << text;
      }
    }
  }
}

TEST(Schema, FormatsHaveNoTextsThatParsersRefuse) {
  struct Case {
    std::string_view format;
    std::vector<std::string> right;
    std::vector<std::string> wrong;
  };
  const std::string long_name(64, 'a');
  const Case cases[] = {
      {"time",
       {"23:59:59Z", "00:00:00.123456789+05:30"},
       {"24:00:00Z", "23:59:60Z", "12:00:00", "12:00:001Z", "12:00:00.Z", "12:00:00+24:00"}},
      {"date-time",
       {"2024-02-29T00:00:00Z", "0001-01-01T23:59:59.5-08:00"},
       {"2023-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "2024-11-31T00:00:00Z",
        "2024-01-01T00:00:60Z", "2024-01-01"}},
      {"duration",
       {"P1Y2M3DT4H5M6S", "P3W", "PT0S", "P1DT1S"},
       {"P", "PT", "P1Y2D", "P1DT", "P1WT1H", "PT1H1S", "PT9999999H"}},
      {"ipv4",
       {"0.0.0.0", "255.249.199.99", "10.1.1.1"},
       {"010.1.1.1", "1.1.1.00", "256.1.1.1", "1.1.1", "1.1.1.1.1"}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
        "2001:db8::Ff00:42", "::ffff:1.2.3.4"},
       {":", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3",
        "12345::", "1:2:3:4:5:6:7:8::", "::ffff:01.2.3.4", ":1:2"}},
      {"uuid", {"123e4567-E89b-02d3-0456-426614174000"}, {"123e4567e89b12d3a456426614174000"}},
      {"uuid4",
       {"123e4567-e89b-42d3-a456-426614174000"},
       {"123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-c456-426614174000"}},
      {"hostname",
       {"a", "localhost", "www.Some-example.co.uk", "1.2"},
       {"", "-a", "a-", "a..b", ".a", "a.", "a_b", long_name, cat("a.", long_name)}},
      {"email",
       {"a.b+c@Some-mail.example.org", "o'neil_1@a.co"},
       {"a@b", "a..b@c.de", ".a@b.de", "a.@b.de", "a@-b.de", "a@b--c.de", "a@b.d1", "@b.de",
        "a b@c.de", cat(long_name, "a@b.de"), cat("a@", long_name, ".de")}},
      {"uri",
       {"https://a@example.org:65535/b/c?d=%20e#f", "urn:isbn:1", "file:///a", "http://1.2.3.4",
        "mailto:a@b.de", "files://a"},
       {"", "a", "http://", "http:", "http://a b", "http://1.2.3.256", "http://a:65536",
        "file://a:1", "https://a/%2", "https://-a"}},
      {"uri-reference",
       {"", "/a/b?c#d", "a/b", "../a", "?a", "#b", "//a.de/b", "https://a.de"},
       {"a b", "1:2", "%"}},
      {"uri-template", {"", "https://a.de/{b}/{+c,d*}{?e:3}"}, {"{", "{}", "{a", "a b", "{a:0}"}},
      {"json-pointer", {"", "/", "/a~0b/é/~1"}, {"a", "/~", "/~2"}},
      {"relative-json-pointer", {"0", "1#", "12/a"}, {"", "01", "#", "/a"}},
  };
  for (const Case& each : cases) {
    const std::string schema = cat(R"({"type": "string", "format": ")", each.format, "\"}");
    EXPECT_THAT(unenforced(schema), IsEmpty()) << each.format;
    const Answers answer(schema);
    for (const std::string& text : each.right)
      EXPECT_TRUE(answer(cat('"', text, '"'))) << each.format << ": " << text;
    for (const std::string& text : each.wrong)
      EXPECT_FALSE(answer(cat('"', text, '"'))) << each.format << ": " << text;
  }
}

TEST(Schema, FormatsImplyLengths) {
  for (const std::string_view implied :
       {R"({"format": "date", "minLength": 10, "maxLength": 10})",
        R"({"format": "uuid", "maxLength": 36})", R"({"format": "uri", "minLength": 1})"})
    EXPECT_THAT(unenforced(implied), IsEmpty()) << implied;
  EXPECT_THAT(unenforced(R"({"format": "email", "maxLength": 139})"), ElementsAre("maxLength"));
  EXPECT_THAT(unenforced(R"({"format": "uri", "maxLength": 2083})"), ElementsAre("maxLength"));
  EXPECT_THAT(unenforced(R"({"format": "json-pointer", "minLength": 1})"),
              ElementsAre("minLength"));
  EXPECT_THAT(unenforced(R"({"format": "iri"})"), ElementsAre("format"));
}

TEST(Schema, HoldsFormatsInManyPlaces) {
  const Answers answer(R"({"type": "object", "propertyNames": {"format": "date"},
      "additionalProperties": {"anyOf": [{"type": "string", "format": "ipv4"},
        {"type": "array", "items": {"type": "string", "format": "ipv4"}}]}})");
  EXPECT_TRUE(answer(R"({"2024-02-29": "1.1.1.1", "2024-03-01": ["10.0.0.1", "10.0.0.2"]})"));
  EXPECT_FALSE(answer(R"({"2023-02-29": "1.1.1.1"})"));
  EXPECT_FALSE(answer(R"({"2024-02-29": "01.1.1.1"})"));
  EXPECT_FALSE(answer(R"({"2024-02-29": ["01.1.1.1"]})"));
}

TEST(Schema, RefusesWhatNothingSatisfies) {
  for (
      const std::string_view schema :
      {"false", R"({"enum": []})", R"({"type": "string", "const": 1})",
       R"({"type": "integer", "minimum": 3, "maximum": 2})",
       R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
       R"({"type": "object", "properties": {"a": false}, "required": ["a"]})",
       R"({"type": "array", "minItems": 3, "maxItems": 2})",
       R"({"type": "string", "minLength": 3, "maxLength": 2})",
       R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false, "minProperties": 2})"})
    EXPECT_THAT(error(schema), HasSubstr("no value satisfies the schema")) << schema;
  EXPECT_THAT(error(R"({"type": "text"})"), HasSubstr("type is \"text\""));
  EXPECT_THAT(error(R"({"type": "integer", "multipleOf": 0})"),
              HasSubstr("multipleOf is not above 0"));
  EXPECT_THAT(error(R"({"minimum": "3"})"), HasSubstr("minimum is a string"));
}

TEST(Schema, LeavesOutWhatRecursWithoutAnEnd) {
  constexpr std::string_view nodes = R"("$defs": {
      "endless": {"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"]},
      "list": {"type": "array", "items": {"$ref": "#/$defs/list"}, "minItems": 1},
      "tree": {"type": "object", "properties": {"left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
               "required": ["left"]}})";
  EXPECT_THAT(error(cat(R"({"$ref": "#/$defs/endless", )", nodes, "}")),
              HasSubstr("recur without an end"));
  EXPECT_THAT(error(cat(R"({"$ref": "#/$defs/list", )", nodes, "}")),
              HasSubstr("no value satisfies"));
  const Answers answer(cat(R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"},
      "b": {"anyOf": [{"$ref": "#/$defs/list"}, {"$ref": "#/$defs/tree"}]}}, )",
                           nodes, "}"));
  EXPECT_TRUE(answer(R"({"b": {"left": {"left": null}}})"));
  EXPECT_TRUE(answer("{}"));
  EXPECT_FALSE(answer(R"({"b": [[)"));
  EXPECT_FALSE(answer(R"({"a": {"next": {}}})"));
  EXPECT_TRUE(Answers(R"({"type": "array", "items": {"$ref": "#"}})")("[[], [[]]]"));
}

TEST(Schema, BoundsAlternativesThatMultiply) {
  std::string choices;
  for (int i = 0; i < 12; ++i)
    choices += cat(i > 0 ? ", " : "", R"({"anyOf": [{"required": ["a)", i,
                   R"("]}, {"required": ["b)", i, R"("]}]})");
  const auto places = unenforced(cat(R"({"type": "object", "allOf": [)", choices, "]}"));
  EXPECT_THAT(places, testing::SizeIs(6)) << "2^6 are written out";
  EXPECT_THAT(places, testing::Contains("allOf.0.anyOf"));
  std::string nested = R"({"type": "string"})";
  for (int i = 0; i < 12; ++i)
    nested = cat(R"({"type": "object", "properties": {"a": )", nested,
                 R"(}, "anyOf": [{"required": ["a"]},
        {"minProperties": 0}, {"maxProperties": 9}, {"required": ["b"]}]})");
  EXPECT_THAT(error(nested), HasSubstr("multiply"));
}

TEST(Schema, NamesPlacesInStructuralTags) {
  const Spec spec{.kind = Spec::Kind::structural_tag,
                  .text = R"({"type": "structural_tag", "format": {"type": "sequence", "elements": [
      {"type": "const_string", "value": "a"},
      {"type": "json_schema", "style": "qwen_xml", "json_schema": {"type": "object", "properties":
        {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}}]}})"};
  const auto read = read_schemas(spec);
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->unenforced, ElementsAre("format.elements.1.properties.a.uniqueItems"));
  EXPECT_THAT(read->spec.text, HasSubstr("qwen_xml"));
  EXPECT_THAT(read_schemas({.kind = Spec::Kind::regex, .text = "a"})->unenforced, IsEmpty());
}

}  // namespace
}  // namespace motley::grammar
