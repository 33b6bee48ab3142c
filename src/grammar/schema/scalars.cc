#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/cat.h"
#include "grammar/schema/formats.h"
#include "grammar/schema/pattern.h"
#include "grammar/schema/writer.h"

// Literals, numbers and strings.
namespace motley::grammar::schema {
namespace {

using json::Array;

constexpr long double int64_range = 9e18L;

// An integer value if the number is one.
Value number_value(long double number) {
  if (std::floor(number) == number && std::abs(number) <= int64_range)
    return static_cast<std::int64_t>(number);
  return static_cast<double>(number);
}

bool is_within(long double number, const Facts& facts) {
  if (facts.least && (number < facts.least->at || (facts.least->open && number == facts.least->at)))
    return false;
  return !facts.most ||
         (number < facts.most->at || (!facts.most->open && number == facts.most->at));
}

std::int64_t characters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; });
}

// Formats that any text satisfies.
bool is_for_people(std::string_view format) {
  return format == "password" || format == "binary" || format == "path";
}

// An integer that divides all integers in question; 0 if there is none.
std::int64_t whole_divisor(long double multiple) {
  if (std::floor(multiple) == multiple && multiple <= 1e15L)
    return static_cast<std::int64_t>(multiple);
  // Every integer is a multiple of 0.5.
  const long double inverse = std::round(1 / multiple);
  return std::abs(inverse * multiple - 1) < 1e-12L ? 1 : 0;
}

}  // namespace

Value exactly(const Value& literal) {
  if (const Array* const list = literal.if_array()) {
    Array items;
    for (const Value& each : *list) items.push_back(exactly(each));
    const auto count = static_cast<std::int64_t>(items.size());
    if (count == 0) return object_of({{"type", "array"}, {"items", false}});
    return object_of({{"type", "array"},
                      {"prefixItems", std::move(items)},
                      {"items", false},
                      {"minItems", count}});
  }
  const Object* const object = literal.if_object();
  if (object == nullptr) return object_of({{"enum", Array{literal}}});
  std::vector<json::Member> properties;
  Array required;
  for (const json::Member& member : object->members()) {
    properties.push_back({member.key, exactly(member.value)});
    required.emplace_back(member.key);
  }
  return object_of({{"type", "object"},
                    {"properties", object_of(std::move(properties))},
                    {"required", std::move(required)},
                    {"additionalProperties", false}});
}

bool SchemaWriter::may_be(const Value& literal, const Facts& facts) {
  if ((type_of(literal) & facts.types) == 0 || facts.excluded.contains(canonical(literal)))
    return false;
  if (literal.kind() == json::Kind::integer || literal.kind() == json::Kind::number) {
    const long double number = literal.if_integer() != nullptr
                                   ? static_cast<long double>(*literal.if_integer())
                                   : literal.as_number("").value();
    if (!is_within(number, facts)) return false;
    return std::ranges::all_of(facts.multiples, [&](const Object* each) {
      const long double of = each->find("multipleOf")->as_number("").value();
      const long double times = number / of;
      return std::abs(times - std::round(times)) < 1e-9L;
    });
  }
  if (const std::string* const text = literal.if_string()) {
    const std::int64_t length = characters(*text);
    if (length < facts.min_length || length > facts.max_length.value_or(length)) return false;
    for (const Object* const each : facts.patterns) {
      work_ += work_of(*each->find("pattern")->if_string());
      const auto pattern = SchemaPattern::read(*each->find("pattern")->if_string(), true);
      const auto found = pattern ? pattern->found_in(*text) : std::nullopt;
      if (!found) source_.leave_out(each, "pattern");
      if (found && !*found) return false;
    }
  }
  const auto count_is_within = [&](const std::vector<const Object*>& schemas, std::size_t size,
                                   std::string_view least, std::string_view most) {
    const auto count = static_cast<std::int64_t>(size);
    return std::ranges::all_of(schemas, [&](const Object* each) {
      const Value* const low = each->find(least);
      const Value* const high = each->find(most);
      return (low == nullptr || whole_number(*low).value_or(0) <= count) &&
             (high == nullptr || whole_number(*high).value_or(count) >= count);
    });
  };
  if (const Array* const list = literal.if_array()) {
    for (const std::string_view keyword :
         {"prefixItems", "items", "additionalItems", "contains", "uniqueItems", "unevaluatedItems"})
      leave_out(facts.arrays, keyword);
    return count_is_within(facts.arrays, list->size(), "minItems", "maxItems");
  }
  if (const Object* const object = literal.if_object()) {
    for (const std::string_view keyword :
         {"properties", "additionalProperties", "patternProperties", "propertyNames",
          "unevaluatedProperties"})
      leave_out(facts.objects, keyword);
    return count_is_within(facts.objects, object->size(), "minProperties", "maxProperties") &&
           std::ranges::all_of(required_in(facts),
                               [&](const std::string& name) { return object->contains(name); });
  }
  return true;
}

