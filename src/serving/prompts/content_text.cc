#include "serving/prompts/content_text.h"

namespace motley::serving {

std::optional<std::string> content_text(const json::Value* content) {
  std::string all;
  if (content == nullptr) return all;
  if (const std::string* const text = content->if_string()) return *text;
  if (content->if_array() == nullptr) return std::nullopt;
  for (const json::Value& part : *content->if_array()) {
    const json::Object* const object = part.if_object();
    const json::Value* text = object == nullptr ? nullptr : object->find_set("text");
    if (text == nullptr && object != nullptr) text = object->find_set("refusal");
    if (text == nullptr || text->if_string() == nullptr) return std::nullopt;
    all += *text->if_string();
  }
  return all;
}

}  // namespace motley::serving
