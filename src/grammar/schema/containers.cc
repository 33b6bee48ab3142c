#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/cat.h"
#include "grammar/check/check.h"
#include "grammar/schema/pattern.h"
#include "grammar/schema/writer.h"

// Lists and objects.
namespace motley::grammar::schema {
namespace {

using json::Array;
using json::Member;

constexpr std::int64_t max_count = grammar_limits::repeats;

std::int64_t count_of(const Object& schema, std::string_view keyword, std::int64_t otherwise) {
  const Value* const value = schema.find(keyword);
  return value == nullptr ? otherwise : whole_number(*value).value_or(otherwise);
}

const Object* map_of(const Object& schema, std::string_view keyword) {
  const Value* const value = schema.find(keyword);
  return value == nullptr ? nullptr : value->if_object();
}

bool is_flag(const Value& value, bool flag) {
  return value.if_boolean() != nullptr && *value.if_boolean() == flag;
}

}  // namespace

// The outer schema's keyword for the parts that no schema of the same value covers.
const Value* SchemaWriter::unevaluated(const Facts& facts,
                                       const std::vector<const Object*>& schemas,
                                       std::string_view keyword, std::string_view all_others) {
  const Value* found = nullptr;
  bool is_known = facts.outer != nullptr;
  for (const Object* const each : schemas) {
    if (each == facts.outer) {
      found = each->find(keyword);
      // These cover parts that depend on the answer.
      for (const std::string_view other : {"if", "contains", "not", "$dynamicRef", "$recursiveRef"})
        is_known &= !each->contains(other);
    } else if (const Value* const inner = each->find(keyword)) {
      if (!is_flag(*inner, true)) source_.leave_out(each, keyword);
    }
  }
  if (found == nullptr || is_flag(*found, true)) return nullptr;
  // Whether another schema covers all parts.
  const bool is_covered = std::ranges::any_of(schemas, [&](const Object* each) {
    const Value* const others = each->find(all_others);
    return (others != nullptr && others->if_array() == nullptr) ||
           (each != facts.outer && each->contains(keyword));
  });
  if (is_covered) return nullptr;
  if (is_known) return found;
  source_.leave_out(facts.outer, keyword);
  return nullptr;
}

// Lists.

struct SchemaWriter::Items {
  std::vector<Schemas> first = {};  // by place
  Schemas rest = {};
  bool has_rest = false;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  bool unique = false;

