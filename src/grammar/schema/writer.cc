#include "grammar/schema/writer.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>

#include "base/cat.h"
#include "grammar/schema/recursion.h"

namespace motley::grammar::schema {
namespace {

using json::Array;

constexpr int max_depth = 256;
constexpr std::int64_t max_work = 150'000;
constexpr std::size_t max_ways = 64;      // of the combinations of several choices
constexpr std::size_t max_compared = 64;  // of oneOf, pairwise

std::optional<const std::string*> reference_alone(const Object& schema) {
  constexpr std::array<std::string_view, 10> annotations = {
      "title",    "description", "default", "examples", "$comment",
      "readOnly", "writeOnly",   "$schema", "$id",      "deprecated"};
  const Value* const reference = schema.find("$ref");
  if (reference == nullptr || reference->if_string() == nullptr) return std::nullopt;
  for (const json::Member& member : schema.members()) {
    if (member.key != "$ref" && std::ranges::find(annotations, member.key) == annotations.end())
      return std::nullopt;
  }
  return reference->if_string();
}

Types type_of_canonical(std::string_view text) {
  switch (text.front()) {
    case '"':
      return string_type;
    case '[':
      return array_type;
    case '{':
      return object_type;
    case 'n':
      return null_type;
    case 't':
    case 'f':
      return boolean_type;
    default:
      return number_types;
  }
}

}  // namespace

std::optional<Value> any_of(std::vector<Value> ways) {
  std::unordered_set<std::string> known;
  Array different;
  for (Value& each : ways) {
    if (each.if_object()->empty()) return anything();
    if (known.insert(json::write(each)).second) different.push_back(std::move(each));
  }
  if (different.empty()) return std::nullopt;
  if (different.size() == 1) return std::move(different.front());
  return object_of({{"anyOf", std::move(different)}});
}

Object SchemaWriter::definitions() const {
  std::vector<json::Member> members;
  for (std::size_t i = 0; i < definitions_.size(); ++i) {
    if (definitions_[i].body) members.push_back({cat("d", i), *definitions_[i].body});
  }
  return object_of(std::move(members));
}

bool SchemaWriter::forget_endless() {
  std::vector<const Value*> bodies;
  for (const Definition& each : definitions_) bodies.push_back(each.body ? &*each.body : nullptr);
  const std::vector<bool> ends = have_an_end(bodies);
  const std::size_t before = endless_.size();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]) endless_.insert(definitions_[i].schemas);
  }
  known_.clear();
  known_formats_.clear();
  definitions_.clear();
  return endless_.size() != before;
}

SchemaWriter::Written SchemaWriter::write(Schemas schemas) {
  bool followed = schemas.size() > 1;
  std::set<const Value*> known;
  std::erase_if(schemas, [&](const Value* each) {
    const bool all = each->if_boolean() != nullptr && *each->if_boolean();
    const bool empty = each->if_object() != nullptr && each->if_object()->empty();
    return all || empty || !known.insert(each).second;
  });
  if (schemas.empty()) return std::optional(anything());
  if (std::ranges::any_of(schemas, [](const Value* each) { return each->if_boolean() != nullptr; }))
    return std::optional<Value>();
  for (int i = 0; schemas.size() == 1 && i < max_depth; ++i) {
    const Object* const object = schemas.front()->if_object();
    const auto reference = object == nullptr ? std::nullopt : reference_alone(*object);
    const Value* const target = reference ? source_.find(**reference) : nullptr;
    if (target == nullptr) break;
    schemas.front() = target;
    followed = true;
  }
  if (!followed) return write_body(schemas);
  if (endless_.contains(schemas)) return std::optional<Value>();
  const auto [place, is_new] = known_.try_emplace(schemas, definitions_.size());
  const std::size_t index = place->second;
  if (is_new) {
    definitions_.push_back({.schemas = schemas, .done = false, .body = {}});
    MOTLEY_TRY(auto body, write_body(schemas));
    definitions_[index].body = std::move(body);
    definitions_[index].done = true;
  }
  const Definition& definition = definitions_[index];
  if (definition.done && !definition.body) return std::optional<Value>();
  return std::optional<Value>(object_of({{"$ref", cat("#/$defs/d", index)}}));
}

