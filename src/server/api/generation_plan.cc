#include "server/api/generation_plan.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/cat.h"
#include "base/system/random_id.h"
#include "server/api/chat/chat_reply.h"
#include "server/api/completions/completion_reply.h"
#include "server/api/messages/reply.h"
#include "server/api/messages/request.h"
#include "server/api/responses/reply.h"
#include "server/api/responses/request.h"
#include "server/api/tokens/generate_reply.h"
#include "server/http/messages/message.h"
#include "serving/prompts/unenforced.h"

namespace motley::server {
namespace {

ReplyHead head_for(std::string_view prefix, const GenerationFields& fields) {
  return {.id = cat(prefix, fields.request_id.empty() ? random_id() : fields.request_id),
          .model = fields.model,
          .created = std::time(nullptr),
          .include_usage = fields.include_usage,
          .continuous_usage = fields.continuous_usage};
}

// A body in Anthropic's form has messages, and no field to continue the last one.
Error at_messages(const Error& error) {
  const bool other = error.where() == "continue_final_message";
  return other ? Error(error.code(), error.what(), "messages", error.fix()) : error;
}

std::vector<engine::Request> one(engine::Request request) {
  std::vector<engine::Request> requests;
  requests.push_back(std::move(request));
  return requests;
}

}  // namespace

GenerationPlanner::GenerationPlanner(const text::ModelText& text, Options options)
    : text_(text), options_(std::move(options)), prompts_(text, options_.prompts) {}

ApiContext GenerationPlanner::context(const Asked& asked, serving::Notices& notices) const {
  return {.base = options_.base,
          .aliases = options_.aliases,
          .vocabulary = options_.vocabulary,
          .defaults = &text_.generation(),
          .bounds = prompts_.bounds(asked.cancelled),
          .tokenizer = &text_.tokenizer(),
          .asked = asked,
          .notices = &notices,
          .max_logprobs = options_.max_logprobs,
          .is_adapter = options_.is_adapter,
          .default_adapter = options_.default_adapter ? options_.default_adapter() : std::string(),
          .strict_fields = options_.strict_fields,
          .request_templates = options_.request_templates,
          .routed_experts = options_.routed_experts};
}

GenerationPlan GenerationPlanner::make_plan(
    const Asked& asked, const GenerationFields& fields, Parts parts,
    FunctionRef<std::unique_ptr<Reply>()> make_reply) const {
  for (engine::Request& each : parts.requests) {
    each.client = asked.client;
    each.client_weight = asked.weight;
    // Neither an address nor a holder's name has a line break.
    if (options_.private_prefixes) each.cache_salt = cat(asked.client, "\n", each.cache_salt);
  }
  GenerationPlan plan{.requests = std::move(parts.requests),
                      .model = fields.model,
                      .request_id = fields.request_id,
                      .choices = static_cast<std::size_t>(fields.choices),
                      .stream = fields.stream,
                      .rules = std::move(parts.rules),
                      .grammar_field = fields.grammar_field,
                      .charge = std::move(parts.charge),
                      .limits = options_.limits,
                      .notices = std::move(parts.notices),
                      .write_error = asked.write_error};
  if (!plan.requests.empty()) plan.reply = make_reply();
  return plan;
}

Result<GenerationPlan> GenerationPlanner::completion(const json::Value& body,
                                                     const Asked& asked) const {
  Parts parts;
  const ApiContext context = this->context(asked, parts.notices);
  MOTLEY_TRY(CompletionRequest request, read_completion_request(body, context, text_.tokenizer()));
  MOTLEY_TRY_VOID(serving::note_unenforced(request.fields, parts.notices));
  RequestSize size{.prompts = request.prompts.size(), .echo = request.echo};
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    const CompletionRequest::Prompt& prompt = request.prompts[i];
    MOTLEY_TRY_VOID(serving::check_prompt_length(
        prompt.tokens.size(), request.fields, context.bounds,
        request.prompts.size() == 1 ? std::string("prompt") : cat("prompt[", i, "]")));
    MOTLEY_TRY_VOID(serving::check_named_tokens(prompt.tokens.size(), request.fields));
    size.prompt_tokens += prompt.tokens.size();
    size.prompt_bytes += prompt.text.size();
    size.room_tokens =
        std::max(size.room_tokens, context.bounds.max_sequence_tokens - std::ssize(prompt.tokens));
  }
  parts.rules = prompts_.rules_for(request.fields);
  parts.charge = charge_for(request.fields, size);
  const auto reply = [&]() -> std::unique_ptr<Reply> {
    ReplyHead head = head_for("cmpl-", request.fields);
    return std::make_unique<CompletionReply>(std::move(head), std::move(request),
                                             text_.tokenizer());
  };
  // Checked first, because each of the engine's requests copies what all prompts share, such as a
  // grammar.
  if (!check_charge(parts.charge, options_.limits).ok())
    return make_plan(asked, request.fields, std::move(parts), reply);
  MOTLEY_TRY_VOID(serving::check_form(request.fields));
  for (const CompletionRequest::Prompt& prompt : request.prompts) {
    engine::Request each = prompts_.request_for(prompt.tokens, request.fields);
    if (request.echo && request.fields.sampling.logprobs) {
      each.prompt_logprobs = true;
      each.prompt_top = std::max(each.prompt_top, each.sampling.top_logprobs);
    }
    parts.requests.push_back(std::move(each));
  }
  return make_plan(asked, request.fields, std::move(parts), reply);
}

