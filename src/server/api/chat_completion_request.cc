#include "server/api/chat_completion_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "text/chat_request.h"

namespace motley::server {
namespace {

constexpr std::size_t most_messages = 10'000;
constexpr std::size_t most_tools = 1000;

Error wrong(std::string what, std::string place, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(place), std::move(fix)};
}

Result<void> check_messages(const json::Value* messages) {
  if (messages == nullptr)
    return wrong("no messages", "messages", "give a list of {\"role\", \"content\"}");
  MOTLEY_TRY(const json::Array* const list, messages->as_array("messages"));
  if (list->empty()) return wrong("no messages", "messages", "give at least one");
  if (list->size() > most_messages)
    return wrong(cat(list->size(), " messages"), "messages", cat("give at most ", most_messages));
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = cat("messages[", i, "]");
    MOTLEY_TRY(const json::Object* const message, (*list)[i].as_object(place));
    const json::Value* const role = message->find("role");
    if (role == nullptr) return wrong("a message without role", cat(place, ".role"), "name one");
    MOTLEY_TRY(const std::string* const role_name, role->as_string(cat(place, ".role")));
    if (*role_name == "user" && !message->contains("content"))
      return wrong("a user message without content", cat(place, ".content"),
                   "give a string or a list of parts");
    // Parts are looked at by the room that joins them.
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
  if (list->size() > most_tools)
    return wrong(cat(list->size(), " tools"), "tools", cat("give at most ", most_tools));
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
  ToolUse use = ToolUse::none;
  std::string name = {};
};

Result<ToolChoice> read_tool_choice(const json::Value* choice, std::span<const std::string> names) {
  if (choice == nullptr) return ToolChoice{names.empty() ? ToolUse::none : ToolUse::free};
  if (const std::string* const word = choice->if_string()) {
    if (*word == "none") return ToolChoice{ToolUse::none};
    if (*word == "auto") return ToolChoice{names.empty() ? ToolUse::none : ToolUse::free};
    if (*word != "required")
      return wrong(cat("unknown choice ", quote(*word)), "tool_choice",
                   "use none, auto, required, or name a function");
    if (names.empty()) return wrong("no tools to choose from", "tool_choice", "give tools");
    return ToolChoice{ToolUse::some};
  }
  MOTLEY_TRY(const json::Object* const object, choice->as_object("tool_choice"));
  const json::Value* const function = object->find("function");
  if (function == nullptr)
    return wrong("no function", "tool_choice.function", "give {\"name\": ...}");
  MOTLEY_TRY(const json::Object* const named, function->as_object("tool_choice.function"));
  const json::Value* const name = named->find("name");
  if (name == nullptr || name->if_string() == nullptr ||
      std::ranges::find(names, *name->if_string()) == names.end())
    return wrong("not one of the tools", "tool_choice.function.name", "name a function of tools");
  return ToolChoice{ToolUse::one_named, *name->if_string()};
}

// The part of the body that templates see, read by the room that knows conversations.
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
  // OpenAI's field for what templates of that kind call the same.
  if (effort && !inputs.kwargs.contains("reasoning_effort"))
    inputs.kwargs.add("reasoning_effort", *effort);
  return inputs;
}

Result<void> read_logprobs(Fields& fields, engine::SamplingParams& sampling) {
  MOTLEY_TRY(const auto logprobs, fields.boolean("logprobs"));
  MOTLEY_TRY(const auto top, fields.integer("top_logprobs", 0, engine::most_top_logprobs));
  if (top && *top > 0 && !logprobs.value_or(false))
    return wrong("top_logprobs without logprobs", "top_logprobs", "set \"logprobs\": true");
  sampling.logprobs = logprobs.value_or(false);
  sampling.top_logprobs = static_cast<std::int32_t>(top.value_or(0));
  return {};
}

}  // namespace

Result<ChatCompletionRequest> read_chat_completion_request(const json::Value& body,
                                                           const ApiContext& context) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object);
  ChatCompletionRequest request;
  MOTLEY_TRY(request.fields, read_generation_fields(fields, context));
  MOTLEY_TRY(const auto completion_tokens,
             fields.integer("max_completion_tokens", 1, std::int64_t{1} << 31));
  if (completion_tokens) request.fields.max_tokens = completion_tokens;
  if (request.fields.max_tokens == 0)
    return wrong("an answer without tokens", "max_tokens", "ask for one at least");
  MOTLEY_TRY_VOID(read_logprobs(fields, request.fields.sampling));
  MOTLEY_TRY(const auto parallel, fields.boolean("parallel_tool_calls"));
  request.parallel_calls = parallel.value_or(true);

  MOTLEY_TRY_VOID(check_messages(fields.take("messages")));
  MOTLEY_TRY(request.inputs, read_inputs(fields));
  const json::Value* const tools = fields.take("tools");
  std::vector<std::string> names;
  if (tools != nullptr) {
    MOTLEY_TRY(names, read_tools(*tools));
  }
  MOTLEY_TRY(ToolChoice choice, read_tool_choice(fields.take("tool_choice"), names));
  request.tool_use = choice.use;
  request.tool_name = std::move(choice.name);
  if (tools != nullptr && request.tool_use != ToolUse::none) {
    request.inputs.tools = *tools;
  }
  if (request.must_call()) {
    if (request.fields.sampling.grammar)
      return wrong("both a form of the output and a call that must be made", "tool_choice",
                   "leave one of them out");
    request.fields.grammar_field = "tools";
  }
  MOTLEY_TRY_VOID(fields.refuse_others());
  return request;
}

}  // namespace motley::server
