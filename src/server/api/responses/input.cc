#include "server/api/responses/input.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"

namespace motley::server {
namespace {

constexpr std::string_view list_place = "messages[";

// The string at a required key.
Result<const std::string*> string_at(const json::Object& object, std::string_view key,
                                     const std::string& place) {
  const std::string where = cat(place, ".", key);
  const json::Value* const value = object.find_set(key);
  if (value == nullptr) return wrong(cat("no ", key), where, "give a string");
  return value->as_string(where);
}

// The text of a part of an item's content, summary or output.
Result<const std::string*> part_text(const json::Value& part, const std::string& place) {
  constexpr std::array<std::string_view, 5> types = {"input_text", "output_text", "text",
                                                     "reasoning_text", "summary_text"};
  MOTLEY_TRY(const json::Object* const object, part.as_object(place));
  MOTLEY_TRY(const std::string* const type, string_at(*object, "type", place));
  if (*type == "refusal") return string_at(*object, "refusal", place);
  if (std::ranges::find(types, *type) == types.end())
    return wrong(cat("a content part of type ", quote(*type)), cat(place, ".type"),
                 "only text is taken: input_text, output_text or refusal");
  return string_at(*object, "text", place);
}

// A string, or the texts of a list of parts, joined by `between`.
Result<std::string> joined_text(const json::Value& value, const std::string& place,
                                std::string_view between = "") {
  if (const std::string* const text = value.if_string()) return *text;
  const json::Array* const parts = value.if_array();
  if (parts == nullptr)
    return wrong("neither text nor a list of parts", place, "give a string or a list");
  std::string joined;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    MOTLEY_TRY(const std::string* const text, part_text((*parts)[i], cat(place, "[", i, "]")));
    if (i > 0) joined += between;
    joined += *text;
  }
  return joined;
}

json::Object message_of(std::string_view role, json::Value content) {
  return json::Object{{"role", role}, {"content", std::move(content)}};
}

class Reader {
 public:
  Result<void> read(const json::Value& value, std::size_t item) {
    const std::string place = cat("input[", item, "]");
    MOTLEY_TRY(const json::Object* const object, value.as_object(place));
    std::string_view type = object->contains("role") ? "message" : "item_reference";
    if (object->find_set("type") != nullptr) {
      MOTLEY_TRY(const std::string* const given, string_at(*object, "type", place));
      type = *given;
    }
    item_ = item;
    if (type == "message") return read_message(*object, place);
    if (type == "function_call") return read_call(*object, place);
    if (type == "function_call_output") return read_output(*object, place);
    if (type == "reasoning") return read_reasoning(*object, place);
    if (type == "item_reference")
      return wrong("an item that refers to another", cat(place, ".type"),
                   "the server keeps none: send the item itself");
    return wrong(cat("an item of type ", quote(type)), cat(place, ".type"),
                 "use message, function_call, function_call_output or reasoning");
  }

  void add(json::Object message, std::optional<std::size_t> item) {
    conversation.messages.emplace_back(std::move(message));
    conversation.items.push_back(item);
  }

  // Ends the assistant's turn, if one has begun. Reasoning without a message or call is dropped.
  void end_turn() {
    Turn turn = std::exchange(turn_, {});
    if (!turn.has_text && turn.calls.empty()) return;
    json::Object message =
        message_of("assistant", turn.has_text ? json::Value(std::move(turn.text)) : json::Value());
    if (!turn.reasoning.empty()) message.add("reasoning_content", std::move(turn.reasoning));
    if (!turn.calls.empty()) message.add("tool_calls", std::move(turn.calls));
    add(std::move(message), turn.item);
  }

  ResponsesConversation conversation;

 private:
  struct Turn {
    std::size_t item = 0;
    std::string reasoning;
    std::string text;
    bool has_text = false;
    json::Array calls;
  };

  Result<void> read_message(const json::Object& object, const std::string& place) {
    constexpr std::array<std::string_view, 4> roles = {"user", "assistant", "system", "developer"};
    MOTLEY_TRY(const std::string* const role, string_at(object, "role", place));
    if (std::ranges::find(roles, *role) == roles.end())
      return wrong(cat("unknown role ", quote(*role)), cat(place, ".role"),
                   cat("use ", join(roles)));
    const std::string content_place = cat(place, ".content");
    const json::Value* const content = object.find_set("content");
    if (content == nullptr)
      return wrong("a message without content", content_place, "give a string or a list of parts");
    if (*role == "assistant") {
      MOTLEY_TRY(std::string text, joined_text(*content, content_place));
      // Messages are not merged.
      if (turn_.has_text) end_turn();
      if (turn_.calls.empty()) turn_.item = item_;
      turn_.text = std::move(text);
      turn_.has_text = true;
      return {};
    }
    end_turn();
    if (content->if_array() == nullptr) {
      MOTLEY_TRY(std::string text, joined_text(*content, content_place));
      add(message_of(*role, std::move(text)), item_);
      return {};
    }
    // Some templates support lists of parts from users.
    json::Array parts;
    for (const json::Value& part : *content->if_array()) {
      MOTLEY_TRY(const std::string* const text,
                 part_text(part, cat(content_place, "[", parts.size(), "]")));
      parts.emplace_back(json::Object{{"type", "text"}, {"text", *text}});
    }
    add(message_of(*role, std::move(parts)), item_);
    return {};
  }

