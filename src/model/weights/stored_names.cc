#include "model/weights/stored_names.h"

#include <algorithm>

#include "base/cat.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::model {

namespace {

constexpr std::string_view plain_body = "model.";
constexpr std::string_view inner_body = "model.language_model.";
constexpr std::string_view outer_body = "language_model.model.";
constexpr std::string_view outer_head = "language_model.";
constexpr std::string_view head = "lm_head.";

}  // namespace

StoredNames::StoredNames(const tensor::Checkpoint& checkpoint) {
  const auto items = checkpoint.items();
  for (const std::string_view body : {inner_body, outer_body}) {
    const auto first = std::ranges::lower_bound(items, body, {}, &tensor::Checkpoint::Item::name);
    if (first != items.end() && first->name().starts_with(body)) body_ = body;
  }
  if (body_ == outer_body) head_ = outer_head;
}

std::string StoredNames::stored(std::string_view name) const {
  if (name.starts_with(plain_body)) return cat(body_, name.substr(plain_body.size()));
  return name.starts_with(head) || name == "lm_head" ? cat(head_, name) : std::string(name);
}

std::string StoredNames::plain(std::string_view name) {
  for (const std::string_view body : {inner_body, outer_body})
    if (name.starts_with(body)) return cat(plain_body, name.substr(body.size()));
  if (name.starts_with(outer_head) && name.substr(outer_head.size()).starts_with(head))
    name.remove_prefix(outer_head.size());
  return std::string(name);
}

}  // namespace motley::model
