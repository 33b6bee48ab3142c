#include "server/api/chat/old_functions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"

namespace motley::server {
namespace {

// The function's name.
Result<std::string> check_function(const json::Value& value, const std::string& place) {
  MOTLEY_TRY(const json::Object* const function, value.as_object(place));
  const json::Value* const name = function->find("name");
  if (name == nullptr || name->if_string() == nullptr || name->if_string()->empty())
    return wrong("a function without name", cat(place, ".name"), "give one");
  if (const json::Value* const parameters = function->find_set("parameters"))
    MOTLEY_TRY_VOID(parameters->as_object(cat(place, ".parameters")));
  return *name->if_string();
}

Result<json::Value> read_choice(const json::Value& value, const std::vector<std::string>& names) {
  if (const std::string* const word = value.if_string()) {
    if (*word == "none" || *word == "auto") return value;
    return wrong(cat("unknown choice ", quote(*word)), "function_call",
                 "use none, auto, or {\"name\": ...}");
  }
  MOTLEY_TRY(const json::Object* const object, value.as_object("function_call"));
  const json::Value* const name = object->find("name");
  if (name == nullptr || name->if_string() == nullptr ||
      std::ranges::find(names, *name->if_string()) == names.end())
    return wrong("not one of the functions", "function_call.name", "name one of functions");
  return json::Value(
      json::Object{{"type", "function"}, {"function", json::Object{{"name", *name}}}});
}

bool is_of_function(const json::Object& message) {
  const json::Value* const role = message.find("role");
  return role != nullptr && role->if_string() != nullptr && *role->if_string() == "function";
}

json::Value modernized(const json::Object& message, std::size_t& calls) {
  const bool answers = is_of_function(message);
  std::vector<json::Member> members;
  for (const json::Member& member : message.members()) {
    if (member.key == "function_call" && !member.value.is_null()) {
      json::Array list;
      list.emplace_back(json::Object(
          {{"id", cat("call_", ++calls)}, {"type", "function"}, {"function", member.value}}));
      members.push_back({"tool_calls", std::move(list)});
    } else if (answers && member.key == "role") {
      members.push_back({"role", "tool"});
      members.push_back({"tool_call_id", cat("call_", calls)});
    } else if (member.key != "tool_calls" && member.key != "tool_call_id") {
      members.push_back(member);
    }
  }
  return json::Object::make(std::move(members)).value();
}

}  // namespace

Result<OldFunctions> read_old_functions(Fields& fields) {
  OldFunctions old;
  std::vector<std::string> names;
  if (const json::Value* const functions = fields.take("functions")) {
    MOTLEY_TRY(const json::Array* const list, functions->as_array("functions"));
    json::Array tools;
    for (std::size_t i = 0; i < list->size(); ++i) {
      MOTLEY_TRY(std::string name, check_function((*list)[i], cat("functions[", i, "]")));
      names.push_back(std::move(name));
      tools.emplace_back(json::Object{{"type", "function"}, {"function", (*list)[i]}});
    }
    if (!tools.empty()) old.tools = std::move(tools);
  }
  if (const json::Value* const choice = fields.take("function_call")) {
    MOTLEY_TRY(json::Value read, read_choice(*choice, names));
    if (old.tools) old.choice = std::move(read);
  }
  return old;
}

void modernize_messages(json::Value& messages) {
  const json::Array* const list = messages.if_array();
  if (list == nullptr) return;
  const auto is_old = [](const json::Value& value) {
    const json::Object* const message = value.if_object();
    return message != nullptr &&
           (message->find_set("function_call") != nullptr || is_of_function(*message));
  };
  if (std::ranges::none_of(*list, is_old)) return;
  std::size_t calls = 0;
  json::Array all;
  for (const json::Value& message : *list)
    all.push_back(is_old(message) ? modernized(*message.if_object(), calls) : message);
  messages = std::move(all);
}

}  // namespace motley::server