RequestSize GenerationPlanner::size_of(const ChatCompletionRequest& request,
                                       const serving::ChatPlan& chat) const {
  const std::size_t used = chat.request.tokens.size();
  return {.prompt_tokens = used,
          .prompt_bytes = request.echoed.size(),
          .tools_bytes = request.inputs.tools ? json::write(*request.inputs.tools).size() : 0,
          .room_tokens = options_.prompts.max_sequence_tokens - static_cast<std::int64_t>(used),
          .echo = !request.echoed.empty(),
          .chat = true};
}

Result<GenerationPlan> GenerationPlanner::chat(const json::Value& body, const Asked& asked) const {
  Parts parts;
  const ApiContext context = this->context(asked, parts.notices);
  MOTLEY_TRY(ChatCompletionRequest request, read_chat_completion_request(body, context));
  MOTLEY_TRY(serving::ChatPlan chat,
             prompts_.chat(request, request.fields, context.bounds, parts.notices));
  parts.charge = charge_for(request.fields, size_of(request, chat));
  if (request.fields.tokens.return_ids || request.fields.prompt_top)
    request.prompt_tokens = chat.request.tokens;
  ReplyHead head = head_for("chatcmpl-", request.fields);
  head.prompt_tokens = std::ssize(chat.request.tokens);
  parts.requests = one(std::move(chat.request));
  parts.rules = std::move(chat.rules);
  return make_plan(asked, request.fields, std::move(parts), [&]() -> std::unique_ptr<Reply> {
    return std::make_unique<ChatReply>(std::move(head), std::move(request), text_.tokenizer(),
                                       std::move(chat.parsers));
  });
}

Result<GenerationPlan> GenerationPlanner::responses(const json::Value& body,
                                                    const Asked& asked) const {
  Parts parts;
  const ApiContext context = this->context(asked, parts.notices);
  MOTLEY_TRY(ResponsesRequest request, read_responses_request(body, context));
  auto chat = prompts_.chat(request.chat, request.chat.fields, context.bounds, parts.notices);
  if (!chat.ok()) return request.conversation.at_input(chat.error());
  RequestSize size = size_of(request.chat, *chat);
  size.response = true;
  size.repeated_bytes = request.repeated.size();
  parts.charge = charge_for(request.chat.fields, size);
  parts.requests = one(std::move(chat->request));
  parts.rules = std::move(chat->rules);
  return make_plan(asked, request.chat.fields, std::move(parts), [&]() -> std::unique_ptr<Reply> {
    return std::make_unique<ResponsesReply>(std::move(request), text_.tokenizer(),
                                            std::move(chat->parsers.front()));
  });
}

Result<GenerationPlan> GenerationPlanner::messages(const json::Value& body,
                                                   const Asked& asked) const {
  Parts parts;
  const ApiContext context = this->context(asked, parts.notices);
  MOTLEY_TRY(MessagesRequest request, read_messages_request(body, context, MessagesUse::answer));
  auto chat = prompts_.chat(request.chat, request.chat.fields, context.bounds, parts.notices);
  if (!chat.ok()) return at_messages(chat.error());
  parts.charge = charge_for(request.chat.fields, size_of(request.chat, *chat));
  parts.requests = one(std::move(chat->request));
  parts.rules = std::move(chat->rules);
  return make_plan(asked, request.chat.fields, std::move(parts), [&]() -> std::unique_ptr<Reply> {
    return std::make_unique<MessagesReply>(cat("msg_", random_id()), std::move(request),
                                           std::move(chat->parsers.front()));
  });
}

Result<GenerationPlan> GenerationPlanner::tokens(const json::Value& body,
                                                 const Asked& asked) const {
  Parts parts;
  const ApiContext context = this->context(asked, parts.notices);
  MOTLEY_TRY(GenerateRequest request, read_generate_request(body, context));
  MOTLEY_TRY_VOID(serving::note_unenforced(request.fields, parts.notices));
  MOTLEY_TRY_VOID(serving::check_prompt_length(request.tokens.size(), request.fields,
                                               context.bounds, "token_ids"));
  MOTLEY_TRY_VOID(serving::check_named_tokens(request.tokens.size(), request.fields));
  parts.rules = prompts_.rules_for(request.fields);
  parts.charge = charge_for(request.fields, {.prompt_tokens = request.tokens.size(),
                                             .room_tokens = context.bounds.max_sequence_tokens -
                                                            std::ssize(request.tokens),
                                             .numbers = true});
  const auto reply = [&]() -> std::unique_ptr<Reply> {
    ReplyHead head = head_for("generate-tokens-", request.fields);
    return std::make_unique<GenerateReply>(std::move(head), std::move(request), text_.tokenizer());
  };
  if (!check_charge(parts.charge, options_.limits).ok())
    return make_plan(asked, request.fields, std::move(parts), reply);
  MOTLEY_TRY_VOID(serving::check_form(request.fields));
  parts.requests = one(prompts_.request_for(request.tokens, request.fields));
  return make_plan(asked, request.fields, std::move(parts), reply);
}

Result<TokenizePlan> GenerationPlanner::count_tokens(const json::Value& body,
                                                     const Asked& asked) const {
  TokenizePlan plan;
  const ApiContext context = this->context(asked, plan.notices);
  MOTLEY_TRY(MessagesRequest request, read_messages_request(body, context, MessagesUse::count));
  plan.model = request.chat.fields.model;
  plan.adapters = request.chat.fields.adapters;
  auto ids = prompts_.prompt(request.chat, request.chat.fields, context.bounds, plan.notices);
  if (!ids.ok()) return at_messages(ids.error());
  plan.ids = *std::move(ids);
  return plan;
}

}  // namespace motley::server
