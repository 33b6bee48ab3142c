#include "serving/prompts/planner.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/cat.h"
#include "grammar/check/check.h"
#include "serving/forms/call_ids.h"
#include "serving/prompts/path_redaction.h"
#include "serving/prompts/unenforced.h"

namespace motley::serving {
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

// The adapter whose template a conversation may have; empty: the base answers, or a mix does.
std::string adapter_of(const GenerationSettings& settings) {
  return settings.adapters.size() == 1 ? settings.adapters.front().name : std::string();
}

// What the template refuses is wrong with the messages, wherever it reports it. So are the limits
// of rendering, which are not the model's.
Error refused_by_template(const Error& refused) {
  Error error = without_server_paths(refused);
  const ErrorCode code =
      error.code() == ErrorCode::too_long ? ErrorCode::invalid_argument : error.code();
  const bool wrong = http_status(code) < 500;
  const bool placed = error.where().starts_with("messages") || error.where() == "chat_template";
  return wrong && !placed ? Error(code, error.message(), "messages") : std::move(error).as(code);
}

}  // namespace

Result<void> check_form(GenerationSettings& settings) {
  std::optional<grammar::Spec>& form = settings.sampling.grammar;
  if (!form) return {};
  if (Result<void> checked = grammar::check(*form); !checked.ok()) {
    const Error& error = checked.error();
    if (settings.grammar_field.empty()) return error;
    return Error(error.code(), error.what(), std::string(settings.grammar_field), error.fix());
  }
  form->checked = true;
  return {};
}

Planner::Planner(const text::ModelText& text, Options options)
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

PromptBounds Planner::bounds(const std::atomic<bool>* cancelled) const {
  return {.max_sequence_tokens = options_.max_sequence_tokens,
          .longest_token_bytes = longest_token_bytes_,
          .cancelled = cancelled};
}

engine::Request Planner::request_for(std::vector<std::int32_t> tokens,
                                     const GenerationSettings& settings) const {
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::int64_t room = options_.max_sequence_tokens - length;
  engine::SamplingParams sampling = settings.sampling;
  sampling.processed_logprobs = options_.processed_logprobs;
  return {.tokens = std::move(tokens),
          .adapters = settings.adapters,
          .sampling = std::move(sampling),
          .max_tokens = settings.max_tokens.value_or(room),
          .end_ids = text_.generation().end_tokens,
          .stop_ids = settings.stop_ids,
          .choices = settings.choices,
          .priority = settings.priority,
          .cache_salt = settings.cache_salt,
          .prompt_logprobs = settings.scores_prompt(),
          .prompt_first = settings.first_scored(length),
          .prompt_top = settings.prompt_top.value_or(0),
          .prompt_named = settings.prompt_named,
          .routed_experts_from = settings.routed_experts_from};
}

TextRules Planner::rules_for(const GenerationSettings& settings) const {
  TextRules rules{.tokenizer = &text_.tokenizer(),
                  .stop = settings.stop,
                  .include_stop = settings.include_stop,
                  .min_tokens = settings.sampling.min_tokens,
                  .skip_special = settings.skip_special,
                  .spaces_between_special = settings.spaces_between_special};
  rules.ends.insert(settings.stop_ids.begin(), settings.stop_ids.end());
  const auto& ends = text_.generation().end_tokens;
  if (!settings.sampling.ignore_eos) rules.ends.insert(ends.begin(), ends.end());
  return rules;
}