  Result<void> read_call(const json::Object& object, const std::string& place) {
    MOTLEY_TRY(const std::string* const id, string_at(object, "call_id", place));
    MOTLEY_TRY(const std::string* const name, string_at(object, "name", place));
    MOTLEY_TRY(const std::string* const arguments, string_at(object, "arguments", place));
    json::Object function{{"name", *name}, {"arguments", *arguments}};
    json::Object call{{"id", *id}, {"type", "function"}, {"function", std::move(function)}};
    if (turn_.calls.empty() && !turn_.has_text) turn_.item = item_;
    turn_.calls.emplace_back(std::move(call));
    return {};
  }

  Result<void> read_output(const json::Object& object, const std::string& place) {
    end_turn();
    MOTLEY_TRY(const std::string* const id, string_at(object, "call_id", place));
    const json::Value* const output = object.find_set("output");
    const std::string output_place = cat(place, ".output");
    if (output == nullptr)
      return wrong("a call's output without output", output_place,
                   "give a string or a list of parts");
    MOTLEY_TRY(std::string text, joined_text(*output, output_place));
    json::Object message = message_of("tool", std::move(text));
    message.add("tool_call_id", *id);
    add(std::move(message), item_);
    return {};
  }

  // The reasoning itself if it is present, else its summary.
  Result<void> read_reasoning(const json::Object& object, const std::string& place) {
    std::string text;
    for (const std::string_view key : {"content", "summary"}) {
      const json::Value* const value = object.find_set(key);
      if (value == nullptr || !text.empty()) continue;
      MOTLEY_TRY(text, joined_text(*value, cat(place, ".", key), "\n"));
    }
    if (turn_.has_text || !turn_.calls.empty()) end_turn();
    if (!turn_.reasoning.empty() && !text.empty()) turn_.reasoning += '\n';
    turn_.reasoning += text;
    return {};
  }

  std::size_t item_ = 0;
  Turn turn_;
};

}  // namespace

Result<ResponsesConversation> read_responses_input(Fields& fields) {
  Reader reader;
  MOTLEY_TRY(auto instructions, fields.string("instructions"));
  if (instructions) {
    reader.conversation.instructed = true;
    reader.add(message_of("system", *std::move(instructions)), std::nullopt);
  }
  const json::Value* const input = fields.take("input");
  if (input == nullptr) return wrong("no input", "input", "give a text or a list of items");
  if (const std::string* const text = input->if_string()) {
    reader.add(message_of("user", *text), std::nullopt);
    return std::move(reader.conversation);
  }
  const json::Array* const items = input->if_array();
  if (items == nullptr)
    return wrong("an input that is neither text nor a list of items", "input",
                 "give a string or a list");
  if (items->empty()) return wrong("no items", "input", "give at least one");
  if (items->size() > field_limits::messages.most)
    return wrong(cat(items->size(), " items"), "input",
                 cat("give at most ", field_limits::messages.most));
  for (std::size_t i = 0; i < items->size(); ++i) MOTLEY_TRY_VOID(reader.read((*items)[i], i));
  reader.end_turn();
  if (reader.conversation.messages.empty())
    return wrong("items that say nothing", "input", "give a message");
  return std::move(reader.conversation);
}

Error ResponsesConversation::at_input(const Error& error) const {
  const std::string_view where = error.where();
  if (!where.starts_with("messages")) return error;
  std::string place = "input";
  std::size_t message = 0;
  if (where.starts_with(list_place)) {
    const std::string_view number = where.substr(list_place.size());
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), message);
    const bool known = parsed.ec == std::errc() && message < items.size();
    if (known && items[message])
      place = cat("input[", *items[message], "]");
    else if (known && message == 0 && instructed)
      place = "instructions";
  }
  return {error.code(), error.what(), std::move(place), error.fix()};
}

}  // namespace motley::server
