#include "server/api/messages/conversation.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"

namespace motley::server {
namespace {

json::Value text_part(std::string text) {
  return json::Object{{"type", "text"}, {"text", std::move(text)}};
}

// Several texts become a list, so that templates that support lists see them separately.
json::Value content_of(std::vector<std::string> texts) {
  if (texts.empty()) return "";
  if (texts.size() == 1) return std::move(texts.front());
  json::Array parts;
  for (std::string& text : texts) parts.push_back(text_part(std::move(text)));
  return parts;
}

json::Object message_of(std::string_view role, json::Value content) {
  return json::Object{{"role", role}, {"content", std::move(content)}};
}

// A block of a list, and its type.
struct Block {
  Fields fields;
  std::string type;
};

class Reader {
 public:
  explicit Reader(Fields& body) : body_(body) {}

  Result<Conversation> read() {
    MOTLEY_TRY_VOID(read_system());
    const json::Value* const value = body_.take("messages");
    if (value == nullptr)
      return wrong("no messages", "messages", "give a list of {\"role\", \"content\"}");
    MOTLEY_TRY(const json::Array* const list, value->as_array("messages"));
    if (list->empty()) return wrong("no messages", "messages", "give at least one");
    if (list->size() > field_limits::messages.most)
      return wrong(cat(list->size(), " messages"), "messages",
                   cat("give at most ", field_limits::messages.most));
    for (std::size_t i = 0; i < list->size(); ++i)
      MOTLEY_TRY_VOID(read_message((*list)[i], cat("messages[", i, "]")));
    const json::Object& last = *chat_.back().if_object();
    Conversation read{.open = *last.find("role")->if_string() == "assistant"};
    if (read.open && last.contains("tool_calls"))
      return wrong("a conversation that ends with a call",
                   cat("messages[", list->size() - 1, "].content"), "give its result");
    read.messages = std::move(chat_);
    return read;
  }

 private:
  Result<void> read_system() {
    const json::Value* const system = body_.take("system");
    if (system == nullptr) return {};
    MOTLEY_TRY(std::vector<std::string> texts, read_texts(*system, "system", "send text"));
    chat_.emplace_back(message_of("system", content_of(std::move(texts))));
    return {};
  }

  Result<void> read_message(const json::Value& value, const std::string& place) {
    MOTLEY_TRY(const json::Object* const object, value.as_object(place));
    Fields message = body_.inside(*object, place);
    MOTLEY_TRY(const auto role, message.string("role"));
    const json::Value* const content = message.take("content");
    const std::string content_place = cat(place, ".content");
    MOTLEY_TRY_VOID(message.finish());
    if (content == nullptr)
      return wrong("a message without content", content_place, "give a string or a list of blocks");
    if (role == "user") return read_user(*content, content_place);
    if (role == "assistant") return read_assistant(*content, content_place);
    if (role != "system")
      return wrong(role ? cat("unknown role ", quote(*role)) : "a message without role",
                   cat(place, ".role"), "use user, assistant or system");
    MOTLEY_TRY(std::vector<std::string> texts, read_texts(*content, content_place, "send text"));
    chat_.emplace_back(message_of("system", content_of(std::move(texts))));
    return {};
  }

  Result<void> read_user(const json::Value& content, const std::string& place) {
    if (const std::string* const text = content.if_string()) {
      chat_.emplace_back(message_of("user", *text));
      return {};
    }
    MOTLEY_TRY(const json::Array* const blocks, content.as_array(place));
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      const std::string block_place = cat(place, "[", i, "]");
      MOTLEY_TRY(Block block, open_block((*blocks)[i], block_place));
      if (block.type == "text") {
        MOTLEY_TRY(std::string text, read_text(block));
        texts.push_back(std::move(text));
      } else if (block.type == "tool_result") {
        if (!texts.empty())
          chat_.emplace_back(message_of("user", content_of(std::exchange(texts, {}))));
        MOTLEY_TRY_VOID(read_tool_result(block, block_place));
      } else {
        return unknown_type(block, "a user's message", "send text or tool_result");
      }
    }
    if (!texts.empty() || blocks->empty())
      chat_.emplace_back(message_of("user", content_of(std::move(texts))));
    return {};
  }

  Result<void> read_tool_result(Block& block, const std::string& place) {
    MOTLEY_TRY(auto id, block.fields.string("tool_use_id"));
    MOTLEY_TRY(const auto is_error, block.fields.boolean("is_error"));
    const json::Value* const content = block.fields.take("content");
    block.fields.accept({"cache_control", "toolset_name"});
    MOTLEY_TRY_VOID(block.fields.finish());
    if (!id)
      return wrong("a result without the call's id", cat(place, ".tool_use_id"),
                   "give the id of the tool_use");
    std::vector<std::string> texts;
    if (content != nullptr) {
      MOTLEY_TRY(texts, read_texts(*content, cat(place, ".content"), "send results as text"));
    }
    json::Object message = message_of("tool", content_of(std::move(texts)));
    // Some models' templates name the function.
    if (const auto name = tool_names_.find(*id); name != tool_names_.end())
      message.add("name", name->second);
    message.add("tool_call_id", *std::move(id));
    if (is_error.value_or(false)) message.add("is_error", true);
    chat_.emplace_back(std::move(message));
    return {};
  }

