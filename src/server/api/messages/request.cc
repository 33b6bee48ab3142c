#include "server/api/messages/request.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/fields.h"
#include "server/api/messages/conversation.h"

namespace motley::server {
namespace {

// A tool in the form of chats.
Result<json::Object> read_tool(const Fields& body, const json::Value& value,
                               const std::string& place) {
  MOTLEY_TRY(const json::Object* const object, value.as_object(place));
  Fields fields = body.inside(*object, place);
  MOTLEY_TRY(const auto type, fields.string("type"));
  if (type && *type != "custom")
    return wrong(cat("a tool of type ", quote(*type)), cat(place, ".type"),
                 "no tool runs on this server: give custom ones, and run them yourself");
  MOTLEY_TRY(auto name, fields.string("name"));
  if (!name || name->empty()) return wrong("a tool without name", cat(place, ".name"), "give one");
  MOTLEY_TRY(auto description, fields.string("description"));
  MOTLEY_TRY(const json::Object* const schema, fields.object("input_schema"));
  if (schema == nullptr)
    return wrong("a tool without schema", cat(place, ".input_schema"),
                 "give that of an object, {\"type\": \"object\"} for any");
  MOTLEY_TRY(const auto strict, fields.boolean("strict"));
  fields.accept({"cache_control", "defer_loading", "eager_input_streaming", "allowed_callers",
                 "input_examples"});
  MOTLEY_TRY_VOID(fields.finish());
  json::Object function{{"name", *std::move(name)}};
  if (description) function.add("description", *std::move(description));
  function.add("parameters", *schema);
  if (strict) function.add("strict", *strict);
  return json::Object{{"type", "function"}, {"function", std::move(function)}};
}

Result<json::Array> read_tools(Fields& body) {
  json::Array tools;
  const json::Value* const value = body.take("tools");
  if (value == nullptr) return tools;
  MOTLEY_TRY(const json::Array* const list, value->as_array("tools"));
  if (list->size() > field_limits::tools.most)
    return wrong(cat(list->size(), " tools"), "tools",
                 cat("give at most ", field_limits::tools.most));
  for (std::size_t i = 0; i < list->size(); ++i) {
    MOTLEY_TRY(json::Object tool, read_tool(body, (*list)[i], cat("tools[", i, "]")));
    tools.emplace_back(std::move(tool));
  }
  return tools;
}

bool has_tool(const json::Array& tools, std::string_view name) {
  return std::ranges::any_of(tools, [&](const json::Value& tool) {
    return *tool.if_object()->find("function")->if_object()->find("name")->if_string() == name;
  });
}

Result<void> read_tool_choice(Fields& body, const json::Array& tools, ChatCompletionRequest& chat) {
  chat.tool_use = tools.empty() ? serving::ToolUse::none : serving::ToolUse::free;
  MOTLEY_TRY(const json::Object* const choice, body.object("tool_choice"));
  if (choice == nullptr) return {};
  Fields fields = body.inside(*choice, "tool_choice");
  MOTLEY_TRY(const auto type, fields.string("type"));
  MOTLEY_TRY(auto name, fields.string("name"));
  MOTLEY_TRY(const auto one, fields.boolean("disable_parallel_tool_use"));
  MOTLEY_TRY_VOID(fields.finish());
  chat.parallel_calls = !one.value_or(false);
  if (type == "auto") return {};
  if (type == "none") {
    chat.tool_use = serving::ToolUse::none;
    return {};
  }
  if (type != "any" && type != "tool")
    return wrong(type ? cat("unknown choice ", quote(*type)) : "a choice without type",
                 "tool_choice.type", "use auto, any, tool or none");
  if (tools.empty()) return wrong("no tools to choose from", "tool_choice", "give tools");
  chat.tool_use = type == "any" ? serving::ToolUse::some : serving::ToolUse::one_named;
  if (type == "any") return {};
  if (!name || !has_tool(tools, *name))
    return wrong(name ? cat("no tool ", quote(*name)) : "no name", "tool_choice.name",
                 "name one of tools");
  chat.tool_name = *std::move(name);
  return {};
}

Result<void> read_thinking(Fields& body, MessagesRequest& request) {
  MOTLEY_TRY(const json::Object* const thinking, body.object("thinking"));
  if (thinking == nullptr) return {};
  Fields fields = body.inside(*thinking, "thinking");
  MOTLEY_TRY(const auto type, fields.string("type"));
  MOTLEY_TRY(const auto display, fields.string("display"));
  // Reasoning has no separate limit.
  MOTLEY_TRY_VOID(fields.integer("budget_tokens", 0));
  MOTLEY_TRY_VOID(fields.finish());
  if (display && *display != "summarized" && *display != "omitted")
    return wrong(cat("unknown display ", quote(*display)), "thinking.display",
                 "use summarized or omitted");
  request.show_thinking = display != "omitted";
  if (type == "adaptive" || type == "between_tools") return {};
  if (type != "enabled" && type != "disabled")
    return wrong(type ? cat("unknown type ", quote(*type)) : "no type", "thinking.type",
                 "use enabled, disabled or adaptive");
  json::Object& kwargs = request.chat.inputs.kwargs;
  if (!kwargs.contains("enable_thinking")) kwargs.add("enable_thinking", type == "enabled");
  return {};
}

// {"type": "json_schema", "schema"}
Result<void> read_format(const Fields& body, const json::Object& format, std::string_view key,
                         GenerationFields& fields) {
  if (fields.sampling.grammar)
    return wrong(cat("both ", fields.grammar_field, " and ", key), std::string(key),
                 "give one of them");
  Fields inner = body.inside(format, key);
  MOTLEY_TRY(const auto type, inner.string("type"));
  if (type != "json_schema")
    return wrong(type ? cat("unknown format ", quote(*type)) : "a format without type",
                 inner.place("type"), "use json_schema");
  MOTLEY_TRY(const json::Object* const schema, inner.object("schema"));
  if (schema == nullptr) return wrong("no schema", inner.place("schema"), "give one");
  inner.accept({"name"});
  MOTLEY_TRY(const auto strict, inner.boolean("strict"));
  MOTLEY_TRY_VOID(inner.finish());
  fields.sampling.grammar =
      grammar::Spec{.kind = grammar::Spec::Kind::json_schema, .text = json::write(*schema)};
  fields.grammar_field = key;
  fields.strict_form = strict.value_or(false);
  return {};
}

Result<void> read_output(Fields& body, ChatCompletionRequest& chat) {
  // The older name of output_config.format.
  MOTLEY_TRY(const json::Object* const format, body.object("output_format"));
  if (format != nullptr) MOTLEY_TRY_VOID(read_format(body, *format, "output_format", chat.fields));
  MOTLEY_TRY(const json::Object* const config, body.object("output_config"));
  if (config == nullptr) return {};
  Fields fields = body.inside(*config, "output_config");
  MOTLEY_TRY(auto effort, fields.string("effort"));
  MOTLEY_TRY(const json::Object* const inner, fields.object("format"));
  MOTLEY_TRY_VOID(fields.finish());
  if (inner != nullptr)
    MOTLEY_TRY_VOID(read_format(body, *inner, "output_config.format", chat.fields));
  // Templates know three levels.
  if (effort == "xhigh" || effort == "max") effort = "high";
  json::Object& kwargs = chat.inputs.kwargs;
  if (effort && !kwargs.contains("reasoning_effort"))
    kwargs.add("reasoning_effort", *std::move(effort));
  return {};
}

// Refuses fields that would change the answer, and accepts those that only concern Anthropic.
Result<void> read_others(Fields& body) {
  if (body.take("container") != nullptr)
    return wrong("a container", "container", "leave it out: nothing runs on this server");
  if (const json::Value* const servers = body.take("mcp_servers")) {
    MOTLEY_TRY(const json::Array* const list, servers->as_array("mcp_servers"));
    if (!list->empty())
      return wrong("MCP servers", "mcp_servers",
                   "leave them out: call them yourself, and give their tools in tools");
  }
  body.accept({"cache_control", "diagnostics", "inference_geo", "speed", "user_profile_id",
               "workspace_id"});
  return {};
}

Result<void> check_lengths(const GenerationFields& fields, MessagesUse use) {
  if (use == MessagesUse::answer && !fields.max_tokens)
    return wrong("no max_tokens", "max_tokens", "say how many tokens the answer may have");
  if (fields.choices > 1)
    return wrong(cat(fields.choices, " choices"), "n", "send a request for each");
  return {};
}

}  // namespace

Result<MessagesRequest> read_messages_request(const json::Value& body, const ApiContext& context,
                                              MessagesUse use) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object, "", context.ignored());
  MessagesRequest request;
  ChatCompletionRequest& chat = request.chat;
  MOTLEY_TRY(chat.fields, read_generation_fields(fields, context));
  leave_token_lists(fields, chat.fields.tokens, chat.fields);
  if (std::exchange(chat.fields.tokens.as_ids, false)) fields.leave("return_tokens_as_token_ids");
  MOTLEY_TRY_VOID(check_lengths(chat.fields, use));
  MOTLEY_TRY(std::vector<std::string> stops, read_stop_strings(fields, "stop_sequences"));
  std::ranges::move(stops, std::back_inserter(chat.fields.stop));
  MOTLEY_TRY(const json::Object* const kwargs, fields.object("chat_template_kwargs"));
  if (kwargs != nullptr) chat.inputs.kwargs = *kwargs;
  MOTLEY_TRY_VOID(read_thinking(fields, request));
  MOTLEY_TRY_VOID(read_output(fields, chat));
  MOTLEY_TRY(Conversation conversation, read_conversation(fields));
  chat.inputs.messages = std::move(conversation.messages);
  chat.continue_final = conversation.open;
  MOTLEY_TRY(json::Array tools, read_tools(fields));
  MOTLEY_TRY_VOID(read_tool_choice(fields, tools, chat));
  if (chat.tool_use != serving::ToolUse::none) chat.inputs.tools = std::move(tools);
  if (chat.continue_final && chat.must_call())
    return wrong("the last message is the assistant's, and a call to be made", "tool_choice",
                 "end the conversation with a user's message");
  // A form applies to content, and a forced call leaves none.
  if (chat.must_call()) chat.fields.grammar_field = "tools";
  chat.parameters_key = "input_schema";
  MOTLEY_TRY_VOID(read_others(fields));
  MOTLEY_TRY_VOID(fields.finish());
  return request;
}

}  // namespace motley::server
