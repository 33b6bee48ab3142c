#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "grammar/grammar.h"
#include "grammar/schema/schema.h"

// JSON-Schema-Test-Suite: schemas, and values that they allow or not.
namespace motley::grammar {
namespace {

using json::Array;
using json::Object;
using json::Value;

constexpr std::int32_t end_id = 256;
constexpr std::int64_t width = 288;

const Vocabulary& vocabulary() {
  static const Vocabulary the_vocabulary = [] {
    Tokens tokens{.bytes = {}, .width = width, .end_ids = {end_id}};
    for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
    return Vocabulary::create(tokens).value();
  }();
  return the_vocabulary;
}

bool accepts(const Grammar& grammar, std::string_view text) {
  Position state(grammar, {});
  return std::ranges::all_of(text,
                             [&](char c) { return state.accept(static_cast<unsigned char>(c)); }) &&
         state.may_end();
}

// 1.0 as 1: equal, and written so.
Value with_whole_numbers(const Value& value) {
  if (value.kind() == json::Kind::number && value.if_big_integer() == nullptr) {
    const double number = value.as_number("").value();
    if (std::floor(number) == number && std::abs(number) < 1e17)
      return static_cast<std::int64_t>(number);
  }
  if (const Array* const list = value.if_array()) {
    Array items;
    for (const Value& each : *list) items.push_back(with_whole_numbers(each));
    return items;
  }
  if (const Object* const object = value.if_object()) {
    std::vector<json::Member> members;
    for (const json::Member& each : object->members())
      members.push_back({each.key, with_whole_numbers(each.value)});
    return Object::make(std::move(members)).value();
  }
  return value;
}

// A grammar has one order of properties: the value is accepted if it is in some order.
bool accepts_in_some_order(const Grammar& grammar, const Value& value) {
  const Value whole = with_whole_numbers(value);
  if (accepts(grammar, json::write(value)) || accepts(grammar, json::write(whole))) return true;
  const Object* const object = whole.if_object();
  if (object == nullptr || object->size() < 2 || object->size() > 6) return false;
  std::vector<json::Member> members(object->members().begin(), object->members().end());
  std::ranges::sort(members, {}, &json::Member::key);
  do {
    if (accepts(grammar, json::write(Object::make(members).value()))) return true;
  } while (std::ranges::next_permutation(members, {}, &json::Member::key).found);
  return false;
}

// Values that a grammar refuses although they are valid, each with its reason.
bool is_narrower(std::string_view place) {
  constexpr std::array<std::string_view, 9> places = {
      // Objects with patterns hold no other names: they would look like these.
      "patternProperties: regexes are not anchored by default",
      "properties: properties, patternProperties, additionalProperties interaction",
      // Identifiers within a schema are not followed; keywords beside $ref hold in all drafts.
      "ref: order of evaluation: $id and $anchor and $ref",
      "ref: ref overrides any sibling keywords",
      // One way to write a form feed in a name.
      "required: required with escaped characters",
      // Alternatives are written out one by one: what two of them evaluate together is not known.
      "unevaluatedItems: unevaluatedItems depends on multiple nested contains",
      "unevaluatedProperties: unevaluatedProperties with anyOf: when two match",
      // All keywords hold, and formats are formats.
      "vocabulary: schema that uses custom metaschema with with no validation vocabulary",
      "format: "};
  return std::ranges::any_of(places,
                             [&](std::string_view each) { return place.starts_with(each); });
}

struct Tally {
  int compiled = 0;
  std::vector<std::string> failed;
  std::vector<std::string> wrongly_accepted;  // of schemas that are said to be enforced
  std::vector<std::string> wrongly_refused;
};

const std::string& text_of(const Object& object, std::string_view key) {
  return *object.find(key)->if_string();
}

bool is_any_valid(const Object& group) {
  return std::ranges::any_of(*group.find("tests")->if_array(), [](const Value& test) {
    return *test.if_object()->find("valid")->if_boolean();
  });
}

void check_group(const std::string& file, const Object& group, SchemaReading reading,
                 Tally& tally) {
  const std::string place = cat(file, ": ", text_of(group, "description"));
  const auto read = read_schema(*group.find("schema"), "JSON schema", reading);
  if (!read.ok()) {
    const std::string& message = read.error().message();
    // What no value satisfies, and schemas elsewhere.
    const bool expected = message.starts_with("no value satisfies") ? !is_any_valid(group)
                                                                    : message.starts_with("$ref ");
    if (!expected) tally.failed.push_back(cat(place, ": ", message));
    return;
  }
  const std::string text = json::write(read->schema);
  const auto grammar =
      Grammar::compile({.kind = Spec::Kind::json_schema, .text = text}, vocabulary());
  if (!grammar.ok()) {
    tally.failed.push_back(cat(place, ": ", grammar.error().message(), " of ", text));
    return;
  }
  ++tally.compiled;
  for (const Value& test : *group.find("tests")->if_array()) {
    const Object& each = *test.if_object();
    const bool valid = *each.find("valid")->if_boolean();
    if (accepts_in_some_order(*grammar, *each.find("data")) == valid) continue;
    const std::string what = cat(place, ": ", text_of(each, "description"));
    if (!valid && read->unenforced.empty())
      tally.wrongly_accepted.push_back(cat(what, " by ", text));
    if (valid && !is_narrower(what)) tally.wrongly_refused.push_back(cat(what, " by ", text));
  }
}

Tally run(std::string_view draft, SchemaReading reading) {
  Tally tally;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(MOTLEY_SCHEMA_SUITE) / draft)) {
    if (entry.path().extension() != ".json") continue;
    const std::string text = read_text(entry.path().string(), 10'000'000).value();
    const Value groups = json::parse(text, entry.path().string()).value();
    for (const Value& group : *groups.if_array())
      check_group(entry.path().stem().string(), *group.if_object(), reading, tally);
  }
  return tally;
}

class SchemaSuite : public testing::TestWithParam<std::pair<std::string_view, int>> {};

TEST_P(SchemaSuite, AcceptsWhatIsValidAndRefusesOrNamesTheRest) {
  const auto [draft, schemas] = GetParam();
  const Tally tally = run(draft, SchemaReading::to_the_letter);
  EXPECT_GE(tally.compiled, schemas);
  EXPECT_THAT(tally.failed, testing::IsEmpty());
  EXPECT_THAT(tally.wrongly_accepted, testing::IsEmpty());
  EXPECT_THAT(tally.wrongly_refused, testing::IsEmpty());
}

TEST_P(SchemaSuite, NarrowerAsMeantAndNoLessStrict) {
  const auto [draft, schemas] = GetParam();
  const Tally tally = run(draft, SchemaReading::as_meant);
  EXPECT_GE(tally.compiled, schemas);
  EXPECT_THAT(tally.failed, testing::IsEmpty());
  EXPECT_THAT(tally.wrongly_accepted, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Drafts, SchemaSuite,
                         testing::Values(std::pair("draft2020-12", 341), std::pair("draft7", 236)),
                         [](const auto& draft) {
                           return draft.index == 0 ? "Draft2020" : "Draft7";
                         });

}  // namespace
}  // namespace motley::grammar