Result<text::MarkedText> Planner::write(text::ChatInputs inputs, const ChatRequest& request,
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

const ChatFormat& Planner::format_of(const GenerationSettings& settings) const {
  const auto own = adapter_formats_.find(adapter_of(settings));
  return own == adapter_formats_.end() ? format_ : own->second;
}

Result<Planner::Rendered> Planner::render(text::ChatInputs inputs, const ChatRequest& request,
                                          const GenerationSettings& settings,
                                          const PromptBounds& bounds) const {
  Rendered rendered;
  rendered.format = format_of(settings);
  inputs.adapter = adapter_of(settings);
  if (request.continue_final) {
    MOTLEY_TRY(rendered.open, OpenMessage::begin(inputs));
  }
  inputs.now = local_time();
  std::optional<text::ChatInputs> conversation;
  if (options_.keeps_states && inputs.add_generation_prompt) conversation = inputs;
  auto text = write(std::move(inputs), request, rendered.format);
  if (!text.ok()) return refused_by_template(text.error());
  rendered.format = format_for_prompt(rendered.format, text->text);
  if (rendered.open) MOTLEY_TRY_VOID(rendered.open->cut(*text, rendered.format.reasoning));
  MOTLEY_TRY_VOID(check_prompt_bytes(text->text.size(), settings, bounds, "messages"));
  auto ids = encode(*text, settings, bounds);
  if (!ids.ok() && ids.error().code() == ErrorCode::too_long)
    return prompt_too_long(bounds.max_sequence_tokens, ids.error().what(), "messages");
  if (!ids.ok()) return std::move(ids).error();
  rendered.text = *std::move(text);
  rendered.ids = *std::move(ids);
  if (conversation)
    rendered.conversation_tokens =
        count_conversation(*std::move(conversation), request, settings, bounds, rendered.ids);
  return rendered;
}

Result<std::vector<std::int32_t>> Planner::encode(const text::MarkedText& text,
                                                  const GenerationSettings& settings,
                                                  const PromptBounds& bounds) const {
  return text_.tokenizer().encode(
      text, {.add_special_tokens = settings.add_special_tokens.value_or(false),
             .special_in_untrusted = options_.special_in_untrusted,
             .bounds = encode_bounds(settings, bounds)});
}

std::int64_t Planner::count_conversation(text::ChatInputs inputs, const ChatRequest& request,
                                         const GenerationSettings& settings,
                                         const PromptBounds& bounds,
                                         std::span<const std::int32_t> prompt) const {
  inputs.add_generation_prompt = false;
  ChatFormat format = format_of(settings);
  const auto text = write(std::move(inputs), request, format);
  if (!text.ok()) return 0;
  const auto ids = encode(*text, settings, bounds);
  if (!ids.ok()) return 0;
  return std::ranges::mismatch(prompt, *ids).in1 - prompt.begin();
}

Result<std::string> Planner::constrain(ChatPrompt& prompt, const ChatRequest& request,
                                       GenerationSettings& settings, Notices& notices) const {
  const Rendered& rendered = prompt.rendered;
  const ChatFormat& format = rendered.format;
  const std::string& text = rendered.text.text;
  auto& grammar = settings.sampling.grammar;
  if (request.must_call()) {
    prompt.forced = force_calls(request, format, special_, text);
  } else {
    MOTLEY_TRY_VOID(note_unenforced(settings, notices));
    if (!rendered.open) {
      MOTLEY_TRY(prompt.forced, calls_or_form(request, settings, format, special_, text));
      if (prompt.forced) prompt.forced->grammar.any_whitespace = grammar->any_whitespace;
    }
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
    settings.grammar_field = "tools";
  }
  if (prompt.forced || settings.grammar_field == "tools")
    MOTLEY_TRY_VOID(note_unenforced_arguments(request, notices));
  else
    note_free_calls(request, notices);
  return opening;
}

Result<Planner::ChatPrompt> Planner::make_prompt(ChatRequest& request, GenerationSettings& settings,
                                                 const PromptBounds& bounds,
                                                 Notices& notices) const {
  text::ChatInputs inputs = std::exchange(request.inputs, {});
  request.inputs.tools = inputs.tools;
  request.calls_before = count_calls(inputs.messages);
  ChatPrompt prompt;
  MOTLEY_TRY(prompt.rendered, render(std::move(inputs), request, settings, bounds));
  MOTLEY_TRY(const std::string opening, constrain(prompt, request, settings, notices));
  MOTLEY_TRY(const auto opened, text_.tokenizer().encode(opening, {.add_special_tokens = false}));
  std::vector<std::int32_t>& tokens = prompt.rendered.ids;
  if (truncate_prompt(tokens, opened.size(), settings, bounds))
    prompt.rendered.conversation_tokens = 0;
  tokens.insert(tokens.end(), opened.begin(), opened.end());
  if (tokens.empty())
    return Error(ErrorCode::invalid_argument, "a conversation without tokens", "messages",
                 "say something");
  return prompt;
}

Result<std::vector<std::int32_t>> Planner::prompt(ChatRequest& request,
                                                  GenerationSettings& settings,
                                                  const PromptBounds& bounds,
                                                  Notices& notices) const {
  MOTLEY_TRY(ChatPrompt prompt, make_prompt(request, settings, bounds, notices));
  return std::move(prompt.rendered.ids);
}

std::unique_ptr<OutputParser> Planner::make_parser(const ChatPrompt& prompt,
                                                   const ChatRequest& request) const {
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

TextRules Planner::rules_of(const ChatPrompt& prompt, const ChatRequest& request,
                            const GenerationSettings& settings) const {
  const ChatFormat& format = prompt.rendered.format;
  TextRules rules = rules_for(settings);
  // The answer ends after the first call.
  if (request.inputs.tools && !request.parallel_calls && format.calls != nullptr) {
    const std::string_view end = format.calls->mark_after_call();
    if (!end.empty()) rules.stop.emplace_back(end);
  }
  if (prompt.constrained) return rules;
  const auto visible = format.visible_tokens(special_);
  rules.visible.insert(visible.begin(), visible.end());
  // Calls in an unknown form are passed to the client as written.
  if (request.inputs.tools && format.calls == nullptr) rules.skip_special = false;
  return rules;
}

Result<ChatPlan> Planner::chat(ChatRequest& request, GenerationSettings& settings,
                               const PromptBounds& bounds, Notices& notices) const {
  MOTLEY_TRY(ChatPrompt prompt, make_prompt(request, settings, bounds, notices));
  std::vector<std::int32_t>& tokens = prompt.rendered.ids;
  MOTLEY_TRY_VOID(check_prompt_length(tokens.size(), settings, bounds, "messages"));
  MOTLEY_TRY_VOID(check_named_tokens(tokens.size(), settings));
  MOTLEY_TRY_VOID(check_form(settings));
  ChatPlan plan;
  plan.rules = rules_of(prompt, request, settings);
  for (int i = 0; i < settings.choices; ++i) plan.parsers.push_back(make_parser(prompt, request));
  plan.request = request_for(std::move(tokens), settings);
  plan.request.conversation_tokens = prompt.rendered.conversation_tokens;
  return plan;
}

}  // namespace motley::serving
