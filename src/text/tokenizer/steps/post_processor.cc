#include "text/tokenizer/steps/post_processor.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/vocabulary.h"

namespace motley::text {
namespace {

Result<std::vector<std::int32_t>> parse_ids(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const Component token, Component::untyped(value, where));
  MOTLEY_TRY_VOID(token.has_only({"id", "ids", "tokens"}));
  MOTLEY_TRY(const json::Value* list, token.value("ids"));
  MOTLEY_TRY(const json::Array* array, list->as_array(token.where("ids")));
  std::vector<std::int32_t> ids;
  for (const json::Value& entry : *array) {
    MOTLEY_TRY(const std::int64_t id, entry.as_integer(token.where("ids")));
    if (id < 0 || id >= max_token_ids)
      return token.refused_value("ids", cat(id), cat("ids are 0 to ", max_token_ids - 1));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

// The name in {"KIND": {"id": name, "type_id": ...}}.
Result<std::string> name_of_part(const json::Value& body, std::string_view where) {
  MOTLEY_TRY(const Component part, Component::untyped(body, where));
  MOTLEY_TRY_VOID(part.has_only({"id", "type_id"}));
  return part.string("id");
}

}  // namespace

Result<PostProcessor> PostProcessor::parse(const json::Value* section, std::string_view where) {
  MOTLEY_TRY(const std::vector<Component> components,
             read_components(section, "processors", where));
  PostProcessor processor;
  bool has_template = false;
  for (const Component& component : components) {
    if (component.type() == "ByteLevel") {
      // It only trims offsets, which are not kept here.
      MOTLEY_TRY_VOID(component.has_only({"add_prefix_space", "trim_offsets", "use_regex"}));
    } else if (component.type() == "TemplateProcessing") {
      if (has_template)
        return Error(ErrorCode::unsupported, "is a second template", component.where(),
                     "write one template for all that is added");
      has_template = true;
      MOTLEY_TRY(processor.parts_, parse_template(component));
    } else {
      return component.refused_type("TemplateProcessing, ByteLevel and Sequence");
    }
  }
  return processor;
}

Result<std::vector<PostProcessor::Part>> PostProcessor::parse_template(const Component& component) {
  MOTLEY_TRY_VOID(component.has_only({"single", "pair", "special_tokens"}));
  MOTLEY_TRY(const json::Value* single, component.value("single"));
  MOTLEY_TRY(const json::Array* array, single->as_array(component.where("single")));
  MOTLEY_TRY(const json::Value* special, component.value("special_tokens"));
  MOTLEY_TRY(const json::Object* tokens, special->as_object(component.where("special_tokens")));
  std::vector<Part> parts;
  for (const json::Value& entry : *array) {
    const std::string where = component.where("single");
    MOTLEY_TRY(const json::Object* object, entry.as_object(where));
    const json::Value* text = object->find("Sequence");
    const json::Value* token = object->find("SpecialToken");
    if (object->size() != 1 || (text == nullptr && token == nullptr))
      return component.refused_value("single", json::write(entry),
                                     "write one of Sequence and SpecialToken");
    MOTLEY_TRY(const std::string name, name_of_part(text != nullptr ? *text : *token, where));
    if (text != nullptr) {
      if (name != "A") return component.refused_value("single", name, "name the sequence A");
      parts.push_back({.is_text = true});
      continue;
    }
    const json::Value* ids = tokens->find(name);
    if (ids == nullptr)
      return component.refused_value("single", name, "list the token under special_tokens");
    MOTLEY_TRY(std::vector<std::int32_t> read,
               parse_ids(*ids, cat(component.where("special_tokens"), ", ", printable(name))));
    parts.push_back({.is_text = false, .ids = std::move(read)});
  }
  return parts;
}

std::vector<std::int32_t> PostProcessor::apply(std::vector<std::int32_t> ids,
                                               bool add_special_tokens) const {
  if (parts_.size() == 1 && parts_.front().is_text) return ids;
  std::vector<std::int32_t> result;
  for (const Part& part : parts_) {
    if (!part.is_text && !add_special_tokens) continue;
    const std::vector<std::int32_t>& added = part.is_text ? ids : part.ids;
    result.insert(result.end(), added.begin(), added.end());
  }
  return result;
}

std::int32_t PostProcessor::largest_id() const {
  std::int32_t largest = -1;
  for (const Part& part : parts_)
    for (const std::int32_t id : part.ids) largest = std::max(largest, id);
  return largest;
}

}  // namespace motley::text
