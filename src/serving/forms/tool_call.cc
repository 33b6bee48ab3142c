#include "serving/forms/tool_call.h"

#include <algorithm>
#include <array>

#include "base/json/json.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

constexpr std::string_view where = "tool call";

// Arguments are given as an object, or as its text.
std::optional<std::string> arguments_text(const json::Value* value) {
  if (value == nullptr || value->is_null()) return "{}";
  if (value->if_object() != nullptr) return json::write(*value);
  if (const std::string* const text = value->if_string()) {
    const auto parsed = json::parse(*text, where);
    if (parsed.ok() && parsed->if_object() != nullptr) return *text;
  }
  return std::nullopt;
}

// Reads JSON tokens from the front of a text.
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

const json::Object* member_object(const json::Object* object, std::string_view key) {
  const json::Value* const value = object == nullptr ? nullptr : object->find(key);
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace

std::optional<ToolCall> parse_json_call(std::string_view text) {
  const auto value = json::parse(text, where);
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  if (object == nullptr) return std::nullopt;
  // The form of tools in requests.
  if (const json::Object* const function = member_object(object, "function")) object = function;
  const json::Value* name = object->find("name");
  if (name == nullptr) name = object->find("tool_name");
  if (name == nullptr) name = object->find("function");
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

bool may_be_json_call(std::string_view text) {
  const std::size_t quote = 1 + leading_space(text.substr(1));
  if (quote >= text.size()) return true;
  const char mark = text[quote];
  if (mark != '"' && mark != '\'') return false;
  constexpr std::size_t longest_key = 16;
  const std::string_view key = text.substr(quote + 1, longest_key);
  const std::size_t end = key.find(mark);
  constexpr std::array<std::string_view, 8> keys = {"name", "arguments", "parameters", "function",
                                                    "type", "id",        "tool_name",  "index"};
  return std::ranges::any_of(keys, [&](std::string_view each) {
    return end == std::string_view::npos ? each.starts_with(key) : key.substr(0, end) == each;
  });
}

std::size_t JsonExtent::take(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (ended_ || broken_) return at;
    if (quote_ != 0) {
      if (!escaped_ && byte == quote_) quote_ = 0;
      escaped_ = !escaped_ && byte == '\\';
    } else if (byte == '"' || (byte == '\'' && quotes_ == Quotes::python)) {
      quote_ = byte;
    } else if (byte == '{' || byte == '[') {
      ++depth_;
      open_ += byte == '{' ? '}' : ']';
    } else if (byte == '}' || byte == ']') {
      if (!open_.empty()) open_.pop_back();
      ended_ = --depth_ == 0;
    } else if (byte == '<') {
      // JSON has no such character, but marks begin with it.
      broken_ = true;
      return at;
    }
  }
  return text.size();
}

}  // namespace motley::serving
