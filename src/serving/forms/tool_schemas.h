#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"

namespace motley::serving {

// An integer has no fraction or exponent; `number` is any other number.
enum class JsonType : std::uint8_t { null, boolean, integer, number, string, array, object };

JsonType type_of(const json::Value& value);

// A set of types.
class JsonTypes {
 public:
  constexpr JsonTypes() = default;
  constexpr JsonTypes(JsonType type)
      : bits_(static_cast<std::uint8_t>(1U << static_cast<unsigned>(type))) {}

  static constexpr JsonTypes none() { return {}; }
  static constexpr JsonTypes all() { return JsonTypes(std::uint8_t{0x7F}); }

  constexpr bool allows(JsonType type) const { return (bits_ & JsonTypes(type).bits_) != 0; }

  constexpr bool operator==(const JsonTypes&) const = default;
  friend constexpr JsonTypes operator|(JsonTypes a, JsonTypes b) {
    return JsonTypes(static_cast<std::uint8_t>(a.bits_ | b.bits_));
  }
  friend constexpr JsonTypes operator&(JsonTypes a, JsonTypes b) {
    return JsonTypes(static_cast<std::uint8_t>(a.bits_ & b.bits_));
  }

 private:
  constexpr explicit JsonTypes(std::uint8_t bits) : bits_(bits) {}

  std::uint8_t bits_ = 0;
};

// The types of arguments by the schemas of a request's tools. In forms with unquoted values only
// these tell whether 5 is a number or a string.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  // From the `tools` of a chat request. Takes time linear in their size; a schema that is nested
  // too deeply, or is cyclic, allows everything.
  explicit ToolSchemas(const json::Value& tools);

  // No function is known.
  bool empty() const { return functions_.empty(); }
  bool has(std::string_view function) const { return functions_.contains(function); }
  // Nothing if the function or parameter is not declared. A schema that allows numbers allows
  // integers, too.
  std::optional<JsonTypes> types_of(std::string_view function, std::string_view parameter) const;
  // Whether a value is a string whatever it looks like, because its schema allows strings.
  bool is_string(std::string_view function, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, JsonTypes, std::less<>>;

  std::map<std::string, Parameters, std::less<>> functions_;
};

}  // namespace motley::serving