SchemaWriter::Written SchemaWriter::write_body(const Schemas& schemas) {
  if (depth_ == max_depth)
    return refuse(cat("schemas lie in schemas more than ", max_depth, " deep"), "make it flatter");
  ++depth_;
  MOTLEY_TRY(Facts facts, gathering_.facts_of(schemas));
  MOTLEY_TRY(auto written, write_facts(std::move(facts)));
  --depth_;
  return written;
}

Result<void> SchemaWriter::work(std::int64_t more) {
  work_ += more;
  if (work_ <= max_work) return {};
  return refuse("its alternatives and references multiply", "make it simpler");
}

SchemaWriter::Written SchemaWriter::write_facts(Facts facts) {
  MOTLEY_TRY_VOID(work(static_cast<std::int64_t>(facts.size()) + 1));
  if (facts.never || facts.types == 0) return std::optional<Value>();
  if (!facts.choices.empty()) return write_choice(std::move(facts));
  if (facts.literals) return write_literals(facts);
  const Types all = facts.types;
  settle(facts);
  MOTLEY_TRY(auto written, write_types(facts));
  if (written || facts.types == all) return written;
  // No value of the assumed type satisfies it; a value of another type would.
  ++other_types_;
  facts.types = all & ~facts.types;
  return write_types(facts);
}

// Keywords of one type imply that type.
void SchemaWriter::settle(Facts& facts) const {
  if (facts.typed || to_the_letter_) return;
  Types types = 0;
  if (!facts.bounds.empty() || !facts.multiples.empty()) types |= number_types;
  if (!facts.lengths.empty() || !facts.patterns.empty() || !facts.formats.empty())
    types |= string_type;
  if (!facts.arrays.empty()) types |= array_type;
  if (!facts.objects.empty()) types |= object_type;
  if (types != 0) facts.types &= types;
}

// Several choices are expanded to all their combinations: the largest are dropped until there are
// few.
void SchemaWriter::limit_choices(Facts& facts) {
  const auto combinations = [&] {
    std::size_t product = 1;
    for (const Choice& each : facts.choices)
      product = std::min(product * std::max<std::size_t>(each.ways.size(), 1), max_ways * 1000);
    return product;
  };
  while (facts.choices.size() > 1 && combinations() > max_ways) {
    const auto largest = std::ranges::max_element(
        facts.choices, {}, [](const Choice& each) { return each.ways.size(); });
    source_.leave_out(largest->schema, largest->keyword);
    facts.choices.erase(largest);
  }
}

SchemaWriter::Written SchemaWriter::write_choice(Facts facts) {
  const bool alone = facts.is_choice_alone();
  limit_choices(facts);
  const Choice choice = std::move(facts.choices.front());
  facts.choices.erase(facts.choices.begin());
  if (choice.exactly_one) {
    MOTLEY_TRY(const bool disjoint, are_disjoint(choice, facts));
    if (!disjoint) source_.leave_out(choice.schema, choice.keyword);
  }
  const int other_types = other_types_;
  std::vector<Value> ways;
  for (const Schemas& way : choice.ways) {
    if (alone) {
      MOTLEY_TRY(auto written, write(way));
      if (written) ways.push_back(*std::move(written));
      continue;
    }
    Facts joined = facts;
    for (const Value* const each : way) MOTLEY_TRY_VOID(gathering_.add(*each, joined));
    MOTLEY_TRY(auto written, write_facts(std::move(joined)));
    if (written) ways.push_back(*std::move(written));
  }
  // They were not compared for this type.
  if (choice.exactly_one && other_types_ != other_types)
    source_.leave_out(choice.schema, choice.keyword);
  return any_of(std::move(ways));
}

namespace {

bool share_no_literal(const Facts& one, const Facts& other) {
  return one.literals && other.literals &&
         std::ranges::none_of(
             *one.literals, [&](const auto& each) { return other.literals->contains(each.first); });
}

// The schemas of a property by name.
Schemas property_in(const Facts& facts, const std::string& name) {
  Schemas schemas;
  for (const Object* const each : facts.objects) {
    const Value* const properties = each->find("properties");
    const Object* const map = properties == nullptr ? nullptr : properties->if_object();
    if (const Value* const found = map == nullptr ? nullptr : map->find(name))
      schemas.push_back(found);
  }
  return schemas;
}

}  // namespace

struct SchemaWriter::Way {
  Facts facts;
  Types written = 0;  // types of values that the grammar has for it
  std::set<std::string> required;
};

