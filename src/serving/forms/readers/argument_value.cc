#include "serving/forms/readers/argument_value.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/json/json.h"
#include "serving/forms/readers/python_literal.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

bool begins_number(std::string_view text) {
  constexpr std::string_view first = "+-.0123456789";
  return !text.empty() && first.find(text.front()) != std::string_view::npos;
}

// In Python's words and literals, if its type is allowed.
std::optional<std::string> python_value(std::string_view text, JsonTypes types) {
  const std::string lower = ascii::lower(text);
  if (types.allows(JsonType::boolean)) {
    for (const std::string_view word : {"true", "false"})
      if (lower == word) return std::string(word);
  }
  if (types.allows(JsonType::null) && (lower == "null" || lower == "none")) return "null";
  const bool is_number = begins_number(text) && text.find('_') == std::string_view::npos &&
                         (types.allows(JsonType::integer) || types.allows(JsonType::number));
  const bool may_hold_others = types.allows(JsonType::array) || types.allows(JsonType::object);
  if (!is_number && !may_hold_others) return std::nullopt;
  auto written = python_literal_to_json(text);
  if (!written) return std::nullopt;
  const bool fits = is_number || (written->starts_with('[') && types.allows(JsonType::array)) ||
                    (written->starts_with('{') && types.allows(JsonType::object));
  return fits ? std::move(written) : std::nullopt;
}

}  // namespace

std::string argument_json(std::string_view text, const std::optional<JsonTypes>& types) {
  if (types && types->allows(JsonType::string)) return json::string_literal(text);
  const std::string_view inside = trimmed(text);
  const auto parsed = json::parse(inside, "argument");
  if (parsed.ok() && (!types || types->allows(type_of(*parsed)))) return std::string(inside);
  if (types) {
    if (auto written = python_value(inside, *types)) return *std::move(written);
  }
  return parsed.ok() ? std::string(inside) : json::string_literal(text);
}

}  // namespace motley::serving
