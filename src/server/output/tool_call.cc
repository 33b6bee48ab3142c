#include "server/output/tool_call.h"

namespace motley::server {
namespace {

constexpr std::string_view spaces = " \t\r\n";
constexpr std::string_view where = "tool call";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

// A newline on either side belongs to the form, not to the value.
std::string_view without_line_ends(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// Takes the text between two tags off the front of `rest`, where it begins with the first.
std::optional<std::string_view> take_between(std::string_view& rest, std::string_view open,
                                             std::string_view close) {
  rest = trimmed(rest);
  if (!rest.starts_with(open)) return std::nullopt;
  const std::size_t end = rest.find(close, open.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view inside = rest.substr(open.size(), end - open.size());
  rest.remove_prefix(end + close.size());
  return inside;
}

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

std::optional<ToolCall> call_of(const json::Value& value) {
  const json::Object* const object = value.if_object();
  if (object == nullptr) return std::nullopt;
  const json::Value* const name = object->find("name");
  if (name == nullptr || name->if_string() == nullptr || name->if_string()->empty())
    return std::nullopt;
  const json::Value* const arguments = object->find("arguments");
  auto text = arguments_text(arguments != nullptr ? arguments : object->find("parameters"));
  if (!text) return std::nullopt;
  return ToolCall{*name->if_string(), *std::move(text)};
}

std::optional<ToolCall> parse_json_call(std::string_view text) {
  const auto value = json::parse(trimmed(text), where);
  return value.ok() ? call_of(*value) : std::nullopt;
}

// Adds a value that is written without quotes, unless it is one that needs none.
bool add_argument(json::Object& arguments, const std::string& function, const std::string& key,
                  std::string_view value, const ToolSchemas& schemas) {
  if (key.empty() || arguments.contains(key)) return false;
  if (!schemas.is_string(function, key)) {
    auto parsed = json::parse(trimmed(value), where);
    if (parsed.ok()) {
      arguments.add(key, *std::move(parsed));
      return true;
    }
  }
  arguments.add(key, value);
  return true;
}

std::optional<ToolCall> parse_arg_tags(std::string_view text, const ToolSchemas& schemas) {
  const std::string name(trimmed(text.substr(0, text.find("<arg_key>"))));
  if (name.empty() || name.find('<') != std::string::npos) return std::nullopt;
  std::string_view rest = trimmed(text);
  rest.remove_prefix(name.size());
  json::Object arguments;
  while (!trimmed(rest).empty()) {
    const auto key = take_between(rest, "<arg_key>", "</arg_key>");
    if (!key) return std::nullopt;
    const auto value = take_between(rest, "<arg_value>", "</arg_value>");
    if (!value || !add_argument(arguments, name, std::string(trimmed(*key)), *value, schemas))
      return std::nullopt;
  }
  return ToolCall{name, json::write(arguments)};
}

std::optional<ToolCall> parse_parameters(std::string_view text, const ToolSchemas& schemas) {
  std::string_view rest = text;
  auto body = take_between(rest, "<function=", "</function>");
  if (!body || !trimmed(rest).empty()) return std::nullopt;
  const std::size_t name_end = body->find('>');
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::string name(trimmed(body->substr(0, name_end)));
  body->remove_prefix(name_end + 1);
  json::Object arguments;
  while (!trimmed(*body).empty()) {
    const auto parameter = take_between(*body, "<parameter=", "</parameter>");
    if (!parameter) return std::nullopt;
    const std::size_t key_end = parameter->find('>');
    if (key_end == std::string_view::npos ||
        !add_argument(arguments, name, std::string(trimmed(parameter->substr(0, key_end))),
                      without_line_ends(parameter->substr(key_end + 1)), schemas))
      return std::nullopt;
  }
  if (name.empty()) return std::nullopt;
  return ToolCall{name, json::write(arguments)};
}

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

std::optional<ToolCall> parse_tool_call(std::string_view text, CallSyntax syntax,
                                        const ToolSchemas& schemas) {
  switch (syntax) {
    case CallSyntax::json:
      return parse_json_call(text);
    case CallSyntax::arg_tags:
      return parse_arg_tags(text, schemas);
    case CallSyntax::parameters:
      return parse_parameters(text, schemas);
  }
  MOTLEY_CHECK(false, "a syntax of calls that nobody parses");
}

std::optional<std::vector<ToolCall>> parse_call_list(std::string_view text) {
  const auto value = json::parse(text, where);
  if (!value.ok() || value->if_array() == nullptr) return std::nullopt;
  std::vector<ToolCall> calls;
  for (const json::Value& each : *value->if_array()) {
    auto call = call_of(each);
    if (!call) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  return calls;
}

}  // namespace motley::server
