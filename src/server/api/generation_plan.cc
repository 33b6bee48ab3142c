#include "server/api/generation_plan.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/cat.h"
#include "grammar/check/check.h"
#include "server/api/calls/forced_calls.h"
#include "server/api/calls/unenforced.h"
#include "server/api/chat/chat_reply.h"
#include "server/api/completions/completion_reply.h"
#include "server/api/messages/reply.h"
#include "server/api/messages/request.h"
#include "server/api/path_redaction.h"
#include "server/api/responses/reply.h"
#include "server/api/responses/request.h"
#include "server/http/message.h"
#include "server/output/call_ids.h"

namespace motley::server {
namespace {

// Rendering with a request's own template has lower limits than with the model's template.
constexpr text::RenderLimits request_template_limits{.steps = 5'000'000,
                                                     .depth = 400,
                                                     .output_bytes = std::size_t{16} << 20,
                                                     .memory_bytes = std::size_t{128} << 20};

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

// The number of calls in a conversation.
std::size_t count_calls(const json::Value& messages) {
  std::size_t calls = 0;
  for (const json::Value& message : *messages.if_array()) {
    const json::Value* const made = message.if_object()->find("tool_calls");
    if (made != nullptr && made->if_array() != nullptr) calls += made->if_array()->size();
  }
  return calls;
}

bool has_developer(const json::Value& messages) {
  return std::ranges::any_of(*messages.if_array(), [](const json::Value& message) {
    const json::Value* const role = message.if_object()->find("role");
    return role != nullptr && role->if_string() != nullptr && *role->if_string() == "developer";
  });
}

// Checks the required form of the output once for all prompts and choices. This thread is a
// worker's; engines check in the caller's, which serves connections.
Result<void> check_form(GenerationFields& fields) {
  std::optional<grammar::Spec>& form = fields.sampling.grammar;
  if (!form) return {};
  if (Result<void> checked = grammar::check(*form); !checked.ok()) {
    const Error& error = checked.error();
    if (fields.grammar_field.empty()) return error;
    return Error(error.code(), error.what(), std::string(fields.grammar_field), error.fix());
  }
  form->checked = true;
  return {};
}

ReplyHead head_for(std::string_view prefix, const GenerationFields& fields) {
  return {.id = cat(prefix, fields.request_id.empty() ? new_request_id() : fields.request_id),
          .model = fields.model,
          .created = std::time(nullptr),
          .include_usage = fields.include_usage,
          .continuous_usage = fields.continuous_usage};
}

// The adapter whose template a conversation may have; empty: the base answers, or a mix does.
std::string adapter_of(const GenerationFields& fields) {
  return fields.adapters.size() == 1 ? fields.adapters.front().name : std::string();
}

// A body in Anthropic's form has messages, and no field to continue the last one.
Error at_messages(const Error& error) {
  const bool other = error.where() == "continue_final_message";
  return other ? Error(error.code(), error.what(), "messages", error.fix()) : error;
}

}  // namespace

GenerationPlanner::GenerationPlanner(const text::ModelText& text, Options options)
    : text_(text),
      options_(std::move(options)),
      format_(find_chat_format(text, options_.forms)),
      special_(special_tokens(text.tokenizer())) {
  for (const std::string& adapter : text.adapters_with_templates())
    adapter_formats_[adapter] = find_chat_format(text, options_.forms, adapter);
  const text::Tokenizer& tokenizer = text.tokenizer();
  for (std::int32_t id = 0; id < tokenizer.size(); ++id)
    longest_token_bytes_ = std::max(longest_token_bytes_, tokenizer.bytes_of(id).size());
}

ApiContext GenerationPlanner::context(const Asked& asked, Notices& notices) const {
  return {.base = options_.base,
          .aliases = options_.aliases,
          .vocabulary = options_.vocabulary,
          .defaults = &text_.generation(),
          .max_sequence_tokens = options_.max_sequence_tokens,
          .longest_token_bytes = longest_token_bytes_,
          .tokenizer = &text_.tokenizer(),
          .asked = asked,
          .notices = &notices,
          .max_logprobs = options_.max_logprobs,
          .is_adapter = options_.is_adapter,
          .strict_fields = options_.strict_fields,
          .request_templates = options_.request_templates};
}

Result<void> GenerationPlanner::check_length(std::size_t prompt_tokens,
                                             const GenerationFields& fields,
                                             std::string_view place) const {
  // Leaves space for one token, if any is requested.
  const std::int64_t answer = fields.max_tokens == 0 ? 0 : 1;
  if (static_cast<std::int64_t>(prompt_tokens) + answer <= options_.max_sequence_tokens) return {};
  return prompt_too_long(
      options_.max_sequence_tokens,
      cat(prompt_tokens, answer == 0 ? "" : ", and the answer needs at least one"), place);
}

engine::Request GenerationPlanner::request_for(std::vector<std::int32_t> tokens,
                                               const GenerationFields& fields) const {
  const auto room = options_.max_sequence_tokens - static_cast<std::int64_t>(tokens.size());
  engine::SamplingParams sampling = fields.sampling;
  sampling.processed_logprobs = options_.processed_logprobs;
  return {.tokens = std::move(tokens),
          .adapters = fields.adapters,
          .sampling = std::move(sampling),
          .max_tokens = fields.max_tokens.value_or(room),
          .end_ids = text_.generation().end_tokens,
          .stop_ids = fields.stop_ids,
          .choices = fields.choices,
          .priority = fields.priority,
          .cache_salt = fields.cache_salt,
          .prompt_logprobs = fields.tokens.prompt_top.has_value(),
          .prompt_top = fields.tokens.prompt_top.value_or(0)};
}

TextRules GenerationPlanner::rules_for(const GenerationFields& fields) const {
  TextRules rules{.tokenizer = &text_.tokenizer(),
                  .stop = fields.stop,
                  .include_stop = fields.include_stop,
                  .min_tokens = fields.sampling.min_tokens,
                  .skip_special = fields.tokens.skip_special,
                  .spaces_between_special = fields.tokens.spaces_between_special};
  rules.ends.insert(fields.stop_ids.begin(), fields.stop_ids.end());
  const auto& ends = text_.generation().end_tokens;
  if (!fields.sampling.ignore_eos) rules.ends.insert(ends.begin(), ends.end());
  return rules;
}

Result<GenerationPlan> GenerationPlanner::completion(const json::Value& body,
                                                     const Asked& asked) const {
  const auto request = std::make_shared<CompletionRequest>();
  Notices notices;
  MOTLEY_TRY(*request, read_completion_request(body, context(asked, notices), text_.tokenizer()));
  MOTLEY_TRY_VOID(note_unenforced(request->fields, notices));
  GenerationPlan plan{.model = request->fields.model,
                      .choices = static_cast<std::size_t>(request->fields.choices),
                      .stream = request->fields.stream,
                      .rules = rules_for(request->fields),
                      .grammar_field = request->fields.grammar_field,
                      .source = request,
                      .notices = std::move(notices)};
  RequestSize size{.prompts = request->prompts.size(), .echo = request->echo};
  for (std::size_t i = 0; i < request->prompts.size(); ++i) {
    const CompletionRequest::Prompt& prompt = request->prompts[i];
    MOTLEY_TRY_VOID(check_length(
        prompt.tokens.size(), request->fields,
        request->prompts.size() == 1 ? std::string("prompt") : cat("prompt[", i, "]")));
    size.prompt_tokens += prompt.tokens.size();
    size.prompt_bytes += prompt.text.size();
    const std::int64_t used = static_cast<std::int64_t>(prompt.tokens.size());
    size.room_tokens = std::max(size.room_tokens, options_.max_sequence_tokens - used);
  }
  plan.charge = charge_for(request->fields, size);
  // Checked first, because each of the engine's requests copies what all prompts share, such as a
  // grammar.
  if (!check_charge(plan.charge, options_.limits).ok()) return plan;
  MOTLEY_TRY_VOID(check_form(request->fields));
  for (const CompletionRequest::Prompt& prompt : request->prompts) {
    engine::Request each = request_for(prompt.tokens, request->fields);
    if (request->echo && request->fields.sampling.logprobs) {
      each.prompt_logprobs = true;
      each.prompt_top = std::max(each.prompt_top, each.sampling.top_logprobs);
    }
    plan.requests.push_back(std::move(each));
  }
  plan.reply = std::make_unique<CompletionReply>(head_for("cmpl-", request->fields), *request,
                                                 text_.tokenizer());
  return plan;
}

Result<text::MarkedText> GenerationPlanner::write(text::ChatInputs inputs,
                                                  const ChatCompletionRequest& request,
                                                  ChatFormat& format) const {
  const auto adapt = [&] {
    if (format.lacks_developer && has_developer(inputs.messages))
      inputs.messages = developer_as_system(inputs.messages);
  };
  if (!request.chat_template) {
    adapt();
    return text_.render(std::move(inputs));
  }
  auto own = text::ChatTemplate::compile(*request.chat_template, "chat_template");
  if (!own.ok()) return Error(ErrorCode::invalid_argument, own.error().message(), "chat_template");
  format = find_chat_format(text_, *own);
  adapt();
  return text_.render(std::move(inputs), *own, request_template_limits);
}

const ChatFormat& GenerationPlanner::format_of(const GenerationFields& fields) const {
  const auto own = adapter_formats_.find(adapter_of(fields));
  return own == adapter_formats_.end() ? format_ : own->second;
}

Result<GenerationPlanner::Rendered> GenerationPlanner::render(text::ChatInputs inputs,
                                                              const ChatCompletionRequest& request,
                                                              const ApiContext& context) const {
  Rendered rendered{.format = format_of(request.fields)};
  inputs.adapter = adapter_of(request.fields);
  if (request.continue_final) {
    MOTLEY_TRY(rendered.open, OpenMessage::begin(inputs));
  }
  inputs.now = local_time();
  std::optional<text::ChatInputs> conversation;
  if (options_.keeps_states && inputs.add_generation_prompt) conversation = inputs;
  auto text = write(std::move(inputs), request, rendered.format);
  if (!text.ok()) {
    text = without_server_paths(text.error());
    // What the template refuses is wrong with the messages, wherever it reports it. So are the
    // limits of rendering, which are not the model's.
    const ErrorCode code = text.error().code() == ErrorCode::too_long ? ErrorCode::invalid_argument
                                                                      : text.error().code();
    const bool wrong = http_status(code) < 500;
    const bool placed =
        text.error().where().starts_with("messages") || text.error().where() == "chat_template";
    return wrong && !placed ? Error(code, text.error().message(), "messages")
                            : std::move(text).error().as(code);
  }
  rendered.format = format_for_prompt(rendered.format, text->text);
  if (rendered.open) MOTLEY_TRY_VOID(rendered.open->cut(*text, rendered.format.reasoning));
  const GenerationFields& fields = request.fields;
  MOTLEY_TRY_VOID(check_prompt_bytes(text->text.size(), fields, context, "messages"));
  auto ids = encode(*text, fields, context);
  if (!ids.ok() && ids.error().code() == ErrorCode::too_long)
    return prompt_too_long(context.max_sequence_tokens, ids.error().what(), "messages");
  if (!ids.ok()) return std::move(ids).error();
  rendered.text = *std::move(text);
  rendered.ids = *std::move(ids);
  if (conversation)
    rendered.conversation_tokens =
        count_conversation(*std::move(conversation), request, context, rendered.ids);
  return rendered;
}

Result<std::vector<std::int32_t>> GenerationPlanner::encode(const text::MarkedText& text,
                                                            const GenerationFields& fields,
                                                            const ApiContext& context) const {
  return text_.tokenizer().encode(text,
                                  {.add_special_tokens = fields.add_special_tokens.value_or(false),
                                   .special_in_untrusted = options_.special_in_untrusted,
                                   .bounds = encode_bounds(fields, context)});
}

std::int64_t GenerationPlanner::count_conversation(text::ChatInputs inputs,
                                                   const ChatCompletionRequest& request,
                                                   const ApiContext& context,
                                                   std::span<const std::int32_t> prompt) const {
  inputs.add_generation_prompt = false;
  ChatFormat format = format_of(request.fields);
  const auto text = write(std::move(inputs), request, format);
  if (!text.ok()) return 0;
  const auto ids = encode(*text, request.fields, context);
  if (!ids.ok()) return 0;
  return std::ranges::mismatch(prompt, *ids).in1 - prompt.begin();
}

Result<GenerationPlanner::ChatPrompt> GenerationPlanner::make_prompt(
    ChatCompletionRequest& request, const ApiContext& context) const {
  text::ChatInputs inputs = std::exchange(request.inputs, {});
  request.inputs.tools = inputs.tools;
  request.calls_before = count_calls(inputs.messages);
  ChatPrompt prompt;
  MOTLEY_TRY(prompt.rendered, render(std::move(inputs), request, context));
  const Rendered& rendered = prompt.rendered;
  const ChatFormat& format = rendered.format;
  const std::string& text = rendered.text.text;
  auto& grammar = request.fields.sampling.grammar;
  if (!request.must_call()) MOTLEY_TRY_VOID(note_unenforced(request.fields, *context.notices));
  if (request.must_call()) {
    prompt.forced = force_calls(request, format, special_, text);
  } else if (!rendered.open) {
    MOTLEY_TRY(prompt.forced, calls_or_form(request, format, special_, text));
    if (prompt.forced) prompt.forced->grammar.any_whitespace = grammar->any_whitespace;
  }
  prompt.constrained = !prompt.forced && grammar;
  std::string opening;
  if (prompt.forced) {
    opening = prompt.forced->opening;
    grammar = prompt.forced->grammar;
  } else if (prompt.constrained) {
    opening =
        rendered.open ? rendered.open->opening_of_content() : opening_of_content(format, text);
  } else if (auto strict = strict_calls(request, format, special_)) {
    grammar = *std::move(strict);
    request.fields.grammar_field = "tools";
  }
  if (prompt.forced || request.fields.grammar_field == "tools")
    MOTLEY_TRY_VOID(note_unenforced_arguments(request, *context.notices));
  else
    note_free_calls(request, *context.notices);
  MOTLEY_TRY(const auto opened, text_.tokenizer().encode(opening, {.add_special_tokens = false}));
  std::vector<std::int32_t>& tokens = prompt.rendered.ids;
  const std::size_t whole = tokens.size();
  truncate_prompt(tokens, opened.size(), request.fields, context);
  if (tokens.size() < whole) prompt.rendered.conversation_tokens = 0;
  tokens.insert(tokens.end(), opened.begin(), opened.end());
  if (tokens.empty())
    return Error(ErrorCode::invalid_argument, "a conversation without tokens", "messages",
                 "say something");
  return prompt;
}

std::unique_ptr<OutputParser> GenerationPlanner::make_parser(
    const ChatPrompt& prompt, const ChatCompletionRequest& request) const {
  const Rendered& rendered = prompt.rendered;
  const ChatFormat& format = rendered.format;
  if (prompt.constrained) return make_plain_parser();
  const AnswerParts parts{.tools = request.inputs.tools ? &*request.inputs.tools : nullptr,
                          .one_call = !request.parallel_calls};
  std::unique_ptr<OutputParser> parser;
  if (prompt.forced)
    parser = make_forced_parser(*prompt.forced, request, format);
  else if (rendered.open)
    parser = make_continuing_parser(format, rendered.open->in_reasoning(),
                                    rendered.open->is_blank(), parts);
  else
    parser = make_output_parser(format, rendered.text.text, parts);
  if (format.calls == nullptr || format.calls->ids == CallIds::any) return parser;
  return std::make_unique<CallIdParser>(std::move(parser), format.calls->ids, request.calls_before);
}

Result<GenerationPlanner::ChatPlan> GenerationPlanner::plan_chat(ChatCompletionRequest& request,
                                                                 const ApiContext& context) const {
  MOTLEY_TRY(ChatPrompt prompt, make_prompt(request, context));
  const ChatFormat& format = prompt.rendered.format;
  std::vector<std::int32_t>& tokens = prompt.rendered.ids;
  MOTLEY_TRY_VOID(check_length(tokens.size(), request.fields, "messages"));

  GenerationPlan plan{.model = request.fields.model,
                      .choices = static_cast<std::size_t>(request.fields.choices),
                      .stream = request.fields.stream,
                      .rules = rules_for(request.fields),
                      .grammar_field = request.fields.grammar_field};
  std::vector<std::unique_ptr<OutputParser>> parsers;
  for (std::size_t i = 0; i < plan.choices; ++i) parsers.push_back(make_parser(prompt, request));
  // The answer ends after the first call.
  const json::Value* const tools = request.inputs.tools ? &*request.inputs.tools : nullptr;
  if (tools != nullptr && !request.parallel_calls && format.calls != nullptr) {
    const std::string_view end = format.calls->mark_behind_call();
    if (!end.empty()) plan.rules.stop.emplace_back(end);
  }
  if (!prompt.constrained) {
    const auto visible = format.visible_tokens(special_);
    plan.rules.visible.insert(visible.begin(), visible.end());
    // Calls in an unknown form are passed to the client as written.
    if (tools != nullptr && format.calls == nullptr) plan.rules.skip_special = false;
  }
  const std::int64_t used = static_cast<std::int64_t>(tokens.size());
  const RequestSize size{.prompt_tokens = tokens.size(),
                         .prompt_bytes = request.echoed.size(),
                         .tools_bytes = tools == nullptr ? 0 : json::write(*tools).size(),
                         .room_tokens = options_.max_sequence_tokens - used,
                         .echo = !request.echoed.empty(),
                         .chat = true};
  plan.charge = charge_for(request.fields, size);
  MOTLEY_TRY_VOID(check_form(request.fields));
  plan.requests.push_back(request_for(std::move(tokens), request.fields));
  plan.requests.back().conversation_tokens = prompt.rendered.conversation_tokens;
  return ChatPlan{.plan = std::move(plan), .parsers = std::move(parsers), .size = size};
}

Result<GenerationPlan> GenerationPlanner::chat(const json::Value& body, const Asked& asked) const {
  const auto request = std::make_shared<ChatCompletionRequest>();
  Notices notices;
  const ApiContext context = this->context(asked, notices);
  MOTLEY_TRY(*request, read_chat_completion_request(body, context));
  MOTLEY_TRY(ChatPlan chat, plan_chat(*request, context));
  GenerationPlan plan = std::move(chat.plan);
  plan.notices = std::move(notices);
  const TokenFields& tokens = request->fields.tokens;
  if (tokens.return_ids || tokens.prompt_top) request->prompt_tokens = plan.requests[0].tokens;
  plan.source = request;
  ReplyHead head = head_for("chatcmpl-", request->fields);
  head.prompt_tokens = static_cast<std::int64_t>(plan.requests.front().tokens.size());
  plan.reply = std::make_unique<ChatReply>(std::move(head), *request, text_.tokenizer(),
                                           std::move(chat.parsers));
  return plan;
}

Result<GenerationPlan> GenerationPlanner::responses(const json::Value& body,
                                                    const Asked& asked) const {
  const auto request = std::make_shared<ResponsesRequest>();
  Notices notices;
  const ApiContext context = this->context(asked, notices);
  MOTLEY_TRY(*request, read_responses_request(body, context));
  auto chat = plan_chat(request->chat, context);
  if (!chat.ok()) return request->conversation.at_input(chat.error());
  chat->size.response = true;
  chat->size.repeated_bytes = request->repeated.size();
  GenerationPlan plan = std::move(chat->plan);
  plan.charge = charge_for(request->chat.fields, chat->size);
  plan.notices = std::move(notices);
  plan.source = request;
  plan.reply = std::make_unique<ResponsesReply>(*request, text_.tokenizer(),
                                                std::move(chat->parsers.front()));
  return plan;
}

Result<GenerationPlan> GenerationPlanner::messages(const json::Value& body,
                                                   const Asked& asked) const {
  const auto request = std::make_shared<MessagesRequest>();
  Notices notices;
  const ApiContext context = this->context(asked, notices);
  MOTLEY_TRY(*request, read_messages_request(body, context, MessagesUse::answer));
  auto planned = plan_chat(request->chat, context);
  if (!planned.ok()) return at_messages(planned.error());
  ChatPlan& chat = *planned;
  GenerationPlan plan = std::move(chat.plan);
  plan.notices = std::move(notices);
  plan.source = request;
  plan.reply = std::make_unique<MessagesReply>(cat("msg_", new_request_id()), *request,
                                               std::move(chat.parsers.front()));
  return plan;
}

Result<TokenizePlan> GenerationPlanner::count_tokens(const json::Value& body,
                                                     const Asked& asked) const {
  TokenizePlan plan;
  const ApiContext context = this->context(asked, plan.notices);
  MOTLEY_TRY(MessagesRequest request, read_messages_request(body, context, MessagesUse::count));
  plan.model = request.chat.fields.model;
  plan.adapters = request.chat.fields.adapters;
  auto prompt = make_prompt(request.chat, context);
  if (!prompt.ok()) return at_messages(prompt.error());
  plan.ids = std::move(prompt->rendered.ids);
  return plan;
}

}  // namespace motley::server
