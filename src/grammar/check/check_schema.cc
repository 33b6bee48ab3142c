#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/cat.h"
#include "grammar/check/check.h"
#include "grammar/schema/facts.h"

namespace motley::grammar {
namespace {

namespace limits = grammar_limits;
using json::Object;
using json::Value;

// Keywords by the kind of their value. Other keywords hold no schema: literals of `const` and
// `enum` may be anything.
enum class Holds : std::uint8_t { schema, list, map, pattern_map };
struct Keyword {
  std::string_view name;
  Holds holds;
  // Whether the schema applies to the same value rather than to a part of it: a cycle of these is
  // meaningless.
  bool in_place = false;
};
constexpr std::array keywords{
    Keyword{"items", Holds::schema},
    Keyword{"additionalItems", Holds::schema},
    Keyword{"unevaluatedItems", Holds::schema},
    Keyword{"additionalProperties", Holds::schema},
    Keyword{"unevaluatedProperties", Holds::schema},
    Keyword{"propertyNames", Holds::schema},
    Keyword{"prefixItems", Holds::list},
    Keyword{"anyOf", Holds::list, true},
    Keyword{"oneOf", Holds::list, true},
    Keyword{"allOf", Holds::list, true},
    Keyword{"properties", Holds::map},
    Keyword{"patternProperties", Holds::pattern_map},
    Keyword{"then", Holds::schema, true},
    Keyword{"else", Holds::schema, true},
    Keyword{"dependentSchemas", Holds::map, true},
    Keyword{"dependencies", Holds::map, true},
};
constexpr std::array<std::string_view, 3> least_counts = {"minLength", "minItems", "minProperties"};
constexpr std::array<std::string_view, 3> max_counts = {"maxLength", "maxItems", "maxProperties"};

class SchemaCheck {
 public:
  SchemaCheck(const Value& root, std::string_view where)
      : root_(root), source_(root), where_(where) {}

  Result<void> run() {
    MOTLEY_TRY(const std::int64_t parts, parts_of(root_));
    if (parts <= limits::schema_parts) return {};
    return refuse(cat("the schema has ", parts == max_parts ? "over " : "", parts,
                      " parts once every $ref is replaced by what it names, the most are ",
                      limits::schema_parts),
                  "make it smaller");
  }

 private:
  static constexpr std::int64_t max_parts = limits::schema_parts * 1000;

  struct Seen {
    bool done = false;
    std::int64_t parts = 1;
    std::int64_t steps = 0;  // number of steps into parts of the value so far
  };

  Error refuse(std::string what, std::string fix) const {
    return Error(ErrorCode::invalid_argument, std::move(what), std::string(where_), std::move(fix));
  }

  // Counts the schemas in a schema, itself and referenced ones included.
  Result<std::int64_t> parts_of(const Value& schema) {
    const Object* const object = schema.if_object();
    if (object == nullptr) {
      if (schema.if_boolean() != nullptr) return std::int64_t{1};
      return refuse(cat("a schema is ", json::describe(schema.kind())),
                    "write an object, true or false");
    }
    const auto [place, first] = seen_.try_emplace(object, Seen{.steps = steps_});
    if (!first) {
      if (place->second.done) return place->second.parts;
      if (place->second.steps == steps_)
        return refuse("a schema refers to itself, without a part of the value in between",
                      "give it a type of its own");
      return std::int64_t{1};  // it recurs
    }
    MOTLEY_TRY_VOID(check_counts(*object));
    MOTLEY_TRY_VOID(check_literals(*object));
    std::int64_t parts = 1;
    MOTLEY_TRY_VOID(add_reference(*object, parts));
    for (const Keyword& keyword : keywords) {
      const Value* const value = object->find(keyword.name);
      if (value == nullptr) continue;
      steps_ += keyword.in_place ? 0 : 1;
      MOTLEY_TRY_VOID(add_held(keyword, *value, parts));
      steps_ -= keyword.in_place ? 0 : 1;
    }
    seen_[object] = {.done = true, .parts = parts};
    return parts;
  }

  Result<void> add(const Value& schema, std::int64_t& parts) {
    if (chain_ == limits::schema_chain)
      return refuse(cat("schemas lie in schemas, or lead through $ref, more than ",
                        limits::schema_chain, " deep"),
                    "make it flatter");
    ++chain_;
    MOTLEY_TRY(const std::int64_t more, parts_of(schema));
    --chain_;
    parts = std::min(parts + more, max_parts);
    return {};
  }

  Result<void> add_held(const Keyword& keyword, const Value& value, std::int64_t& parts) {
    const json::Array* const list = value.if_array();
    if (keyword.holds == Holds::list || (keyword.name == "items" && list != nullptr)) {
      if (list == nullptr) return refuse(cat(keyword.name, " is no list"), "write a list");
      for (const Value& schema : *list) MOTLEY_TRY_VOID(add(schema, parts));
      return {};
    }
    if (keyword.holds == Holds::schema) return add(value, parts);
    const Object* const map = value.if_object();
    if (map == nullptr) return refuse(cat(keyword.name, " is no object"), "write an object");
    for (const json::Member& member : map->members()) {
      if (keyword.holds == Holds::pattern_map)
        MOTLEY_TRY_VOID(check_regex(member.key, cat(where_, ", patternProperties")));
      // In older drafts a property may require other properties.
      if (keyword.name == "dependencies" && member.value.if_array() != nullptr) continue;
      MOTLEY_TRY_VOID(add(member.value, parts));
    }
    return {};
  }