// Whether no value that the grammar has for one alternative satisfies another. `rest` applies to
// all of them.
Result<bool> SchemaWriter::are_disjoint(const Choice& choice, const Facts& rest) {
  if (choice.ways.size() > max_compared) return false;
  std::vector<Way> ways;
  for (const Schemas& way : choice.ways) {
    MOTLEY_TRY_VOID(work(static_cast<std::int64_t>(rest.size())));
    Facts joined = rest;
    for (const Value* const each : way) MOTLEY_TRY_VOID(gathering_.add(*each, joined));
    settle(joined);
    MOTLEY_TRY(Facts facts, gathering_.facts_of(way));
    std::set<std::string> required = required_in(facts);
    ways.push_back({std::move(facts), joined.types, std::move(required)});
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      MOTLEY_TRY(const bool disjoint, are_disjoint(ways[i], ways[k]));
      if (!disjoint) return false;
    }
  }
  return true;
}

Result<bool> SchemaWriter::are_disjoint(const Way& one, const Way& other) {
  MOTLEY_TRY_VOID(work(static_cast<std::int64_t>(one.required.size() + other.required.size())));
  const Types both = (one.written & other.facts.types) | (other.written & one.facts.types);
  if (one.facts.never || other.facts.never || both == 0) return true;
  if (share_no_literal(one.facts, other.facts)) {
    MOTLEY_TRY_VOID(work(static_cast<std::int64_t>(one.facts.literals->size())));
    return true;
  }
  if (both != object_type) return false;
  for (const std::string& name : other.required) {
    if (!one.required.contains(name)) continue;
    MOTLEY_TRY_VOID(
        work(static_cast<std::int64_t>(one.facts.objects.size() + other.facts.objects.size())));
    MOTLEY_TRY(const Facts first, gathering_.facts_of(property_in(one.facts, name)));
    MOTLEY_TRY(const Facts second, gathering_.facts_of(property_in(other.facts, name)));
    if ((first.types & second.types) == 0 || share_no_literal(first, second)) return true;
  }
  return lacks_required_of(one, other) && lacks_required_of(other, one);
}

// Whether objects of `one`'s grammar never have a property that `other` requires.
bool SchemaWriter::lacks_required_of(const Way& one, const Way& other) const {
  if (to_the_letter_ || !one.facts.choices.empty()) return false;
  for (const Object* const each : one.facts.objects) {
    for (const std::string_view keyword :
         {"additionalProperties", "patternProperties", "unevaluatedProperties"}) {
      const Value* const value = each->find(keyword);
      if (value != nullptr && (value->if_boolean() == nullptr || *value->if_boolean()))
        return false;
    }
  }
  return std::ranges::any_of(other.required, [&](const std::string& name) {
    return !one.required.contains(name) && property_in(one.facts, name).empty();
  });
}

SchemaWriter::Written SchemaWriter::write_types(const Facts& facts) {
  const bool free = facts.bounds.empty() && facts.multiples.empty() && facts.lengths.empty() &&
                    facts.patterns.empty() && facts.formats.empty() && facts.arrays.empty() &&
                    facts.objects.empty() && facts.excluded.empty();
  if (free && facts.types == all_types) return std::optional(anything());
  for (const std::string& each : facts.excluded) {
    const Types type = type_of_canonical(each);
    if ((type & facts.types) != 0 && type != null_type && type != boolean_type)
      leave_out(facts.negations, "not");
  }
  std::vector<Value> ways;
  const auto keep = [&](std::optional<Value> way) {
    if (way) ways.push_back(*std::move(way));
  };
  if ((facts.types & null_type) != 0 && !facts.excluded.contains("null")) keep(of_type("null"));
  if ((facts.types & boolean_type) != 0) {
    Array values;
    for (const bool each : {true, false}) {
      if (!facts.excluded.contains(each ? "true" : "false")) values.emplace_back(each);
    }
    if (values.size() == 2)
      keep(of_type("boolean"));
    else if (!values.empty())
      keep(object_of({{"enum", std::move(values)}}));
  }
  if ((facts.types & number_types) != 0) keep(write_number(facts));
  if ((facts.types & string_type) != 0) keep(write_string(facts));
  if ((facts.types & array_type) != 0) {
    MOTLEY_TRY(auto written, write_array(facts));
    keep(std::move(written));
  }
  if ((facts.types & object_type) != 0) {
    MOTLEY_TRY(auto written, write_object(facts));
    keep(std::move(written));
  }
  return any_of(std::move(ways));
}

}  // namespace motley::grammar::schema
