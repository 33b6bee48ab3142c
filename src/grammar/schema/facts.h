#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "grammar/schema/source.h"

// The combined facts of several schemas that apply to the same value.
namespace motley::grammar::schema {

// Types of values as bits: a number is an integer or has a fraction.
using Types = unsigned;
inline constexpr Types null_type = 1;
inline constexpr Types boolean_type = 2;
inline constexpr Types integer_type = 4;
inline constexpr Types fraction_type = 8;
inline constexpr Types number_types = integer_type | fraction_type;
inline constexpr Types string_type = 16;
inline constexpr Types array_type = 32;
inline constexpr Types object_type = 64;
inline constexpr Types all_types = 127;

Types type_of(const Value& value);

// Equal for values that are equal by JSON Schema.
std::string canonical(const Value& value);

// A count or another integer, even if written as 2.0.
std::optional<std::int64_t> whole_number(const Value& value);

// The work that copying a text counts as.
inline std::int64_t work_of(std::string_view text) {
  return 1 + static_cast<std::int64_t>(text.size() / 16);
}

// Schemas that all apply to one value.
using Schemas = std::vector<const Value*>;

// From members with distinct keys.
inline Object object_of(std::vector<json::Member> members) {
  return Object::make(std::move(members)).value();
}

struct Bound {
  long double at = 0;
  bool open = false;  // the bound itself is excluded
};

// The value must satisfy one of these.
struct Choice {
  const Object* schema = nullptr;
  std::string_view keyword;
  std::vector<Schemas> ways;
  bool exactly_one = false;
};

struct Facts {
  // The schema that contains all the others in place, if there is one.
  const Object* outer = nullptr;
  bool never = false;
  bool typed = false;
  Types types = all_types;
  std::optional<std::map<std::string, const Value*>> literals;  // by canonical text
  std::set<std::string> excluded;                               // canonical, by `not`
  std::optional<Bound> least;
  std::optional<Bound> most;
  std::int64_t min_length = 0;
  std::optional<std::int64_t> max_length;
  // Schemas with one of these keywords.
  std::vector<const Object*> bounds;
  std::vector<const Object*> multiples;
  std::vector<const Object*> lengths;
  std::vector<const Object*> negations;
  std::vector<const Object*> patterns;
  std::vector<const Object*> formats;
  std::vector<const Object*> arrays;
  std::vector<const Object*> objects;
  std::vector<Choice> choices;

  // Whether there is a single choice and no facts that would have to be combined with its
  // alternatives.
  bool is_choice_alone() const;
  // Its approximate size.
  std::size_t size() const;
};

// The required properties of an object.
std::set<std::string> required_in(const Facts& facts);

// Adds a schema's keywords to the facts. Subschemas of parts are not examined.
class Gathering {
 public:
  Gathering(Source& source, std::string_view where) : source_(source), where_(where) {}

  Result<Facts> facts_of(const Schemas& schemas);
  Result<void> add(const Value& schema, Facts& facts) { return add(schema, facts, 0); }

 private:
  Result<void> add(const Value& schema, Facts& facts, int depth);
  Result<void> add_object(const Object& schema, Facts& facts, int depth);
  Result<void> add_type(const Object& schema, Facts& facts) const;
  void add_literals(const Object& schema, Facts& facts);
  Result<void> add_numbers(const Object& schema, Facts& facts) const;
  Result<void> add_lengths(const Object& schema, Facts& facts) const;
  Result<void> add_choices(const Object& schema, Facts& facts);
  void add_negation(const Object& schema, Facts& facts);
  void add_dependencies(const Object& schema, Facts& facts);
  void add_dependency(const Object& schema, std::string_view keyword, const std::string& name,
                      const Value& value, Facts& facts);
  Error refuse(std::string what, std::string fix) const;

  Source& source_;
  std::string_view where_;
  std::int64_t work_ = 0;
};

}  // namespace motley::grammar::schema