  Result<void> add_reference(const Object& schema, std::int64_t& parts) {
    const Value* const reference = schema.find("$ref");
    if (reference == nullptr) return {};
    const std::string* const path = reference->if_string();
    if (path == nullptr) return refuse("a $ref is no string", "write one like #/$defs/name");
    const Value* const target = source_.find(*path);
    if (target != nullptr) return add(*target, parts);
    // The meaning of such a reference depends on its position, so it is not enforced.
    if (source_.has_resources()) return {};
    return refuse(cat("$ref ", quote(*path), " names nothing in the schema"),
                  "name a part of the schema itself, like #/$defs/name");
  }

  // The compiler reads an integer beyond 64 bits as a float, and would make a model write that.
  Result<void> check_literals(const Object& schema) const {
    for (const std::string_view name : {"const", "enum"}) {
      const Value* const value = schema.find(name);
      if (value == nullptr) continue;
      if (const std::string* const digits = big_integer_in(*value))
        return refuse(
            cat("no grammar can write ", *digits, " of ", name, ", an integer beyond 64 bits"),
            "make it a string, or leave it out");
    }
    return {};
  }

  // The digits of the first such integer, or null.
  static const std::string* big_integer_in(const Value& value) {
    const std::string* found = value.if_big_integer();
    if (const json::Array* const list = value.if_array()) {
      for (const Value& each : *list) found = found == nullptr ? big_integer_in(each) : found;
    }
    if (const Object* const object = value.if_object()) {
      for (const json::Member& each : object->members())
        found = found == nullptr ? big_integer_in(each.value) : found;
    }
    return found;
  }

  Result<std::optional<std::int64_t>> count_of(const Object& schema, std::string_view name) const {
    const Value* const count = schema.find(name);
    if (count == nullptr) return std::optional<std::int64_t>();
    const auto whole = schema::whole_number(*count);
    if (!whole && count->kind() != json::Kind::number)
      return refuse(cat(name, " is ", json::describe(count->kind())), "write an integer");
    if (!whole || *whole < 0)
      return refuse(cat(name, " is ", json::write(*count)), "write an integer from 0 on");
    return whole;
  }

  Result<void> check_counts(const Object& schema) const {
    for (const std::string_view name : least_counts) {
      MOTLEY_TRY(const auto count, count_of(schema, name));
      if (count) MOTLEY_TRY_VOID(check_repeats(*count, cat(where_, ", ", name)));
      if (count && name == "minLength" && *count > limits::least_length)
        return refuse(cat("a string of at least ", *count, " characters"),
                      cat("ask for at most ", limits::least_length));
    }
    for (const std::string_view name : max_counts) MOTLEY_TRY_VOID(count_of(schema, name));
    const Value* const pattern = schema.find("pattern");
    if (pattern == nullptr) return {};
    const std::string* const text = pattern->if_string();
    if (text == nullptr)
      return refuse(cat("pattern is ", json::describe(pattern->kind())), "write a string");
    return check_regex(*text, cat(where_, ", pattern"));
  }

  const Value& root_;
  schema::Source source_;
  std::string_view where_;
  std::unordered_map<const Object*, Seen> seen_;
  std::int64_t steps_ = 0;
  int chain_ = 0;
};

// Formats nest in formats, and schemas in formats.
constexpr int levels_of_formats = 8;

// Members that identify a format without a type.
Result<void> check_parts(const Object& format, std::string_view where) {
  const auto text_of = [&](std::string_view key) {
    const Value* const value = format.find(key);
    return value == nullptr ? nullptr : value->if_string();
  };
  if (const std::string* const grammar = text_of("grammar"))
    MOTLEY_TRY_VOID(check_ebnf(*grammar, where));
  if (const std::string* const pattern = text_of("pattern"))
    MOTLEY_TRY_VOID(check_regex(*pattern, where));
  for (const std::string_view key : {"min", "max"}) {
    const Value* const count = format.find(key);
    if (count != nullptr && count->if_integer() != nullptr && *count->if_integer() > 0)
      MOTLEY_TRY_VOID(check_repeats(*count->if_integer(), where));
  }
  return {};
}

Result<void> check_format(const Value& format, std::string_view where) {
  if (const json::Array* const list = format.if_array()) {
    for (const Value& each : *list) MOTLEY_TRY_VOID(check_format(each, where));
  }
  const Object* const object = format.if_object();
  if (object == nullptr) return {};
  MOTLEY_TRY_VOID(check_parts(*object, where));
  if (const Value* const schema = object->find("json_schema"))
    return SchemaCheck(*schema, where).run();
  for (const json::Member& member : object->members())
    MOTLEY_TRY_VOID(check_format(member.value, where));
  return {};
}

}  // namespace

Result<void> check_schema(std::string_view text, std::string_view where) {
  MOTLEY_TRY(const Value root,
             json::parse(text, where, {.depth = limits::schema_depth, .values = 200'000}));
  return check_schema_value(root, where);
}

Result<void> check_schema_value(const Value& schema, std::string_view where) {
  return SchemaCheck(schema, where).run();
}

Result<void> check_structural_tag(std::string_view text, std::string_view where) {
  MOTLEY_TRY(const Value root,
             json::parse(text, where,
                         {.depth = limits::schema_depth + levels_of_formats, .values = 200'000}));
  return check_format(root, where);
}

}  // namespace motley::grammar
