#include "server/api/chat/chat_completion_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "server/api/chat/old_functions.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/fields.h"
#include "server/api/fields/routed_fields.h"
#include "serving/prompts/content_text.h"
#include "text/chat/chat_request.h"

namespace motley::server {
namespace {

Result<void> check_messages(const json::Value* messages) {
  if (messages == nullptr)
    return wrong("no messages", "messages", "give a list of {\"role\", \"content\"}");
  MOTLEY_TRY(const json::Array* const list, messages->as_array("messages"));
  if (list->empty()) return wrong("no messages", "messages", "give at least one");
  if (list->size() > field_limits::messages.most)
    return wrong(cat(list->size(), " messages"), "messages",
                 cat("give at most ", field_limits::messages.most));
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = cat("messages[", i, "]");
    MOTLEY_TRY(const json::Object* const message, (*list)[i].as_object(place));
    const json::Value* const role = message->find("role");
    if (role == nullptr) return wrong("a message without role", cat(place, ".role"), "name one");
    MOTLEY_TRY(const std::string* const role_name, role->as_string(cat(place, ".role")));
    if (*role_name == "user" && !message->contains("content"))
      return wrong("a user message without content", cat(place, ".content"),
                   "give a string or a list of parts");
    // src/text/chat/ checks the parts of other messages when it joins them.
    const json::Value* const content = message->find_set("content");
    if (content != nullptr && content->if_string() == nullptr && content->if_array() == nullptr)
      return wrong("content that is neither text nor a list of parts", cat(place, ".content"),
                   "give a string, a list, or null");
  }
  return {};
}

Result<void> check_documents(const json::Value* documents) {
  if (documents == nullptr) return {};
  MOTLEY_TRY(const json::Array* const list, documents->as_array("documents"));
  for (std::size_t i = 0; i < list->size(); ++i)
    MOTLEY_TRY_VOID((*list)[i].as_object(cat("documents[", i, "]")));
  return {};
}

// The names of the functions in `tools`.
Result<std::vector<std::string>> read_tools(const json::Value& tools) {
  MOTLEY_TRY(const json::Array* const list, tools.as_array("tools"));
  if (list->size() > field_limits::tools.most)
    return wrong(cat(list->size(), " tools"), "tools",
                 cat("give at most ", field_limits::tools.most));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = cat("tools[", i, "]");
    MOTLEY_TRY(const json::Object* const tool, (*list)[i].as_object(place));
    const json::Value* const type = tool->find("type");
    if (type != nullptr && (type->if_string() == nullptr || *type->if_string() != "function"))
      return wrong("a tool that is no function", cat(place, ".type"), "use function");
    const json::Value* const function = tool->find("function");
    if (function == nullptr)
      return wrong("a tool without function", cat(place, ".function"),
                   "give {\"name\", \"description\", \"parameters\"}");
    MOTLEY_TRY(const json::Object* const object, function->as_object(cat(place, ".function")));
    const json::Value* const name = object->find("name");
    if (name == nullptr || name->if_string() == nullptr || name->if_string()->empty())
      return wrong("a function without name", cat(place, ".function.name"), "give one");
    if (const json::Value* const parameters = object->find_set("parameters"))
      MOTLEY_TRY_VOID(parameters->as_object(cat(place, ".function.parameters")));
    names.push_back(*name->if_string());
  }
  return names;
}

struct ToolChoice {
  serving::ToolUse use = serving::ToolUse::none;
  std::string name = {};
  std::vector<std::string> allowed = {};  // the other tools are hidden; empty: all are allowed
};

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools": [...]}}, or both in the object.
Result<ToolChoice> read_allowed_tools(const json::Object& choice,
                                      std::span<const std::string> names) {
  const json::Value* const inner = choice.find_set("allowed_tools");
  const std::string place = inner == nullptr ? "tool_choice" : "tool_choice.allowed_tools";
  const json::Object* object = &choice;
  if (inner != nullptr) {
    MOTLEY_TRY(object, inner->as_object(place));
  }
  const json::Value* const mode = object->find_set("mode");
  const std::string* const word = mode == nullptr ? nullptr : mode->if_string();
  if (mode != nullptr && (word == nullptr || (*word != "auto" && *word != "required")))
    return wrong("unknown mode", cat(place, ".mode"), "use auto or required");
  const json::Value* const tools = object->find_set("tools");
  if (tools == nullptr) return wrong("no tools", cat(place, ".tools"), "name some");
  MOTLEY_TRY(const json::Array* const list, tools->as_array(cat(place, ".tools")));
  ToolChoice read{word != nullptr && *word == "required" ? serving::ToolUse::some
                                                         : serving::ToolUse::free};
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string each = cat(place, ".tools[", i, "]");
    MOTLEY_TRY(const json::Object* const tool, (*list)[i].as_object(each));
    const json::Value* const function = tool->find_set("function");
    const json::Object* const named = function == nullptr ? tool : function->if_object();
    const json::Value* const name = named == nullptr ? nullptr : named->find("name");
    if (name == nullptr || name->if_string() == nullptr ||
        std::ranges::find(names, *name->if_string()) == names.end())
      return wrong("not one of the tools", each, "name a function of tools");
    read.allowed.push_back(*name->if_string());
  }
  if (!read.allowed.empty()) return read;
  if (read.use == serving::ToolUse::some)
    return wrong("no tools to choose from", cat(place, ".tools"), "name some");
  return ToolChoice{serving::ToolUse::none};
}

