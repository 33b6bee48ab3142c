#include "server/api/generation_plan.h"

#include <ctime>
#include <utility>

#include "base/cat.h"
#include "server/api/chat_reply.h"
#include "server/api/completion_reply.h"
#include "server/api/forced_calls.h"
#include "server/http/message.h"
#include "server/output/call_reader.h"

namespace motley::server {
namespace {

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

ReplyHead head_for(std::string_view prefix, const GenerationFields& fields) {
  return {.id = cat(prefix, new_request_id()),
          .model = fields.model,
          .created = std::time(nullptr),
          .include_usage = fields.include_usage};
}

}  // namespace

GenerationPlanner::GenerationPlanner(const text::ModelText& text, Options options)
    : text_(text), options_(std::move(options)), format_(find_chat_format(text)) {}

Result<void> GenerationPlanner::check_length(std::size_t prompt_tokens,
                                             const GenerationFields& fields,
                                             std::string_view place) const {
  // Room for a token, where one is asked for.
  const std::int64_t answer = fields.max_tokens == 0 ? 0 : 1;
  if (static_cast<std::int64_t>(prompt_tokens) + answer <= options_.max_sequence_tokens) return {};
  // OpenAI's words begin so, and some clients look for them.
  return Error(ErrorCode::too_long,
               cat("This model's maximum context length is ", options_.max_sequence_tokens,
                   " tokens. The prompt has ", prompt_tokens,
                   answer == 0 ? "" : ", and the answer needs at least one"),
               std::string(place), "send a shorter prompt");
}

engine::Request GenerationPlanner::request_for(std::vector<std::int32_t> tokens,
                                               const GenerationFields& fields) const {
  const auto room = options_.max_sequence_tokens - static_cast<std::int64_t>(tokens.size());
  return {.tokens = std::move(tokens),
          .adapters = fields.adapters,
          .sampling = fields.sampling,
          .max_tokens = fields.max_tokens.value_or(room),
          .end_ids = text_.generation().end_tokens,
          .stop_ids = fields.stop_ids,
          .choices = fields.choices,
          .priority = fields.priority};
}

TextRules GenerationPlanner::rules_for(const GenerationFields& fields) const {
  TextRules rules{.tokenizer = &text_.tokenizer(),
                  .stop = fields.stop,
                  .include_stop = fields.include_stop,
                  .min_tokens = fields.sampling.min_tokens};
  rules.ends.insert(fields.stop_ids.begin(), fields.stop_ids.end());
  const auto& ends = text_.generation().end_tokens;
  if (!fields.sampling.ignore_eos) rules.ends.insert(ends.begin(), ends.end());
  return rules;
}

Result<GenerationPlan> GenerationPlanner::completion(const json::Value& body) const {
  const auto request = std::make_shared<CompletionRequest>();
  MOTLEY_TRY(*request, read_completion_request(body, context(), text_.tokenizer()));
  GenerationPlan plan{.choices = static_cast<std::size_t>(request->fields.choices),
                      .stream = request->fields.stream,
                      .rules = rules_for(request->fields),
                      .grammar_field = request->fields.grammar_field,
                      .source = request};
  for (std::size_t i = 0; i < request->prompts.size(); ++i) {
    const auto& tokens = request->prompts[i].tokens;
    MOTLEY_TRY_VOID(check_length(
        tokens.size(), request->fields,
        request->prompts.size() == 1 ? std::string("prompt") : cat("prompt[", i, "]")));
    engine::Request each = request_for(tokens, request->fields);
    each.prompt_logprobs = request->echo && request->fields.sampling.logprobs;
    plan.requests.push_back(std::move(each));
  }
  plan.reply = std::make_unique<CompletionReply>(head_for("cmpl-", request->fields), *request,
                                                 text_.tokenizer());
  return plan;
}

Result<GenerationPlan> GenerationPlanner::chat(const json::Value& body) const {
  const auto request = std::make_shared<ChatCompletionRequest>();
  MOTLEY_TRY(*request, read_chat_completion_request(body, context()));
  request->inputs.now = local_time();
  auto rendered = text_.chat(request->inputs, options_.special_in_said);
  if (!rendered.ok()) {
    // What the template refuses is wrong with the messages, wherever it says so.
    // So are limits of a rendering, which are not the model's.
    const ErrorCode code = rendered.error().code() == ErrorCode::too_long
                               ? ErrorCode::invalid_argument
                               : rendered.error().code();
    const bool wrong = http_status(code) < 500;
    const bool placed = rendered.error().where().starts_with("messages");
    return wrong && !placed ? Error(code, rendered.error().message(), "messages")
                            : std::move(rendered).error().as(code);
  }
  std::vector<std::int32_t> tokens = std::move(rendered->ids);
  const std::string& prompt = rendered->text.text;
  const bool constrained = request->fields.sampling.grammar.has_value();
  std::optional<ForcedCalls> forced;
  std::string opening;
  if (constrained) {
    opening = opening_of_content(format_, prompt);
  } else if (request->must_call()) {
    forced = force_calls(*request, format_, text_.tokenizer(), prompt);
    opening = forced->opening;
    request->fields.sampling.grammar = forced->grammar;
  } else if (auto strict = strict_calls(*request, format_, text_.tokenizer())) {
    request->fields.sampling.grammar = *std::move(strict);
    request->fields.grammar_field = "tools";
  }
  MOTLEY_TRY(const auto opened, text_.tokenizer().encode(opening, {.add_special_tokens = false}));
  tokens.insert(tokens.end(), opened.begin(), opened.end());
  if (tokens.empty())
    return Error(ErrorCode::invalid_argument, "a conversation without tokens", "messages",
                 "say something");
  MOTLEY_TRY_VOID(check_length(tokens.size(), request->fields, "messages"));

  GenerationPlan plan{.choices = static_cast<std::size_t>(request->fields.choices),
                      .stream = request->fields.stream,
                      .rules = rules_for(request->fields),
                      .grammar_field = request->fields.grammar_field,
                      .source = request};
  std::vector<std::unique_ptr<OutputParser>> parsers;
  const json::Value* const tools = request->inputs.tools ? &*request->inputs.tools : nullptr;
  for (std::size_t i = 0; i < plan.choices; ++i)
    parsers.push_back(forced        ? make_forced_parser(*forced, *request, format_)
                      : constrained ? make_plain_parser()
                                    : make_output_parser(format_, prompt, tools));
  // The first call is the last: its end ends the answer.
  if (tools != nullptr && !request->parallel_calls && format_.calls)
    plan.rules.stop.emplace_back(call_end);
  if (!constrained) {
    for (const std::string_view mark : format_.marks()) {
      if (const auto id = text_.tokenizer().id_of(mark)) plan.rules.visible.insert(*id);
    }
  }
  plan.requests.push_back(request_for(std::move(tokens), request->fields));
  plan.reply = std::make_unique<ChatReply>(head_for("chatcmpl-", request->fields), *request,
                                           text_.tokenizer(), std::move(parsers));
  return plan;
}

}  // namespace motley::server
