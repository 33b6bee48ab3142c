#include "text/chat/chat_request.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/cat.h"

namespace motley::text {
namespace {

constexpr std::array<std::string_view, 5> fields = {
    "messages", "tools", "documents", "add_generation_prompt", "chat_template_kwargs"};

// A list of objects, if it is present.
Result<std::optional<json::Value>> read_objects(const json::Object& object, std::string_view field,
                                                std::string_view where) {
  const json::Value* const value = object.find_set(field);
  if (value == nullptr) return std::optional<json::Value>();
  const std::string place = cat(where, ", ", field);
  MOTLEY_TRY(const json::Array* const list, value->as_array(place));
  for (std::size_t i = 0; i < list->size(); ++i)
    MOTLEY_TRY_VOID((*list)[i].as_object(cat(place, "[", i, "]")));
  return std::optional(*value);
}

}  // namespace

Result<ChatInputs> read_chat_request(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const json::Object* const object, value.as_object(where));
  for (const json::Member& member : object->members()) {
    if (std::ranges::find(fields, std::string_view(member.key)) == fields.end())
      return Error(ErrorCode::invalid_argument, cat("unknown field ", quote(member.key)),
                   std::string(where), cat("a conversation may have ", join(fields)));
  }
  ChatInputs inputs;
  MOTLEY_TRY(std::optional<json::Value> messages, read_objects(*object, "messages", where));
  if (!messages)
    return Error(ErrorCode::invalid_argument, "no messages", std::string(where),
                 "give a list of objects with role and content");
  inputs.messages = *std::move(messages);
  MOTLEY_TRY(inputs.tools, read_objects(*object, "tools", where));
  MOTLEY_TRY(inputs.documents, read_objects(*object, "documents", where));
  if (const json::Value* const prompt = object->find_set("add_generation_prompt")) {
    MOTLEY_TRY(inputs.add_generation_prompt,
               prompt->as_boolean(cat(where, ", add_generation_prompt")));
  }
  if (const json::Value* const kwargs = object->find_set("chat_template_kwargs")) {
    MOTLEY_TRY(const json::Object* const members,
               kwargs->as_object(cat(where, ", chat_template_kwargs")));
    inputs.kwargs = *members;
  }
  return inputs;
}

}  // namespace motley::text
