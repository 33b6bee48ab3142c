#include "server/api/responses/request.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/cat.h"
#include "server/api/calls/grammar_fields.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/fields.h"
#include "server/api/responses/tools.h"

namespace motley::server {
namespace {

// Refuses fields that require the server to store something.
Result<void> refuse_what_is_kept(Fields& fields) {
  for (const std::string_view key : {"previous_response_id", "conversation"}) {
    if (fields.take(key) != nullptr)
      return wrong("the server keeps no conversations", std::string(key),
                   "leave it out, and send the whole conversation as input");
  }
  if (fields.take("prompt") != nullptr)
    return wrong("the server keeps no prompts", "prompt",
                 "leave it out, and send instructions and input");
  MOTLEY_TRY(const auto background, fields.boolean("background"));
  if (background.value_or(false))
    return wrong("the server keeps no answers", "background",
                 "leave it out, and wait for the answer or stream it");
  return {};
}

Result<void> read_length(Fields& fields, GenerationFields& into) {
  MOTLEY_TRY(const auto tokens, fields.integer("max_output_tokens", 1, std::int64_t{1} << 31));
  if (tokens) into.max_tokens = tokens;
  if (into.max_tokens == 0)
    return wrong("an answer without tokens", "max_tokens", "ask for one at least");
  if (into.choices != 1)
    return wrong(cat(into.choices, " choices"), "n", "a response has one: send several requests");
  return {};
}

Result<void> read_logprobs(Fields& fields, int most, engine::SamplingParams& sampling) {
  MOTLEY_TRY(const auto include, fields.strings("include", field_limits::includes.most));
  MOTLEY_TRY(const auto top, fields.integer("top_logprobs", 0, most));
  sampling.top_logprobs = static_cast<std::int32_t>(top.value_or(0));
  sampling.logprobs = sampling.top_logprobs > 0 ||
                      std::ranges::find(include, "message.output_text.logprobs") != include.end();
  return {};
}

Result<void> read_text(Fields& fields, GenerationFields& into) {
  MOTLEY_TRY(const json::Object* const text, fields.object("text"));
  if (text == nullptr) return {};
  Fields inner = fields.inside(*text, "text");
  inner.accept({"verbosity"});
  MOTLEY_TRY(const json::Object* const format, inner.object("format"));
  if (format != nullptr) {
    constexpr std::string_view place = "text.format";
    MOTLEY_TRY(auto form, read_text_format(fields.inside(*format, place)));
    if (form && into.sampling.grammar)
      return wrong(cat("both ", into.grammar_field, " and ", place), std::string(place),
                   "give one of them");
    if (form) {
      into.sampling.grammar = std::move(form->spec);
      into.grammar_field = place;
      into.strict_form = form->strict;
    }
  }
  return inner.finish();
}

// Template variables: the request's own, and the reasoning effort under the templates' name.
Result<void> read_variables(Fields& fields, json::Object& variables) {
  MOTLEY_TRY(const json::Object* const own, fields.object("chat_template_kwargs"));
  if (own != nullptr) variables = *own;
  MOTLEY_TRY(const json::Object* const reasoning, fields.object("reasoning"));
  if (reasoning == nullptr) return {};
  Fields inner = fields.inside(*reasoning, "reasoning");
  MOTLEY_TRY(auto effort, inner.string("effort"));
  inner.accept({"summary", "generate_summary", "context", "mode"});
  if (effort && !variables.contains("reasoning_effort"))
    variables.add("reasoning_effort", *std::move(effort));
  return inner.finish();
}

Result<void> check_metadata(Fields& fields) {
  MOTLEY_TRY(const json::Object* const metadata, fields.object("metadata"));
  if (metadata == nullptr) return {};
  for (const json::Member& member : metadata->members())
    MOTLEY_TRY_VOID(member.value.as_string(cat("metadata.", printable(member.key.substr(0, 100)))));
  return {};
}

// A prompt that is too long is refused in any case.
Result<void> check_truncation(Fields& fields) {
  MOTLEY_TRY(const auto truncation, fields.string("truncation"));
  if (truncation && *truncation != "auto" && *truncation != "disabled")
    return wrong(cat("unknown truncation ", quote(*truncation)), "truncation",
                 "use auto or disabled");
  return {};
}

// A float with its shortest decimal digits, not the exact value of its bits.
double as_written(float number) {
  std::string text;
  json::append_number(text, number);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// A member of a nested object; null if either is absent.
const json::Value* inside(const json::Object& body, std::string_view outer, std::string_view key) {
  const json::Value* const value = body.find(outer);
  const json::Object* const object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->find_set(key);
}

std::string repeat(const json::Object& body, const GenerationFields& fields, bool parallel,
                   ResponsesTools tools) {
  json::Object all;
  const auto given = [&](std::string_view key, const json::Value& otherwise) {
    const json::Value* const value = body.find_set(key);
    all.add(std::string(key), value == nullptr ? otherwise : *value);
  };
  given("instructions", {});
  all.add("max_output_tokens", fields.max_tokens ? json::Value(*fields.max_tokens) : json::Value());
  given("max_tool_calls", {});
  given("metadata", json::Object());
  all.add("model", fields.model);
  all.add("parallel_tool_calls", parallel);
  all.add("previous_response_id", {});
  given("prompt_cache_key", {});
  json::Object reasoning;
  for (const std::string_view key : {"effort", "summary"}) {
    const json::Value* const value = inside(body, "reasoning", key);
    reasoning.add(std::string(key), value == nullptr ? json::Value() : *value);
  }
  all.add("reasoning", std::move(reasoning));
  given("safety_identifier", {});
  all.add("service_tier", "default");
  all.add("store", false);
  given("temperature", as_written(fields.sampling.temperature));
  json::Object format{{"type", "text"}};
  const json::Value* const asked = inside(body, "text", "format");
  const json::Value* const verbosity = inside(body, "text", "verbosity");
  json::Object text{{"format", asked == nullptr ? json::Value(std::move(format)) : *asked},
                    {"verbosity", verbosity == nullptr ? json::Value("medium") : *verbosity}};
  all.add("text", std::move(text));
  all.add("tool_choice", std::move(tools.choice));
  all.add("tools", std::move(tools.tools));
  all.add("top_logprobs", fields.sampling.top_logprobs);
  given("top_p", as_written(fields.sampling.top_p));
  all.add("truncation", "disabled");
  given("user", {});
  const std::string object = json::write(all);
  return object.substr(1, object.size() - 2);
}

}  // namespace

Result<ResponsesRequest> read_responses_request(const json::Value& body,
                                                const ApiContext& context) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object, "", context.ignored());
  ResponsesRequest request;
  ChatCompletionRequest& chat = request.chat;
  MOTLEY_TRY_VOID(refuse_what_is_kept(fields));
  MOTLEY_TRY(chat.fields, read_generation_fields(fields, context));
  leave_token_lists(fields, chat.fields.tokens, chat.fields);
  MOTLEY_TRY_VOID(read_length(fields, chat.fields));
  MOTLEY_TRY_VOID(read_logprobs(fields, context.max_answer_logprobs(), chat.fields.sampling));
  MOTLEY_TRY_VOID(read_text(fields, chat.fields));
  MOTLEY_TRY_VOID(read_variables(fields, chat.inputs.kwargs));
  MOTLEY_TRY_VOID(check_metadata(fields));
  MOTLEY_TRY_VOID(check_truncation(fields));
  for (const std::string_view key : {"user", "prompt_cache_key", "safety_identifier"})
    MOTLEY_TRY_VOID(fields.string(key));
  MOTLEY_TRY_VOID(fields.integer("max_tool_calls", 0));
  fields.accept({"access_programs", "prompt_cache_options"});
  MOTLEY_TRY(request.conversation, read_responses_input(fields));
  chat.inputs.messages = std::exchange(request.conversation.messages, {});
  MOTLEY_TRY(ResponsesTools tools, read_responses_tools(fields, chat));
  // A form applies to content, and a forced call leaves none.
  if (chat.must_call()) chat.fields.grammar_field = "tools";
  chat.parameters_key = "parameters";
  MOTLEY_TRY_VOID(fields.finish());
  request.repeated = repeat(*object, chat.fields, chat.parallel_calls, std::move(tools));
  return request;
}

}  // namespace motley::server