  Result<void> read_assistant(const json::Value& content, const std::string& place) {
    if (const std::string* const text = content.if_string()) {
      chat_.emplace_back(message_of("assistant", *text));
      return {};
    }
    MOTLEY_TRY(const json::Array* const blocks, content.as_array(place));
    std::vector<std::string> texts;
    std::string reasoning;
    json::Array calls;
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      const std::string block_place = cat(place, "[", i, "]");
      MOTLEY_TRY(Block block, open_block((*blocks)[i], block_place));
      if (block.type == "text") {
        MOTLEY_TRY(std::string text, read_text(block));
        texts.push_back(std::move(text));
      } else if (block.type == "thinking") {
        MOTLEY_TRY(const auto thinking, block.fields.string("thinking"));
        // Signatures are not verified.
        block.fields.accept({"signature", "cache_control"});
        MOTLEY_TRY_VOID(block.fields.finish());
        if (!thinking)
          return wrong("thinking without text", cat(block_place, ".thinking"), "give a string");
        if (!reasoning.empty()) reasoning += '\n';
        reasoning += *thinking;
      } else if (block.type == "redacted_thinking") {
        block.fields.accept({"data", "cache_control"});
        MOTLEY_TRY_VOID(block.fields.finish());
      } else if (block.type == "tool_use") {
        MOTLEY_TRY(json::Object call, read_tool_use(block, block_place));
        calls.emplace_back(std::move(call));
      } else {
        return unknown_type(block, "an assistant's message", "send text, thinking or tool_use");
      }
    }
    const bool only_calls = texts.empty() && !calls.empty();
    json::Object message =
        message_of("assistant", only_calls ? json::Value() : content_of(std::move(texts)));
    if (!reasoning.empty()) message.add("reasoning_content", std::move(reasoning));
    if (!calls.empty()) message.add("tool_calls", std::move(calls));
    chat_.emplace_back(std::move(message));
    return {};
  }

  Result<json::Object> read_tool_use(Block& block, const std::string& place) {
    MOTLEY_TRY(auto id, block.fields.string("id"));
    MOTLEY_TRY(auto name, block.fields.string("name"));
    MOTLEY_TRY(const json::Object* const input, block.fields.object("input"));
    block.fields.accept({"cache_control", "caller", "toolset_name"});
    MOTLEY_TRY_VOID(block.fields.finish());
    if (!id || !name)
      return wrong(id ? "a call without name" : "a call without id",
                   cat(place, id ? ".name" : ".id"), "give back what the answer had");
    tool_names_.insert_or_assign(*id, *name);
    json::Object function{{"name", *std::move(name)},
                          {"arguments", input == nullptr ? json::Object() : *input}};
    return json::Object{
        {"id", *std::move(id)}, {"type", "function"}, {"function", std::move(function)}};
  }

  // A string, or a list of blocks of text.
  Result<std::vector<std::string>> read_texts(const json::Value& value, const std::string& place,
                                              std::string_view fix) {
    std::vector<std::string> texts;
    if (const std::string* const text = value.if_string()) {
      texts.push_back(*text);
      return texts;
    }
    MOTLEY_TRY(const json::Array* const blocks, value.as_array(place));
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      MOTLEY_TRY(Block block, open_block((*blocks)[i], cat(place, "[", i, "]")));
      if (block.type != "text") return unknown_type(block, "a text", fix);
      MOTLEY_TRY(std::string text, read_text(block));
      texts.push_back(std::move(text));
    }
    return texts;
  }

  Result<std::string> read_text(Block& block) {
    MOTLEY_TRY(auto text, block.fields.string("text"));
    block.fields.accept({"cache_control", "citations"});
    MOTLEY_TRY_VOID(block.fields.finish());
    if (!text)
      return wrong("a block of text without text", block.fields.place("text"), "give a string");
    return *std::move(text);
  }

  Result<Block> open_block(const json::Value& value, const std::string& place) {
    MOTLEY_TRY(const json::Object* const object, value.as_object(place));
    Block block{.fields = body_.inside(*object, place), .type = {}};
    MOTLEY_TRY(auto type, block.fields.string("type"));
    if (!type) return wrong("a block without type", cat(place, ".type"), "name it");
    block.type = *std::move(type);
    return block;
  }

  static Error unknown_type(const Block& block, std::string_view where, std::string_view fix) {
    return wrong(cat("a block of type ", quote(block.type), " in ", where),
                 block.fields.place("type"), std::string(fix));
  }

  Fields& body_;
  json::Array chat_;
  std::unordered_map<std::string, std::string> tool_names_;  // by the call's id
};

}  // namespace

Result<Conversation> read_conversation(Fields& body) { return Reader(body).read(); }

}  // namespace motley::server