SchemaWriter::Written SchemaWriter::write_literals(const Facts& facts) {
  std::vector<Value> ways;
  Array plain;
  for (const auto& [text, literal] : *facts.literals) {
    MOTLEY_TRY_VOID(work(work_of(text)));
    if (!may_be(*literal, facts)) continue;
    if (literal->if_array() != nullptr || literal->if_object() != nullptr)
      ways.push_back(exactly(*literal));
    else
      plain.push_back(*literal);
  }
  if (!plain.empty()) ways.emplace_back(object_of({{"enum", std::move(plain)}}));
  return any_of(std::move(ways));
}

SchemaWriter::Multiples SchemaWriter::multiples_of(const Facts& facts) {
  constexpr std::int64_t max_divisor = 1024;  // the compiler needs a state for each remainder
  Multiples multiples{.is_integer = (facts.types & fraction_type) == 0};
  auto& [is_integer, divisor] = multiples;
  for (const Object* const each : facts.multiples) {
    const long double multiple = each->find("multipleOf")->as_number("").value();
    const std::int64_t whole = whole_divisor(multiple);
    const bool is_whole = whole > 0 && std::floor(multiple) == multiple;
    const std::int64_t both = whole > 0 && whole <= max_divisor ? std::lcm(divisor, whole) : 0;
    if (both == 0 || both > max_divisor || (!is_integer && !is_whole)) {
      source_.leave_out(each, "multipleOf");
      continue;
    }
    is_integer = true;
    divisor = both;
  }
  return multiples;
}

// The compiler does not count beyond 64 bits.
SchemaWriter::Range SchemaWriter::range_of(const Facts& facts, bool is_integer) {
  Range range{.least = facts.least, .most = facts.most};
  auto& [least, most] = range;
  if (least && least->at > int64_range) {
    leave_out(facts.bounds, "minimum");
    leave_out(facts.bounds, "exclusiveMinimum");
    least.reset();
  }
  if (most && most->at < -int64_range) {
    leave_out(facts.bounds, "maximum");
    leave_out(facts.bounds, "exclusiveMaximum");
    most.reset();
  }
  if (least && least->at < -int64_range) least = Bound{-int64_range, false};
  if (most && most->at > int64_range) most = Bound{int64_range, false};
  if (is_integer) {
    if (least) least = Bound{least->open ? std::floor(least->at) + 1 : std::ceil(least->at), false};
    if (most) most = Bound{most->open ? std::ceil(most->at) - 1 : std::floor(most->at), false};
  }
  return range;
}

