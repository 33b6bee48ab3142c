#include "server/output/tool_call.h"

#include "server/output/tag_search.h"

namespace motley::server {
namespace {

constexpr std::string_view where = "tool call";

// Arguments come as an object, or as its text.
std::optional<std::string> arguments_text(const json::Value* value) {
  if (value == nullptr || value->is_null()) return "{}";
  if (value->if_object() != nullptr) return json::write(*value);
  if (const std::string* const text = value->if_string()) {
    const auto parsed = json::parse(*text, where);
    if (parsed.ok() && parsed->if_object() != nullptr) return *text;
  }
  return std::nullopt;
}

// Takes tokens of JSON off the front of a text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    at_ += leading_space(text_.substr(at_));
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::optional<std::string> take_string() {
    if (!take('"')) return std::nullopt;
    const std::size_t begin = at_ - 1;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\' ? 1 : 0;
    if (at_ >= text_.size()) return std::nullopt;
    ++at_;
    auto parsed = json::parse(text_.substr(begin, at_ - begin), where);
    if (!parsed.ok()) return std::nullopt;
    return *parsed->if_string();
  }

  std::size_t at() const { return at_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

// Whether a schema says that its value is a string, and nothing else.
bool says_string(const json::Value& schema) {
  const json::Object* const object = schema.if_object();
  const json::Value* const type = object == nullptr ? nullptr : object->find("type");
  return type != nullptr && type->if_string() != nullptr && *type->if_string() == "string";
}

const json::Object* member_object(const json::Object* object, std::string_view key) {
  const json::Value* const value = object == nullptr ? nullptr : object->find(key);
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace

ToolSchemas::ToolSchemas(const json::Value& tools) {
  const json::Array* const list = tools.if_array();
  if (list == nullptr) return;
  for (const json::Value& tool : *list) {
    const json::Object* const function = member_object(tool.if_object(), "function");
    const json::Object* const properties =
        member_object(member_object(function, "parameters"), "properties");
    const json::Value* const name = function == nullptr ? nullptr : function->find("name");
    if (properties == nullptr || name == nullptr || name->if_string() == nullptr) continue;
    for (const json::Member& each : properties->members())
      if (says_string(each.value)) strings_.emplace(*name->if_string(), each.key);
  }
}

bool ToolSchemas::is_string(const std::string& function, const std::string& parameter) const {
  return strings_.contains({function, parameter});
}

std::optional<ToolCall> parse_json_call(std::string_view text) {
  const auto value = json::parse(text, where);
  const json::Object* const object = value.ok() ? value->if_object() : nullptr;
  if (object == nullptr) return std::nullopt;
  const json::Value* const name = object->find("name");
  if (name == nullptr || name->if_string() == nullptr || name->if_string()->empty())
    return std::nullopt;
  const json::Value* const arguments = object->find("arguments");
  auto written = arguments_text(arguments != nullptr ? arguments : object->find("parameters"));
  if (!written) return std::nullopt;
  return ToolCall{*name->if_string(), *std::move(written)};
}

std::optional<JsonCallHead> read_json_call_head(std::string_view text) {
  Cursor cursor(text);
  if (!cursor.take('{') || cursor.take_string() != "name" || !cursor.take(':')) return std::nullopt;
  auto name = cursor.take_string();
  if (!name || name->empty() || !cursor.take(',')) return std::nullopt;
  const auto key = cursor.take_string();
  if ((key != "arguments" && key != "parameters") || !cursor.take(':') || !cursor.take('{'))
    return std::nullopt;
  return JsonCallHead{*std::move(name), cursor.at() - 1};
}

std::size_t JsonExtent::take(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (ended_) return at;
    if (in_string_) {
      in_string_ = escaped_ || byte != '"';
      escaped_ = !escaped_ && byte == '\\';
    } else if (byte == '"') {
      in_string_ = true;
    } else if (byte == '{' || byte == '[') {
      ++depth_;
    } else if (byte == '}' || byte == ']') {
      ended_ = --depth_ == 0;
    }
  }
  return text.size();
}

}  // namespace motley::server