// Those of these names.
json::Value only(const json::Value& tools, std::span<const std::string> names) {
  json::Array some;
  for (const json::Value& tool : *tools.if_array()) {
    const std::string& name =
        *tool.if_object()->find("function")->if_object()->find("name")->if_string();
    if (std::ranges::find(names, name) != names.end()) some.push_back(tool);
  }
  return some;
}

Result<ToolChoice> read_tool_choice(const json::Value* choice, std::span<const std::string> names) {
  if (choice == nullptr)
    return ToolChoice{names.empty() ? serving::ToolUse::none : serving::ToolUse::free};
  if (const std::string* const word = choice->if_string()) {
    if (*word == "none") return ToolChoice{serving::ToolUse::none};
    if (*word == "auto")
      return ToolChoice{names.empty() ? serving::ToolUse::none : serving::ToolUse::free};
    if (*word != "required")
      return wrong(cat("unknown choice ", quote(*word)), "tool_choice",
                   "use none, auto, required, or name a function");
    if (names.empty()) return wrong("no tools to choose from", "tool_choice", "give tools");
    return ToolChoice{serving::ToolUse::some};
  }
  MOTLEY_TRY(const json::Object* const object, choice->as_object("tool_choice"));
  const json::Value* const type = object->find_set("type");
  if (type != nullptr && type->if_string() != nullptr && *type->if_string() == "allowed_tools")
    return read_allowed_tools(*object, names);
  const json::Value* const function = object->find("function");
  if (function == nullptr)
    return wrong("no function", "tool_choice.function", "give {\"name\": ...}");
  MOTLEY_TRY(const json::Object* const named, function->as_object("tool_choice.function"));
  const json::Value* const name = named->find("name");
  if (name == nullptr || name->if_string() == nullptr ||
      std::ranges::find(names, *name->if_string()) == names.end())
    return wrong("not one of the tools", "tool_choice.function.name", "name a function of tools");
  return ToolChoice{serving::ToolUse::one_named, *name->if_string()};
}

// Reads the part of the body that templates see, which src/text/chat/ parses.
Result<text::ChatInputs> read_inputs(Fields& fields) {
  constexpr std::array<std::string_view, 4> keys = {
      "messages", "documents", "add_generation_prompt", "chat_template_kwargs"};
  json::Object conversation;
  for (const std::string_view key : keys) {
    if (const json::Value* const value = fields.take(key))
      conversation.add(std::string(key), *value);
  }
  MOTLEY_TRY_VOID(check_documents(fields.take("documents")));
  MOTLEY_TRY_VOID(fields.boolean("add_generation_prompt"));
  MOTLEY_TRY_VOID(fields.object("chat_template_kwargs"));
  MOTLEY_TRY(const auto effort, fields.string("reasoning_effort"));
  MOTLEY_TRY(text::ChatInputs inputs,
             text::read_chat_request(json::Value(std::move(conversation)), "body"));
  // OpenAI's field; templates use the same name.
  if (effort && !inputs.kwargs.contains("reasoning_effort"))
    inputs.kwargs.add("reasoning_effort", *effort);
  return inputs;
}

// The text of the last message, if it is the model's own and the answer continues it.
std::string last_words(const json::Value& messages) {
  const json::Object& last = *messages.if_array()->back().if_object();
  const std::string* const role = last.find("role")->if_string();
  if (*role != "assistant") return {};
  return serving::content_text(last.find_set("content")).value_or("");
}

