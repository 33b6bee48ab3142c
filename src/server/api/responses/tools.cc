#include "server/api/responses/tools.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"

namespace motley::server {
namespace {

struct Function {
  std::string name;
  json::Object chat;  // in the form of chats, {"name", "description", "parameters", "strict"}
};

// {"type": "function", "name", "description", "parameters", "strict"}
Result<Function> read_function(const Fields& body, const json::Value& value,
                               const std::string& place) {
  MOTLEY_TRY(const json::Object* const object, value.as_object(place));
  Fields fields = body.inside(*object, place);
  MOTLEY_TRY(const auto type, fields.string("type"));
  if (!type) return wrong("a tool without type", fields.place("type"), "use function");
  if (*type != "function")
    return wrong(cat("a tool of type ", quote(*type)), fields.place("type"),
                 "the server runs no tools: use function, and run it yourself");
  MOTLEY_TRY(auto name, fields.string("name"));
  if (!name || name->empty())
    return wrong("a function without name", fields.place("name"), "give one");
  MOTLEY_TRY(auto description, fields.string("description"));
  MOTLEY_TRY(const json::Object* const parameters, fields.object("parameters"));
  MOTLEY_TRY(const auto strict, fields.boolean("strict"));
  MOTLEY_TRY_VOID(fields.finish());
  Function function{.name = *std::move(name)};
  function.chat.add("name", function.name);
  if (description) function.chat.add("description", *std::move(description));
  if (parameters != nullptr) function.chat.add("parameters", *parameters);
  if (strict) function.chat.add("strict", *strict);
  return function;
}

json::Object repeated(const Function& function) {
  json::Object tool{{"type", "function"}};
  for (const std::string_view key : {"name", "description", "parameters"}) {
    const json::Value* const value = function.chat.find(key);
    tool.add(std::string(key), value == nullptr ? json::Value() : *value);
  }
  const json::Value* const strict = function.chat.find("strict");
  tool.add("strict", strict == nullptr ? json::Value(false) : *strict);
  return tool;
}

using Names = std::unordered_map<std::string_view, std::size_t>;

// The name in {"type": "function", "name": ...}, which must be one of the tools.
Result<std::string> read_chosen(const Fields& body, const json::Object& object,
                                const std::string& place, const Names& names) {
  Fields fields = body.inside(object, place);
  MOTLEY_TRY(const auto type, fields.string("type"));
  if (type != "function")
    return wrong(type ? cat("a choice of type ", quote(*type)) : "a choice without type",
                 fields.place("type"), "use function, or allowed_tools");
  MOTLEY_TRY(auto name, fields.string("name"));
  MOTLEY_TRY_VOID(fields.finish());
  if (!name || !names.contains(*name))
    return wrong(name ? cat("no tool ", quote(*name)) : "no name", fields.place("name"),
                 "name a function of tools");
  return *std::move(name);
}

struct Choice {
  serving::ToolUse use = serving::ToolUse::none;
  std::string name = {};                         // of the one
  std::unordered_set<std::string> allowed = {};  // of several
  bool all = true;                               // are allowed
};

Result<serving::ToolUse> read_mode(std::string_view mode, const std::string& place,
                                   const Names& names) {
  if (mode == "none") return serving::ToolUse::none;
  if (mode == "auto") return names.empty() ? serving::ToolUse::none : serving::ToolUse::free;
  if (mode != "required")
    return wrong(cat("unknown choice ", quote(mode)), place,
                 "use none, auto, required, or name a function");
  if (names.empty()) return wrong("no tools to choose from", place, "give tools");
  return serving::ToolUse::some;
}

Result<Choice> read_allowed(const Fields& body, const json::Object& object, const Names& names) {
  Fields fields = body.inside(object, "tool_choice");
  fields.accept({"type"});
  MOTLEY_TRY(const auto mode, fields.string("mode"));
  Choice choice{.all = false};
  MOTLEY_TRY(choice.use, read_mode(mode.value_or("auto"), fields.place("mode"), names));
  const std::string place = fields.place("tools");
  const json::Value* const value = fields.take("tools");
  if (value == nullptr) return wrong("no tools", place, "list those that are allowed");
  MOTLEY_TRY(const json::Array* const list, value->as_array(place));
  if (list->size() > field_limits::tools.most)
    return wrong(cat(list->size(), " tools"), place,
                 cat("give at most ", field_limits::tools.most));
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string each = cat(place, "[", i, "]");
    MOTLEY_TRY(const json::Object* const tool, (*list)[i].as_object(each));
    MOTLEY_TRY(std::string name, read_chosen(body, *tool, each, names));
    choice.allowed.insert(std::move(name));
  }
  MOTLEY_TRY_VOID(fields.finish());
  if (choice.allowed.empty()) {
    if (choice.use == serving::ToolUse::some)
      return wrong("no tools to choose from", place, "list those that are allowed");
    choice.use = serving::ToolUse::none;
  }
  return choice;
}

Result<Choice> read_choice(const Fields& body, const json::Value* value, const Names& names) {
  if (value == nullptr)
    return Choice{.use = names.empty() ? serving::ToolUse::none : serving::ToolUse::free};
  const std::string place = "tool_choice";
  if (const std::string* const word = value->if_string()) {
    MOTLEY_TRY(const serving::ToolUse use, read_mode(*word, place, names));
    return Choice{.use = use};
  }
  MOTLEY_TRY(const json::Object* const object, value->as_object(place));
  const json::Value* const type = object->find("type");
  if (type != nullptr && type->if_string() != nullptr && *type->if_string() == "allowed_tools")
    return read_allowed(body, *object, names);
  MOTLEY_TRY(std::string name, read_chosen(body, *object, place, names));
  return Choice{.use = serving::ToolUse::one_named, .name = std::move(name)};
}

}  // namespace

Result<ResponsesTools> read_responses_tools(Fields& fields, ChatCompletionRequest& request) {
  ResponsesTools repeats;
  std::vector<Function> functions;
  if (const json::Value* const tools = fields.take("tools")) {
    MOTLEY_TRY(const json::Array* const list, tools->as_array("tools"));
    if (list->size() > field_limits::tools.most)
      return wrong(cat(list->size(), " tools"), "tools",
                   cat("give at most ", field_limits::tools.most));
    functions.reserve(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      MOTLEY_TRY(Function function, read_function(fields, (*list)[i], cat("tools[", i, "]")));
      repeats.tools.emplace_back(repeated(function));
      functions.push_back(std::move(function));
    }
  }
  Names names;
  for (std::size_t i = 0; i < functions.size(); ++i) names.emplace(functions[i].name, i);
  const json::Value* const given = fields.take("tool_choice");
  repeats.choice = given == nullptr ? json::Value("auto") : *given;
  MOTLEY_TRY(Choice choice, read_choice(fields, given, names));
  MOTLEY_TRY(const auto parallel, fields.boolean("parallel_tool_calls"));
  request.parallel_calls = parallel.value_or(true);
  request.tool_use = choice.use;
  request.tool_name = std::move(choice.name);
  if (choice.use == serving::ToolUse::none) return repeats;
  json::Array shown;
  for (Function& function : functions) {
    if (!choice.all && !choice.allowed.contains(function.name)) continue;
    shown.emplace_back(json::Object{{"type", "function"}, {"function", std::move(function.chat)}});
  }
  request.inputs.tools = std::move(shown);
  return repeats;
}

}  // namespace motley::server
