#include "text/tokenizer/component.h"

#include <algorithm>

#include "base/cat.h"
#include "base/utf8.h"

namespace motley::text {
namespace {

Result<void> append_components(std::vector<Component>& components, const json::Value& value,
                               std::string_view list, std::string_view where) {
  MOTLEY_TRY(Component component, Component::read(value, where));
  if (component.type() != "Sequence") {
    components.push_back(std::move(component));
    return {};
  }
  MOTLEY_TRY_VOID(component.has_only({list}));
  MOTLEY_TRY(const json::Value* members, component.value(list));
  MOTLEY_TRY(const json::Array* array, members->as_array(component.where(list)));
  for (std::size_t i = 0; i < array->size(); ++i)
    MOTLEY_TRY_VOID(append_components(components, (*array)[i], list, cat(where, " ", i)));
  return {};
}

}  // namespace

Result<Component> Component::read(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const json::Object* object, value.as_object(where));
  const json::Value* type = object->find("type");
  if (type == nullptr)
    return Error(ErrorCode::bad_file, "has no type", std::string(where),
                 "save the tokenizer again with a current version of its library");
  MOTLEY_TRY(const std::string* name, type->as_string(cat(where, ", type")));
  return Component(object, *name, cat(where, " ", printable(*name)));
}

Result<Component> Component::untyped(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const json::Object* object, value.as_object(where));
  return Component(object, "", std::string(where));
}

Result<void> Component::has_only(std::initializer_list<std::string_view> fields) const {
  for (const json::Member& member : object_->members()) {
    if (member.key == "type" || std::ranges::find(fields, member.key) != fields.end()) continue;
    return Error(ErrorCode::unsupported, cat("has the unknown field ", quote(member.key)), where_,
                 "remove it if it means nothing");
  }
  return {};
}

std::string Component::where(std::string_view field) const { return cat(where_, ", ", field); }

const json::Value* Component::find(std::string_view field) const {
  const json::Value* found = object_->find(field);
  return found == nullptr || found->is_null() ? nullptr : found;
}

Result<const json::Value*> Component::value(std::string_view field) const {
  const json::Value* found = find(field);
  if (found == nullptr)
    return Error(ErrorCode::bad_file, cat("lacks the field ", quote(field)), where_,
                 "save the tokenizer again with a current version of its library");
  return found;
}

Result<bool> Component::boolean(std::string_view field) const {
  MOTLEY_TRY(const json::Value* found, value(field));
  return found->as_boolean(where(field));
}

Result<bool> Component::boolean(std::string_view field, bool if_missing) const {
  const json::Value* found = find(field);
  return found == nullptr ? Result<bool>(if_missing) : found->as_boolean(where(field));
}

Result<std::string> Component::string(std::string_view field) const {
  MOTLEY_TRY(const json::Value* found, value(field));
  MOTLEY_TRY(const std::string* text, found->as_string(where(field)));
  return *text;
}

Result<char32_t> Component::character(std::string_view field) const {
  MOTLEY_TRY(const std::string text, string(field));
  const utf8::Decoded first = text.empty() ? utf8::Decoded{} : utf8::decode(text);
  if (text.empty() || first.length != text.size())
    return refused_value(field, text, "write one character");
  return first.code_point;
}

Result<std::int64_t> Component::count(std::string_view field) const {
  MOTLEY_TRY(const json::Value* found, value(field));
  MOTLEY_TRY(const std::int64_t number, found->as_integer(where(field)));
  if (number < 0) return refused_value(field, cat(number), "write a count");
  return number;
}

Error Component::refused_type(std::string_view known) const {
  return {ErrorCode::unsupported, "is of a type that motley does not read", where_,
          cat("use a tokenizer made of ", known)};
}

Error Component::refused_value(std::string_view field, std::string_view value,
                               std::string_view fix) const {
  return {ErrorCode::unsupported, cat("can't read the value ", quote(value)), where(field),
          std::string(fix)};
}

Result<std::vector<Component>> read_components(const json::Value* section, std::string_view list,
                                               std::string_view where) {
  std::vector<Component> components;
  if (section != nullptr && !section->is_null())
    MOTLEY_TRY_VOID(append_components(components, *section, list, where));
  return components;
}

}  // namespace motley::text