Result<void> read_logprobs(Fields& fields, const ApiContext& context,
                           engine::SamplingParams& sampling) {
  MOTLEY_TRY(const auto logprobs, fields.boolean("logprobs"));
  MOTLEY_TRY(const auto top, fields.integer("top_logprobs", 0, context.max_answer_logprobs()));
  if (top && *top > 0 && !logprobs.value_or(false))
    return wrong("top_logprobs without logprobs", "top_logprobs", "set \"logprobs\": true");
  sampling.logprobs = logprobs.value_or(false);
  sampling.top_logprobs = static_cast<std::int32_t>(top.value_or(0));
  return read_named_with_logprobs(fields, context.token_bounds(), sampling);
}

// Reads how the conversation is rendered, besides what templates see.
Result<void> read_rendering(Fields& fields, const ApiContext& context,
                            ChatCompletionRequest& request) {
  MOTLEY_TRY(const auto reasoning, fields.boolean("include_reasoning"));
  request.include_reasoning = reasoning.value_or(true);
  MOTLEY_TRY(const auto open, fields.boolean("continue_final_message"));
  request.continue_final = open.value_or(false);
  if (request.continue_final) {
    MOTLEY_TRY(const auto prompt, fields.boolean("add_generation_prompt"));
    if (prompt.value_or(false))
      return wrong("the last message is to go on, and a new one to begin", "continue_final_message",
                   "set \"add_generation_prompt\": false");
    if (request.must_call())
      return wrong("the last message is to go on, and a call to be made", "continue_final_message",
                   "leave tool_choice out");
  }
  MOTLEY_TRY(request.chat_template, fields.string("chat_template"));
  if (!request.chat_template) return {};
  if (!context.request_templates)
    return Error(ErrorCode::unsupported, "templates in requests are not taken here",
                 "chat_template", "leave it out; --allow-request-templates lets them in");
  if (request.chat_template->size() > field_limits::chat_template.most)
    return wrong(cat("a template of ", request.chat_template->size(), " bytes"), "chat_template",
                 cat("give at most ", field_limits::chat_template.most));
  return {};
}

}  // namespace

Result<ChatCompletionRequest> read_chat_completion_request(const json::Value& body,
                                                           const ApiContext& context) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object, "", context.ignored());
  ChatCompletionRequest request;
  MOTLEY_TRY(request.fields, read_generation_fields(fields, context));
  MOTLEY_TRY_VOID(settle_prompt_scores(request.fields, request.fields.stream));
  MOTLEY_TRY_VOID(
      read_routed_fields(fields, context.routed_experts, RoutedInStreams::no, request.fields));
  MOTLEY_TRY(const auto completion_tokens,
             fields.integer("max_completion_tokens", 0, std::int64_t{1} << 31));
  if (completion_tokens) request.fields.max_tokens = completion_tokens;
  MOTLEY_TRY_VOID(read_logprobs(fields, context, request.fields.sampling));
  MOTLEY_TRY(const auto parallel, fields.boolean("parallel_tool_calls"));
  request.parallel_calls = parallel.value_or(true);

  const json::Value* const messages = fields.take("messages");
  MOTLEY_TRY_VOID(check_messages(messages));
  MOTLEY_TRY(const auto echo, fields.boolean("echo"));
  if (echo.value_or(false)) request.echoed = last_words(*messages);
  MOTLEY_TRY(request.inputs, read_inputs(fields));
  modernize_messages(request.inputs.messages);
  MOTLEY_TRY(const OldFunctions old, read_old_functions(fields));
  const json::Value* tools = fields.take("tools");
  const json::Value* tool_choice = fields.take("tool_choice");
  if (old.tools) {
    if (tools != nullptr) return wrong("both functions and tools", "functions", "give one of them");
    request.old_functions = true;
    request.parallel_calls = false;
    tools = &*old.tools;
    tool_choice = old.choice ? &*old.choice : nullptr;
  }
  std::vector<std::string> names;
  if (tools != nullptr) {
    MOTLEY_TRY(names, read_tools(*tools));
  }
  MOTLEY_TRY(ToolChoice choice, read_tool_choice(tool_choice, names));
  request.tool_use = choice.use;
  request.tool_name = std::move(choice.name);
  if (tools != nullptr && request.tool_use != serving::ToolUse::none) {
    request.inputs.tools = choice.allowed.empty() ? *tools : only(*tools, choice.allowed);
  }
  // A form applies to content, and a forced call leaves none.
  if (request.must_call()) request.fields.grammar_field = "tools";
  MOTLEY_TRY_VOID(read_rendering(fields, context, request));
  fields.accept(context.more_fields);
  MOTLEY_TRY_VOID(fields.finish());
  return request;
}

}  // namespace motley::server
