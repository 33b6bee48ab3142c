#include "grammar/schema/facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/cat.h"

namespace motley::grammar::schema {
namespace {

using json::Array;
using json::Member;

constexpr int max_in_place = 64;  // schemas of the same value, by $ref and allOf
constexpr std::int64_t max_work = 200'000;

constexpr std::array<std::string_view, 8> array_keywords = {
    "prefixItems", "items",    "additionalItems",  "minItems",
    "maxItems",    "contains", "unevaluatedItems", "uniqueItems"};
constexpr std::array<std::string_view, 8> object_keywords = {
    "properties",        "required",      "additionalProperties", "unevaluatedProperties",
    "patternProperties", "propertyNames", "minProperties",        "maxProperties"};

bool has_any(const Object& schema, std::span<const std::string_view> keywords) {
  return std::ranges::any_of(keywords,
                             [&](std::string_view each) { return schema.contains(each); });
}

std::optional<Types> types_named(std::string_view name) {
  if (name == "null") return null_type;
  if (name == "boolean") return boolean_type;
  if (name == "integer") return integer_type;
  if (name == "number") return number_types;
  if (name == "string") return string_type;
  if (name == "array") return array_type;
  if (name == "object") return object_type;
  return std::nullopt;
}

// The types in a `type` keyword; nothing if it names none.
std::optional<Types> types_in(const Value& value) {
  if (const std::string* const name = value.if_string()) return types_named(*name);
  const Array* const list = value.if_array();
  if (list == nullptr) return std::nullopt;
  Types all = 0;
  for (const Value& each : *list) {
    const std::string* const name = each.if_string();
    const auto types = name == nullptr ? std::nullopt : types_named(*name);
    if (!types) return std::nullopt;
    all |= *types;
  }
  return all;
}

// The values of `const` and `enum`.
std::vector<const Value*> literals_in(const Object& schema, std::string_view keyword) {
  std::vector<const Value*> values;
  const Value* const found = schema.find(keyword);
  if (found == nullptr) return values;
  if (keyword == "const") return {found};
  if (const Array* const list = found->if_array()) {
    for (const Value& each : *list) values.push_back(&each);
  }
  return values;
}

bool is_annotation(std::string_view keyword) {
  constexpr std::array<std::string_view, 10> annotations = {
      "title",    "description", "default", "examples", "$comment",
      "readOnly", "writeOnly",   "$schema", "$id",      "deprecated"};
  return std::ranges::find(annotations, keyword) != annotations.end();
}

// The only meaningful keyword of a schema, or an empty string.
std::string_view only_keyword(const Object& schema) {
  std::string_view only;
  for (const Member& member : schema.members()) {
    if (is_annotation(member.key)) continue;
    if (!only.empty()) return {};
    only = member.key;
  }
  return only;
}

bool says_nothing(const Value& schema) {
  const Object* const object = schema.if_object();
  return object != nullptr && std::ranges::all_of(object->members(), [](const Member& each) {
           return is_annotation(each.key);
         });
}

long double number_of(const Value& value) {
  if (const std::int64_t* const integer = value.if_integer())
    return static_cast<long double>(*integer);
  const Result<double> number = value.as_number("");
  return number.ok() ? *number : std::numeric_limits<double>::quiet_NaN();
}

void raise(std::optional<Bound>& least, Bound other) {
  if (!least || other.at > least->at || (other.at == least->at && other.open)) least = other;
}
void lower(std::optional<Bound>& most, Bound other) {
  if (!most || other.at < most->at || (other.at == most->at && other.open)) most = other;
}

}  // namespace

Types type_of(const Value& value) {
  switch (value.kind()) {
    case json::Kind::null:
      return null_type;
    case json::Kind::boolean:
      return boolean_type;
    case json::Kind::integer:
      return integer_type;
    case json::Kind::number: {
      const long double number = number_of(value);
      return std::floor(number) == number ? integer_type : fraction_type;
    }
    case json::Kind::string:
      return string_type;
    case json::Kind::array:
      return array_type;
    case json::Kind::object:
      break;
  }
  return object_type;
}

std::string canonical(const Value& value) {
  if (const auto whole = whole_number(value)) return cat(*whole);
  if (const Array* const list = value.if_array()) {
    std::string text = "[";
    for (const Value& each : *list) text += cat(canonical(each), ",");
    return text + "]";
  }
  if (const Object* const object = value.if_object()) {
    std::map<std::string_view, const Value*> members;
    for (const Member& each : object->members()) members.emplace(each.key, &each.value);
    std::string text = "{";
    for (const auto& [key, each] : members) {
      json::append_string(text, key);
      text += cat(":", canonical(*each), ",");
    }
    return text + "}";
  }
  return json::write(value);
}

std::optional<std::int64_t> whole_number(const Value& value) {
  if (const std::int64_t* const integer = value.if_integer()) return *integer;
  if (value.kind() != json::Kind::number || value.if_big_integer() != nullptr) return std::nullopt;
  const double number = value.as_number("").value();
  constexpr double limit = 9e18;
  if (std::floor(number) != number || std::abs(number) > limit) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

bool Facts::is_choice_alone() const {
  return choices.size() == 1 && !typed && types == all_types && !literals && excluded.empty() &&
         !least && !most && multiples.empty() && lengths.empty() && patterns.empty() &&
         formats.empty() && arrays.empty() && objects.empty();
}

std::size_t Facts::size() const {
  std::size_t count = multiples.size() + lengths.size() + patterns.size() + formats.size() +
                      arrays.size() + objects.size() + excluded.size();
  if (literals) count += literals->size();
  for (const Choice& choice : choices) count += choice.ways.size();
  return count;
}

std::set<std::string> required_in(const Facts& facts) {
  std::set<std::string> names;
  for (const Object* const each : facts.objects) {
    const Value* const required = each->find("required");
    if (required == nullptr || required->if_array() == nullptr) continue;
    for (const Value& name : *required->if_array()) {
      if (name.if_string() != nullptr) names.insert(*name.if_string());
    }
  }
  return names;
}

Error Gathering::refuse(std::string what, std::string fix) const {
  return Error(ErrorCode::invalid_argument, std::move(what), std::string(where_), std::move(fix));
}

Result<Facts> Gathering::facts_of(const Schemas& schemas) {
  Facts facts;
  if (schemas.size() == 1) facts.outer = schemas.front()->if_object();
  for (const Value* const each : schemas) MOTLEY_TRY_VOID(add(*each, facts));
  return facts;
}

Result<void> Gathering::add(const Value& schema, Facts& facts, int depth) {
  if (++work_ > max_work || depth > max_in_place)
    return refuse("its parts refer to each other in too many ways", "make it simpler");
  if (const bool* const all = schema.if_boolean()) {
    facts.never |= !*all;
    return {};
  }
  const Object* const object = schema.if_object();
  if (object == nullptr)
    return refuse(cat("a schema is ", json::describe(schema.kind())),
                  "write an object, true or false");
  return add_object(*object, facts, depth);
}

Result<void> Gathering::add_object(const Object& schema, Facts& facts, int depth) {
  work_ += static_cast<std::int64_t>(schema.size());
  if (const Value* const reference = schema.find("$ref")) {
    const std::string* const name = reference->if_string();
    const Value* const target = name == nullptr ? nullptr : source_.find(*name);
    if (target != nullptr)
      MOTLEY_TRY_VOID(add(*target, facts, depth + 1));
    else
      source_.leave_out(&schema, "$ref");
  }
  for (const std::string_view keyword : {"$dynamicRef", "$recursiveRef"}) {
    if (schema.contains(keyword)) source_.leave_out(&schema, keyword);
  }
  MOTLEY_TRY_VOID(add_type(schema, facts));
  add_literals(schema, facts);
  MOTLEY_TRY_VOID(add_numbers(schema, facts));
  MOTLEY_TRY_VOID(add_lengths(schema, facts));
  if (const Value* const pattern = schema.find("pattern");
      pattern != nullptr && pattern->if_string())
    facts.patterns.push_back(&schema);
  if (const Value* const format = schema.find("format"); format != nullptr && format->if_string())
    facts.formats.push_back(&schema);
  if (has_any(schema, array_keywords)) facts.arrays.push_back(&schema);
  if (has_any(schema, object_keywords)) facts.objects.push_back(&schema);
  if (const Value* const all = schema.find("allOf"); all != nullptr && all->if_array() != nullptr) {
    for (const Value& each : *all->if_array()) MOTLEY_TRY_VOID(add(each, facts, depth + 1));
  }
  MOTLEY_TRY_VOID(add_choices(schema, facts));
  add_negation(schema, facts);
  add_dependencies(schema, facts);
  const Value* const condition = schema.find("if");
  if (condition == nullptr) return {};
  const Value* const yes = schema.find("then");
  const Value* const no = schema.find("else");
  if (condition->if_boolean() == nullptr && !says_nothing(*condition)) {
    if (yes != nullptr || no != nullptr) source_.leave_out(&schema, "if");
    return {};
  }
  const bool holds = condition->if_boolean() == nullptr || *condition->if_boolean();
  const Value* const taken = holds ? yes : no;
  return taken == nullptr ? Result<void>() : add(*taken, facts, depth + 1);
}

Result<void> Gathering::add_type(const Object& schema, Facts& facts) const {
  const Value* const type = schema.find("type");
  if (type == nullptr) return {};
  const auto types = types_in(*type);
  if (!types)
    return refuse(cat("type is ", json::write(*type)),
                  "use null, boolean, integer, number, string, array, object, or a list of these");
  facts.types &= *types;
  facts.typed = true;
  return {};
}

void Gathering::add_literals(const Object& schema, Facts& facts) {
  for (const std::string_view keyword : {"const", "enum"}) {
    if (!schema.contains(keyword)) continue;
    std::map<std::string, const Value*> literals;
    Types types = 0;
    for (const Value* const each : literals_in(schema, keyword)) {
      std::string text = canonical(*each);
      work_ += work_of(text);
      if (facts.literals && !facts.literals->contains(text)) continue;
      literals.emplace(std::move(text), each);
      types |= type_of(*each);
    }
    facts.literals = std::move(literals);
    facts.types &= types;
    facts.typed = true;
  }
}

Result<void> Gathering::add_numbers(const Object& schema, Facts& facts) const {
  const auto number = [&](std::string_view keyword) -> Result<std::optional<long double>> {
    const Value* const value = schema.find(keyword);
    if (value == nullptr) return std::optional<long double>();
    if (value->kind() != json::Kind::integer && value->kind() != json::Kind::number)
      return refuse(cat(keyword, " is ", json::describe(value->kind())), "write a number");
    return std::optional(number_of(*value));
  };
  // In older drafts a boolean: whether the bound itself is excluded.
  const auto is_open = [&](std::string_view keyword) {
    const Value* const value = schema.find(keyword);
    return value != nullptr && value->if_boolean() != nullptr && *value->if_boolean();
  };
  const auto is_flag = [&](std::string_view keyword) {
    const Value* const value = schema.find(keyword);
    return value != nullptr && value->if_boolean() != nullptr;
  };
  MOTLEY_TRY(const auto least, number("minimum"));
  if (least) raise(facts.least, {*least, is_open("exclusiveMinimum")});
  MOTLEY_TRY(const auto most, number("maximum"));
  if (most) lower(facts.most, {*most, is_open("exclusiveMaximum")});
  if (!is_flag("exclusiveMinimum")) {
    MOTLEY_TRY(const auto above, number("exclusiveMinimum"));
    if (above) raise(facts.least, {*above, true});
  }
  if (!is_flag("exclusiveMaximum")) {
    MOTLEY_TRY(const auto below, number("exclusiveMaximum"));
    if (below) lower(facts.most, {*below, true});
  }
  constexpr std::array<std::string_view, 4> bounds = {"minimum", "maximum", "exclusiveMinimum",
                                                      "exclusiveMaximum"};
  if (has_any(schema, bounds)) facts.bounds.push_back(&schema);
  MOTLEY_TRY(const auto multiple, number("multipleOf"));
  if (!multiple) return {};
  if (*multiple <= 0) return refuse("multipleOf is not above 0", "use a number above 0");
  facts.multiples.push_back(&schema);
  return {};
}

Result<void> Gathering::add_lengths(const Object& schema, Facts& facts) const {
  const Value* const least = schema.find("minLength");
  const Value* const most = schema.find("maxLength");
  if (least == nullptr && most == nullptr) return {};
  facts.lengths.push_back(&schema);
  if (least != nullptr)
    facts.min_length = std::max(facts.min_length, whole_number(*least).value_or(0));
  if (most != nullptr) {
    const std::int64_t bound =
        whole_number(*most).value_or(std::numeric_limits<std::int64_t>::max());
    facts.max_length = std::min(facts.max_length.value_or(bound), bound);
  }
  return {};
}

Result<void> Gathering::add_choices(const Object& schema, Facts& facts) {
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    const Value* const value = schema.find(keyword);
    if (value == nullptr) continue;
    const Array* const list = value->if_array();
    if (list == nullptr) return refuse(cat(keyword, " is no list"), "write a list");
    Choice choice{.schema = &schema,
                  .keyword = keyword,
                  .ways = {},
                  .exactly_one = keyword == "oneOf" && list->size() > 1};
    // OpenAPI's discriminator property, which all alternatives have.
    const Value* required = nullptr;
    if (const Value* const discriminator = schema.find("discriminator")) {
      const Object* const object = discriminator->if_object();
      const Value* const name = object == nullptr ? nullptr : object->find("propertyName");
      if (name != nullptr && name->if_string() != nullptr)
        required = source_.own(object_of({{"required", Array{*name}}}), &schema, keyword);
    }
    for (const Value& each : *list) {
      choice.ways.push_back({&each});
      if (required != nullptr) choice.ways.back().push_back(required);
    }
    work_ += static_cast<std::int64_t>(list->size());
    facts.choices.push_back(std::move(choice));
  }
  return {};
}

void Gathering::add_negation(const Object& schema, Facts& facts) {
  const Value* const negated = schema.find("not");
  if (negated == nullptr) return;
  if (const bool* const all = negated->if_boolean()) {
    facts.never |= *all;
    return;
  }
  const Object* const object = negated->if_object();
  if (object == nullptr) return source_.leave_out(&schema, "not");
  if (says_nothing(*negated)) {
    facts.never = true;
    return;
  }
  const std::string_view keyword = only_keyword(*object);
  if (keyword == "type") {
    if (const auto types = types_in(*object->find("type"))) {
      // Numbers that are not integers cannot be checked.
      const bool integers_only = (*types & number_types) == integer_type;
      facts.types &= ~(integers_only ? *types & ~number_types : *types);
      if (integers_only) source_.leave_out(&schema, "not");
      return;
    }
  } else if (keyword == "const" || keyword == "enum") {
    for (const Value* const each : literals_in(*object, keyword))
      facts.excluded.insert(canonical(*each));
    facts.negations.push_back(&schema);
    return;
  } else if (keyword == "required") {
    const Array* const names = object->find("required")->if_array();
    if (names != nullptr && names->size() == 1 && names->front().if_string() != nullptr) {
      const Value* const forbidding = source_.own(
          object_of({{"properties", object_of({{*names->front().if_string(), false}})}}), &schema,
          "not");
      facts.objects.push_back(forbidding->if_object());
      facts.types &= object_type;  // other types satisfy what is required of objects
      facts.typed = true;
      return;
    }
  }
  source_.leave_out(&schema, "not");
}

// Either the property is absent, or what depends on it must hold.
void Gathering::add_dependency(const Object& schema, std::string_view keyword,
                               const std::string& name, const Value& value, Facts& facts) {
  Choice choice{.schema = &schema, .keyword = keyword, .ways = {}, .exactly_one = false};
  choice.ways.push_back(
      {source_.own(object_of({{"properties", object_of({{name, false}})}}), &schema, keyword)});
  Array required{name};
  if (const Array* const names = value.if_array()) {
    for (const Value& each : *names) {
      if (each.if_string() != nullptr && *each.if_string() != name) required.push_back(each);
    }
    if (required.size() == 1) return;
  }
  choice.ways.push_back(
      {source_.own(object_of({{"required", std::move(required)}}), &schema, keyword)});
  if (value.if_array() == nullptr) choice.ways.back().push_back(&value);
  facts.choices.push_back(std::move(choice));
}

void Gathering::add_dependencies(const Object& schema, Facts& facts) {
  constexpr std::size_t max_dependencies = 6;
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Value* const value = schema.find(keyword);
    const Object* const map = value == nullptr ? nullptr : value->if_object();
    if (map == nullptr) continue;
    if (map->size() > max_dependencies) {
      source_.leave_out(&schema, keyword);
      continue;
    }
    for (const Member& member : map->members())
      add_dependency(schema, keyword, member.key, member.value, facts);
  }
}

}  // namespace motley::grammar::schema
