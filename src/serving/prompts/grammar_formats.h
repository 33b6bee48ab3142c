#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "engine/requests/sampling_params.h"

// Builds parts of structural tags.
namespace motley::serving::formats {

inline json::Object constant(std::string_view text) {
  return {{"type", "const_string"}, {"value", std::string(text)}};
}
inline json::Object token(std::int32_t id) { return {{"type", "token"}, {"token", id}}; }
inline json::Object regex(std::string_view pattern) {
  return {{"type", "regex"}, {"pattern", std::string(pattern)}};
}
inline json::Object sequence(json::Array parts) {
  return {{"type", "sequence"}, {"elements", std::move(parts)}};
}
inline json::Object alternatives(json::Array formats) {
  return {{"type", "or"}, {"elements", std::move(formats)}};
}
// Repeated any number of times, including none.
inline json::Object repeated(json::Object format) {
  return {{"type", "star"}, {"content", std::move(format)}};
}
inline json::Object schema(json::Value value, std::string_view style = "json") {
  return {
      {"type", "json_schema"}, {"json_schema", std::move(value)}, {"style", std::string(style)}};
}

inline grammar::Spec structural_tag(json::Object format) {
  return {
      .kind = grammar::Spec::Kind::structural_tag,
      .text = json::write(json::Object{{"type", "structural_tag"}, {"format", std::move(format)}})};
}

}  // namespace motley::serving::formats