  Array written_first = {};
  std::optional<Value> written_rest = {};
};

void SchemaWriter::read_items(const Facts& facts, Items& items) {
  struct Part {
    const Array* first = nullptr;
    const Value* rest = nullptr;
  };
  std::vector<Part> parts;
  std::size_t longest = 0;
  for (const Object* const each : facts.arrays) {
    Part part{.rest = each->find("items")};
    const Value* first = each->find("prefixItems");
    if (part.rest != nullptr && part.rest->if_array() != nullptr) {  // as in older drafts
      first = part.rest;
      part.rest = each->find("additionalItems");
    }
    part.first = first == nullptr ? nullptr : first->if_array();
    if (part.first != nullptr) longest = std::max(longest, part.first->size());
    if (part.rest != nullptr) {
      items.has_rest = true;
      items.rest.push_back(part.rest);
    }
    items.least = std::max(items.least, count_of(*each, "minItems", 0));
    items.most = std::min(items.most, count_of(*each, "maxItems", items.most));
    const Value* const unique = each->find("uniqueItems");
    items.unique |= unique != nullptr && is_flag(*unique, true);
    const bool contains_any =
        count_of(*each, "minContains", 1) <= 0 && !each->contains("maxContains");
    if (each->contains("contains") && !contains_any) source_.leave_out(each, "contains");
    parts.push_back(part);
  }
  for (std::size_t i = 0; i < longest; ++i) {
    Schemas& place = items.first.emplace_back();
    for (const Part& part : parts) {
      if (part.first != nullptr && i < part.first->size())
        place.push_back(&(*part.first)[i]);
      else if (part.rest != nullptr)
        place.push_back(part.rest);
    }
    work_ += static_cast<std::int64_t>(parts.size());
  }
  if (const Value* const rest = unevaluated(facts, facts.arrays, "unevaluatedItems", "items")) {
    items.has_rest = true;
    items.rest.push_back(rest);
  }
}

Result<void> SchemaWriter::write_items(const Facts& facts, Items& items) {
  for (const Schemas& place : items.first) {
    const auto index = static_cast<std::int64_t>(items.written_first.size());
    if (index == items.most) break;
    MOTLEY_TRY(auto written, write(place));
    if (!written) items.most = index;  // the list must end before it
    if (!written) break;
    items.written_first.push_back(*std::move(written));
  }
  const auto first = static_cast<std::int64_t>(items.written_first.size());
  if (first < items.most) {
    const bool open = items.has_rest || to_the_letter_ || first == 0 || items.least > first;
    if (open) {
      MOTLEY_TRY(items.written_rest, write(items.rest));
    }
  }
  if (!items.written_rest) items.most = std::min(items.most, first);
  if (items.most > max_count && items.most != std::numeric_limits<std::int64_t>::max()) {
    leave_out(facts.arrays, "maxItems");
    items.most = std::numeric_limits<std::int64_t>::max();
  }
  return {};
}

SchemaWriter::Written SchemaWriter::write_array(const Facts& facts) {
  if (facts.arrays.empty()) return std::optional(of_type("array"));
  Items items;
  read_items(facts, items);
  MOTLEY_TRY_VOID(write_items(facts, items));
  if (items.least > items.most) return std::optional<Value>();
  if (items.unique && items.most > 1) return write_unique(facts, items);
  return std::optional<Value>(assemble(std::move(items)));
}

Value SchemaWriter::assemble(Items items) {
  std::vector<Member> members = {{"type", "array"}};
  if (!items.written_first.empty())
    members.push_back({"prefixItems", std::move(items.written_first)});
  if (!items.written_rest) {
    members.push_back({"items", false});
  } else {
    members.push_back({"items", *std::move(items.written_rest)});
    if (items.most <= max_count) members.push_back({"maxItems", items.most});
  }
  if (items.least > 0) members.push_back({"minItems", items.least});
  return object_of(std::move(members));
}

// With few values, all lists without duplicates are enumerated.
SchemaWriter::Written SchemaWriter::write_unique(const Facts& facts, const Items& items) {
  constexpr std::size_t max_values = 4;
  const auto as_list = [&] {
    leave_out(facts.arrays, "uniqueItems");
    return std::optional<Value>(assemble(items));
  };
  if (!items.written_first.empty()) return as_list();
  MOTLEY_TRY(Facts each, gathering_.facts_of(items.rest));
  if (!each.choices.empty() || !each.literals) return as_list();
  std::vector<Value> values;
  for (const auto& [text, literal] : *each.literals) {
    if (may_be(*literal, each)) values.push_back(exactly(*literal));
  }
  if (values.size() > max_values) return as_list();
  const auto count = static_cast<std::int64_t>(values.size());
  if (items.least > count) return std::optional<Value>();
  std::vector<Value> ways;
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  do {
    MOTLEY_TRY_VOID(work(count * count));
    for (std::int64_t length = items.least; length <= std::min(items.most, count); ++length) {
      Array list;
      for (std::int64_t i = 0; i < length; ++i)
        list.push_back(values[order[static_cast<std::size_t>(i)]]);
      ways.push_back(assemble({.least = length, .written_first = std::move(list)}));
    }
  } while (std::ranges::next_permutation(order).found);
  return any_of(std::move(ways));
}

// Objects.

struct SchemaWriter::Members {
  struct Pattern {
    SchemaPattern pattern;
    const Object* schema = nullptr;
    const Value* value = nullptr;
  };

  std::vector<std::string> names;
  std::set<std::string> known;
  std::set<std::string> required;
  std::vector<Pattern> patterns;
  std::set<const Object*> unreadable;  // schemas with patterns that cannot be written
  bool listed = false;                 // a schema lists the properties
  Schemas others;                      // of properties without a schema of their own
  const Value* unevaluated = nullptr;  // the same, from an outer schema
  bool open = true;
  bool covered = false;  // a schema covers the other properties
  bool is_any_forbidden = false;
  Schemas rules;  // of names
  std::optional<Facts> rule;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();

  std::vector<Member> written;
  std::vector<Member> written_patterns;
  std::optional<Value> written_others;
  std::optional<Value> written_rule;

