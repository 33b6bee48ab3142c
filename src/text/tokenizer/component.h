#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

// Components of a tokenizer.json: objects with a "type" and further fields.
namespace motley::text {

class Component {
 public:
  // Keeps a pointer to the value. Refuses anything but an object with a type.
  static Result<Component> read(const json::Value& value, std::string_view where);

  // The same fields of an object without a type.
  static Result<Component> untyped(const json::Value& value, std::string_view where);

  const std::string& type() const { return type_; }
  // Names the component in messages.
  const std::string& where() const { return where_; }

  // Refuses fields other than these and "type".
  Result<void> has_only(std::initializer_list<std::string_view> fields) const;

  // A field of that type; if it is missing, the default or else an error.
  Result<bool> boolean(std::string_view field) const;
  Result<bool> boolean(std::string_view field, bool if_missing) const;
  Result<std::string> string(std::string_view field) const;
  Result<char32_t> character(std::string_view field) const;
  Result<std::int64_t> count(std::string_view field) const;
  Result<const json::Value*> value(std::string_view field) const;
  // Null if it is missing or null.
  const json::Value* find(std::string_view field) const;

  // The name of a field in messages.
  std::string where(std::string_view field) const;

  // The refusal of a type, given the `known` ones, or of a field's value.
  Error refused_type(std::string_view known) const;
  Error refused_value(std::string_view field, std::string_view value, std::string_view fix) const;

 private:
  Component(const json::Object* object, std::string type, std::string where)
      : object_(object), type_(std::move(type)), where_(std::move(where)) {}

  const json::Object* object_;
  std::string type_;
  std::string where_;
};

// The components of a section in order: none if it is null; a Sequence, perhaps nested, is replaced
// by its members in the field `list`.
Result<std::vector<Component>> read_components(const json::Value* section, std::string_view list,
                                               std::string_view where);

}  // namespace motley::text