std::optional<Value> SchemaWriter::write_number(const Facts& facts) {
  const auto [is_integer, divisor] = multiples_of(facts);
  const auto [least, most] = range_of(facts, is_integer);
  if (least && most &&
      (least->at > most->at || (least->at == most->at && (least->open || most->open))))
    return std::nullopt;

  std::vector<json::Member> members = {{"type", is_integer ? "integer" : "number"}};
  // The compiler supports six places after the point.
  constexpr long double finest = 1e-5L;
  const bool too_fine = !is_integer && least && most && most->at - least->at < finest &&
                        (least->at != most->at || number_value(least->at).if_integer() == nullptr);
  if (too_fine) {
    for (const std::string_view keyword :
         {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
      leave_out(facts.bounds, keyword);
  } else {
    if (least)
      members.push_back({least->open ? "exclusiveMinimum" : "minimum", number_value(least->at)});
    if (most)
      members.push_back({most->open ? "exclusiveMaximum" : "maximum", number_value(most->at)});
  }
  if (divisor > 1) {
    constexpr long double max_width = 5000;  // multiples are enumerated
    const bool is_free = !least && !most;
    const bool is_bounded = least && most;
    const long double low = least.value_or(Bound()).at;
    const long double high = most.value_or(Bound()).at;
    if (is_bounded &&
        std::ceil(low / static_cast<long double>(divisor)) * static_cast<long double>(divisor) >
            high)
      return std::nullopt;
    if (is_free || (is_bounded && high - low <= max_width))
      members.push_back({"multipleOf", divisor});
    else
      leave_out(facts.multiples, "multipleOf");
  }
  return object_of(std::move(members));
}

// Written once for all uses, because some formats take the compiler as long as a whole schema.
Value SchemaWriter::write_format(const Format& format) {
  Value body = object_of({{"type", "string"}, {"pattern", format.pattern}});
  if (writes_names_) return body;
  const auto [place, is_new] = known_formats_.try_emplace(&format, definitions_.size());
  if (is_new) definitions_.push_back({.schemas = {}, .done = true, .body = std::move(body)});
  return object_of({{"$ref", cat("#/$defs/d", place->second)}});
}

std::optional<Value> SchemaWriter::write_string(const Facts& facts) {
  // Longer than any answer.
  constexpr std::int64_t max_count = 1'000'000'000;
  const std::optional<std::int64_t> most =
      facts.max_length && *facts.max_length < max_count ? facts.max_length : std::nullopt;
  if (facts.min_length > most.value_or(facts.min_length)) return std::nullopt;
  const bool has_length = facts.min_length > 0 || most;
  const auto leave_out_lengths = [&] {
    leave_out(facts.lengths, "minLength");
    leave_out(facts.lengths, "maxLength");
  };

  std::optional<SchemaPattern> pattern;
  std::string pattern_text;
  for (const Object* const each : facts.patterns) {
    const std::string& text = *each->find("pattern")->if_string();
    work_ += work_of(text);
    if (pattern && text == pattern_text) continue;
    auto read = SchemaPattern::read(text, to_the_letter_);
    if (!read || pattern) {
      source_.leave_out(each, "pattern");
    } else {
      pattern = std::move(read);
      pattern_text = text;
    }
  }
  const Format* format = nullptr;
  for (const Object* const each : facts.formats) {
    const std::string& name = *each->find("format")->if_string();
    const Format* const found = find_format(name);
    // Beside a pattern, the format only documents the pattern.
    if ((found != nullptr && pattern) || is_for_people(name)) continue;
    if (found == nullptr || (format != nullptr && format != found))
      source_.leave_out(each, "format");
    else
      format = found;
  }

  std::vector<json::Member> members = {{"type", "string"}};
  if (pattern) {
    const auto counted = has_length ? pattern->with_length(facts.min_length, most) : std::nullopt;
    if (has_length && !counted) leave_out_lengths();
    members.push_back({"pattern", counted ? *counted : pattern->whole()});
  } else if (format != nullptr) {
    const bool is_long_enough = facts.min_length <= format->shortest;
    const bool is_short_enough = !most || (format->longest && *format->longest <= *most);
    if (!is_long_enough || !is_short_enough) leave_out_lengths();
    return write_format(*format);
  } else {
    if (facts.min_length > 0) members.push_back({"minLength", facts.min_length});
    if (most) members.push_back({"maxLength", *most});
  }
  return object_of(std::move(members));
}

}  // namespace motley::grammar::schema