  void name(const std::string& each) {
    if (known.insert(each).second) names.push_back(each);
  }
};

void SchemaWriter::read_members(const Facts& facts, Members& members) {
  const auto keep_others = [&](const Value& others) {
    members.covered = true;
    members.open &= !is_flag(others, false);
    members.others.push_back(&others);
  };
  members.unevaluated =
      unevaluated(facts, facts.objects, "unevaluatedProperties", "additionalProperties");
  if (members.unevaluated != nullptr) keep_others(*members.unevaluated);
  for (const Object* const each : facts.objects) {
    if (const Object* const map = map_of(*each, "properties")) {
      for (const Member& member : map->members()) members.name(member.key);
    }
    if (const Object* const map = map_of(*each, "patternProperties")) {
      for (const Member& member : map->members()) {
        work_ += work_of(member.key);
        if (auto pattern = SchemaPattern::read(member.key, to_the_letter_))
          members.patterns.push_back({*std::move(pattern), each, &member.value});
        else
          members.unreadable.insert(each);
      }
    }
    if (members.unreadable.contains(each)) source_.leave_out(each, "patternProperties");
    members.covered |= each->contains("unevaluatedProperties");
    members.listed |= each->contains("properties") || each->contains("patternProperties");
    if (const Value* const others = each->find("additionalProperties")) keep_others(*others);
    if (const Value* const rule = each->find("propertyNames")) members.rules.push_back(rule);
    members.least = std::max(members.least, count_of(*each, "minProperties", 0));
    members.most = std::min(members.most, count_of(*each, "maxProperties", members.most));
  }
  for (const Object* const each : facts.objects) {
    const Value* const required = each->find("required");
    if (required == nullptr || required->if_array() == nullptr) continue;
    for (const Value& name : *required->if_array()) {
      if (name.if_string() == nullptr) continue;
      members.name(*name.if_string());
      members.required.insert(*name.if_string());
    }
  }
}

// All schemas that apply to a property.
Schemas SchemaWriter::schemas_of(const std::string& name, const Facts& facts,
                                 const Members& members) {
  Schemas schemas;
  bool evaluated = false;
  for (const Object* const each : facts.objects) {
    ++work_;
    bool own = members.unreadable.contains(each);
    const Object* const properties = map_of(*each, "properties");
    if (const Value* const found = properties == nullptr ? nullptr : properties->find(name)) {
      schemas.push_back(found);
      own = true;
    }
    for (const Members::Pattern& pattern : members.patterns) {
      if (pattern.schema != each) continue;
      ++work_;
      const auto found = pattern.pattern.found_in(name);
      if (found && !*found) continue;
      // It might also be written by its pattern.
      source_.leave_out(each, "patternProperties");
      if (found) schemas.push_back(pattern.value);
      own = true;
    }
    evaluated |= own;
    const Value* const others = each->find("additionalProperties");
    if (!own && others != nullptr) schemas.push_back(others);
  }
  if (!evaluated && members.unevaluated != nullptr) schemas.push_back(members.unevaluated);
  return schemas;
}

// The possible names: a few known ones, or strings of a form.
Result<void> SchemaWriter::write_names(const Facts& facts, Members& members) {
  if (members.rules.empty()) return {};
  MOTLEY_TRY(Facts rule, gathering_.facts_of(members.rules));
  rule.types &= string_type;
  rule.typed = true;
  if (!rule.choices.empty()) {
    leave_out(facts.objects, "propertyNames");
    rule.choices.clear();
  }
  if (rule.never || rule.types == 0) rule.literals.emplace();
  members.rule = rule;
  if (!members.patterns.empty()) leave_out(facts.objects, "propertyNames");
  if (rule.literals) {
    for (const auto& [text, literal] : *rule.literals) {
      const std::string* const name = literal->if_string();
      if (members.open && name != nullptr) members.name(*name);
    }
    members.open = false;
    return {};
  }
  writes_names_ = true;
  MOTLEY_TRY(members.written_rule, write_facts(std::move(rule)));
  writes_names_ = false;
  if (!members.written_rule) members.open = false;
  if (members.written_rule && members.written_rule->if_object()->size() == 1)
    members.written_rule.reset();
  // Names with a property of their own might be written again.
  if (members.written_rule && members.open && !members.names.empty())
    leave_out(facts.objects, "propertyNames");
  return {};
}

bool SchemaWriter::is_allowed(const std::string& name, const Facts& rule) {
  const Value text(name);
  return may_be(text, rule) && (!rule.literals || rule.literals->contains(canonical(text)));
}

// False if a required property can have no value.
Result<bool> SchemaWriter::write_members(const Facts& facts, Members& members) {
  for (const std::string& name : members.names) {
    MOTLEY_TRY_VOID(work(work_of(name)));
    const bool allowed = !members.rule || is_allowed(name, *members.rule);
    std::optional<Value> written;
    if (allowed) {
      MOTLEY_TRY(written, write(schemas_of(name, facts, members)));
    }
    if (!written && members.required.contains(name)) return false;
    if (written)
      members.written.push_back({name, *std::move(written)});
    else
      members.is_any_forbidden = true;
  }
  return true;
}

Result<void> SchemaWriter::write_others(const Facts& facts, Members& members) {
  for (const Members::Pattern& each : members.patterns) {
    MOTLEY_TRY(auto written, write({each.value}));
    if (!written) {
      // Open objects might contain it nevertheless.
      if (members.open) source_.leave_out(each.schema, "patternProperties");
    } else if (members.written_patterns.empty()) {
      members.written_patterns.push_back({each.pattern.whole(), *std::move(written)});
    } else {
      source_.leave_out(each.schema, "patternProperties");
    }
  }
  const auto count = static_cast<std::int64_t>(members.written.size());
  if (!members.covered && !to_the_letter_)
    members.open &= (members.names.empty() && !members.listed) || members.least > count;
  // A name that a pattern covers might be written as another property.
  if (!members.written_patterns.empty()) members.open = false;
  if (!members.open) return {};
  MOTLEY_TRY(members.written_others, write(members.others));
  members.open = members.written_others.has_value();
  // The compiler distinguishes other names from these by their letters, without escapes.
  const bool is_any_escaped = std::ranges::any_of(members.names, [](std::string_view name) {
    return std::ranges::any_of(
        name, [](char c) { return c == '"' || c == '\\' || (c >= 0 && c < 0x20); });
  });
  if (members.open && (members.is_any_forbidden || is_any_escaped))
    leave_out(facts.objects, "properties");
  return {};
}

std::optional<Value> SchemaWriter::assemble(const Facts& facts, Members members) {
  const auto count = static_cast<std::int64_t>(members.written.size());
  const auto required = static_cast<std::int64_t>(members.required.size());
  const bool counted = members.open || !members.written_patterns.empty();
  if (!counted) members.most = std::min(members.most, count);
  if (members.least > members.most || required > members.most) return std::nullopt;
  if (members.most > max_count && members.most != std::numeric_limits<std::int64_t>::max()) {
    leave_out(facts.objects, "maxProperties");
    members.most = std::numeric_limits<std::int64_t>::max();
  }
  // The same name twice would be counted twice.
  if (counted && members.least > std::max<std::int64_t>(required, 1))
    leave_out(facts.objects, "minProperties");
  if (members.most == 0 || (!counted && count == 0))
    return object_of({{"type", "object"}, {"additionalProperties", false}});
  const bool is_free = members.open && members.written_others->if_object()->empty();
  std::vector<Member> result = {{"type", "object"}};
  if (is_free && count == 0 && members.least == 0 && !members.written_rule &&
      members.most > max_count)
    return object_of(std::move(result));
  if (count > 0) result.push_back({"properties", object_of(std::move(members.written))});
  if (required > 0) {
    Array names;
    for (const std::string& name : members.required) names.emplace_back(name);
    result.push_back({"required", std::move(names)});
  }
  if (!members.written_patterns.empty())
    result.push_back({"patternProperties", object_of(std::move(members.written_patterns))});
  if (members.written_rule && members.open)
    result.push_back({"propertyNames", *std::move(members.written_rule)});
  if (!members.open)
    result.push_back({"additionalProperties", false});
  else
    result.push_back({"additionalProperties", is_free ? Value(true) : *members.written_others});
  if (members.least > required) result.push_back({"minProperties", members.least});
  if (members.most <= max_count && (counted || members.most < count))
    result.push_back({"maxProperties", members.most});
  return object_of(std::move(result));
}

SchemaWriter::Written SchemaWriter::write_object(const Facts& facts) {
  if (facts.objects.empty()) return std::optional(of_type("object"));
  Members members;
  read_members(facts, members);
  MOTLEY_TRY_VOID(write_names(facts, members));
  MOTLEY_TRY(const bool possible, write_members(facts, members));
  if (!possible) return std::optional<Value>();
  MOTLEY_TRY_VOID(write_others(facts, members));
  return assemble(facts, std::move(members));
}

}  // namespace motley::grammar::schema
