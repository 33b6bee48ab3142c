#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/json/json.h"

namespace motley::server {

// The value at a path such as "choices.0.message.content".
inline const json::Value& at(const json::Value& value, std::string_view path) {
  static const json::Value absent("(absent)");
  const json::Value* found = &value;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string key(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (const json::Array* const list = found->if_array()) {
      const std::size_t index = std::stoul(key);
      if (index >= list->size()) return absent;
      found = &(*list)[index];
    } else {
      found = found->if_object() == nullptr ? nullptr : found->if_object()->find(key);
      if (found == nullptr) return absent;
    }
  }
  return *found;
}

inline std::string text_at(const json::Value& value, std::string_view path) {
  const json::Value& found = at(value, path);
  return found.if_string() != nullptr ? *found.if_string() : json::write(found);
}

}  // namespace motley::server
