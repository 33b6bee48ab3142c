#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"
#include "server/api/generation_plan.h"

// Routes that convert text to tokens and tokens to text.
namespace motley::server {
namespace {

// For a text, regardless of the model's context.
constexpr auto max_tokens = static_cast<std::int64_t>(field_limits::tokenized.most);

constexpr std::array<std::string_view, 1> own_fields = {"return_token_strs"};

Error both_forms() {
  return {ErrorCode::invalid_argument, "both a prompt and messages", "messages",
          "give one of them"};
}

// A text may have more tokens than the model's context: only its own size is limited.
template <class T>
Result<T> of_any_length(Result<T> result) {
  if (result.ok() || result.error().code() != ErrorCode::too_long) return result;
  return Error(ErrorCode::invalid_argument, cat("a text of more than ", max_tokens, " tokens"),
               result.error().where(), "send it in pieces");
}

}  // namespace

ApiContext GenerationPlanner::tokenize_context(const Asked& asked,
                                               serving::Notices& notices) const {
  ApiContext context = this->context(asked, notices);
  context.bounds.max_sequence_tokens = std::max(context.bounds.max_sequence_tokens, max_tokens / 2);
  context.more_fields = own_fields;
  return context;
}

Result<TokenizePlan> GenerationPlanner::tokenize(const json::Value& body,
                                                 const Asked& asked) const {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  TokenizePlan plan;
  const ApiContext context = tokenize_context(asked, plan.notices);
  Fields fields(*object, "", context.ignored());
  MOTLEY_TRY(const auto strings, fields.boolean("return_token_strs"));
  plan.with_strings = strings.value_or(false);
  const json::Value* const prompt = fields.take("prompt");
  if (object->find_set("messages") != nullptr) {
    if (prompt != nullptr) return both_forms();
    MOTLEY_TRY(auto request, read_chat_completion_request(body, context));
    plan.model = std::move(request.fields.model);
    plan.adapters = request.fields.adapters;
    MOTLEY_TRY(plan.ids, of_any_length(prompts_.prompt(request, request.fields, context.bounds,
                                                       plan.notices)));
    // Truncates to the model's context, not to the limit here.
    if (request.fields.truncate == -1)
      serving::truncate_prompt(plan.ids, 0, request.fields, prompts_.bounds(asked.cancelled));
    return plan;
  }
  MOTLEY_TRY(GenerationFields read, read_generation_fields(fields, context));
  MOTLEY_TRY_VOID(fields.finish());
  plan.model = std::move(read.model);
  plan.adapters = std::move(read.adapters);
  if (prompt == nullptr)
    return Error(ErrorCode::invalid_argument, "nothing to tokenize", "prompt",
                 "give a prompt, or messages");
  MOTLEY_TRY(const std::string* const text, prompt->as_string("prompt"));
  auto ids =
      text_.tokenizer().encode(*text, {.add_special_tokens = read.add_special_tokens.value_or(true),
                                       .bounds = serving::encode_bounds(read, context.bounds)});
  if (!ids.ok() && ids.error().code() == ErrorCode::too_long)
    ids = Error(ErrorCode::too_long, ids.error().what(), "prompt");
  MOTLEY_TRY(plan.ids, of_any_length(std::move(ids)));
  serving::truncate_prompt(plan.ids, 0, read, prompts_.bounds(asked.cancelled));
  return plan;
}

Result<TokenizePlan> GenerationPlanner::detokenize(const json::Value& body,
                                                   const Asked& asked) const {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  TokenizePlan plan;
  const ApiContext context = tokenize_context(asked, plan.notices);
  Fields fields(*object, "", context.ignored());
  MOTLEY_TRY(GenerationFields read, read_generation_fields(fields, context));
  plan.model = std::move(read.model);
  plan.adapters = std::move(read.adapters);
  if (object->find_set("tokens") == nullptr)
    return Error(ErrorCode::invalid_argument, "no tokens", "tokens", "give a list of ids");
  MOTLEY_TRY(plan.ids, fields.token_ids("tokens", options_.vocabulary));
  // Shown by default, as in vLLM.
  plan.skip_special = object->find_set("skip_special_tokens") != nullptr && read.skip_special;
  MOTLEY_TRY_VOID(fields.finish());
  return plan;
}

}  // namespace motley::server
