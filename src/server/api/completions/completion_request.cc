#include "server/api/completions/completion_request.h"

#include <algorithm>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/routed_fields.h"

namespace motley::server {
namespace {

using Prompt = CompletionRequest::Prompt;

constexpr std::int64_t default_max_tokens = 16;

class PromptReader {
 public:
  PromptReader(const text::Tokenizer& tokenizer, const ApiContext& context,
               const GenerationFields& fields, bool echo)
      : tokenizer_(tokenizer), context_(context), fields_(fields), echo_(echo) {}

  Result<std::vector<Prompt>> read(const json::Value& value) const {
    if (value.if_string() != nullptr) return one(from_text(value, "prompt"));
    MOTLEY_TRY(const json::Array* const list, value.as_array("prompt"));
    if (list->empty())
      return Error(ErrorCode::invalid_argument, "an empty list", "prompt", "give a prompt");
    if (list->front().if_string() == nullptr && list->front().if_array() == nullptr)
      return one(from_ids(*list, "prompt"));
    if (list->size() > field_limits::prompts.most)
      return Error(ErrorCode::invalid_argument, cat(list->size(), " prompts"), "prompt",
                   cat("give at most ", field_limits::prompts.most));
    std::vector<Prompt> prompts;
    std::size_t all_tokens = 0;
    const bool texts = list->front().if_string() != nullptr;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string place = cat("prompt[", i, "]");
      if (texts) {
        MOTLEY_TRY(Prompt prompt, from_text((*list)[i], place));
        prompts.push_back(std::move(prompt));
      } else {
        MOTLEY_TRY(const json::Array* const ids, (*list)[i].as_array(place));
        MOTLEY_TRY(Prompt prompt, from_ids(*ids, place));
        prompts.push_back(std::move(prompt));
      }
      all_tokens += prompts.back().tokens.size();
      if (all_tokens > field_limits::prompt_tokens.most)
        return Error(
            ErrorCode::invalid_argument,
            cat("prompts of more than ", field_limits::prompt_tokens.most, " tokens together"),
            "prompt", "send them in several requests");
    }
    return prompts;
  }

 private:
  static Result<std::vector<Prompt>> one(Result<Prompt> prompt) {
    if (!prompt.ok()) return std::move(prompt).error();
    std::vector<Prompt> list;
    list.push_back(*std::move(prompt));
    return list;
  }

  static Error empty(std::string_view place) {
    return {ErrorCode::invalid_argument, "a prompt without tokens", std::string(place),
            "give at least one"};
  }

  Result<Prompt> from_text(const json::Value& value, std::string_view place) const {
    MOTLEY_TRY(const std::string* const text, value.as_string(place));
    MOTLEY_TRY_VOID(serving::check_prompt_bytes(text->size(), fields_, context_.bounds, place));
    Prompt prompt;
    auto tokens =
        tokenizer_.encode(*text, {.add_special_tokens = fields_.add_special_tokens.value_or(true),
                                  .bounds = serving::encode_bounds(fields_, context_.bounds)});
    if (!tokens.ok() && tokens.error().code() == ErrorCode::too_long)
      return serving::prompt_too_long(context_.bounds.max_sequence_tokens, tokens.error().what(),
                                      place);
    MOTLEY_TRY(prompt.tokens, std::move(tokens));
    if (prompt.tokens.empty()) return empty(place);
    prompt.decoded = serving::truncate_prompt(prompt.tokens, 0, fields_, context_.bounds);
    if (echo_) prompt.text = prompt.decoded ? tokenizer_.decode(prompt.tokens, true) : *text;
    return prompt;
  }

  Result<Prompt> from_ids(const json::Array& ids, std::string_view place) const {
    if (ids.empty()) return empty(place);
    Prompt prompt;
    prompt.decoded = true;
    prompt.tokens.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      MOTLEY_TRY(const std::int64_t id,
                 read_integer(ids[i], cat(place, "[", i, "]"), 0, context_.vocabulary - 1));
      prompt.tokens.push_back(static_cast<std::int32_t>(id));
    }
    serving::truncate_prompt(prompt.tokens, 0, fields_, context_.bounds);
    if (echo_) prompt.text = tokenizer_.decode(prompt.tokens, true);
    return prompt;
  }

  const text::Tokenizer& tokenizer_;
  const ApiContext& context_;
  const GenerationFields& fields_;
  bool echo_;
};

Result<void> refuse_suffix(Fields& fields) {
  MOTLEY_TRY(const auto suffix, fields.string("suffix"));
  if (suffix && !suffix->empty())
    return Error(ErrorCode::unsupported, "text before a suffix is not something models here write",
                 "suffix", "leave it out");
  return {};
}

}  // namespace

Result<CompletionRequest> read_completion_request(const json::Value& body,
                                                  const ApiContext& context,
                                                  const text::Tokenizer& tokenizer) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object, "", context.ignored());
  CompletionRequest request;
  MOTLEY_TRY(request.fields, read_generation_fields(fields, context));
  MOTLEY_TRY_VOID(settle_prompt_scores(request.fields, request.fields.stream));
  MOTLEY_TRY_VOID(
      read_routed_fields(fields, context.routed_experts, RoutedInStreams::no, request.fields));
  MOTLEY_TRY_VOID(
      read_number_of_logprobs(fields, context.max_answer_logprobs(), request.fields.sampling));
  MOTLEY_TRY_VOID(
      read_named_with_logprobs(fields, context.token_bounds(), request.fields.sampling));
  MOTLEY_TRY(const auto echo, fields.boolean("echo"));
  request.echo = echo.value_or(false);
  if (request.echo && request.fields.sampling.logprobs && request.fields.prompt_start != 0)
    return wrong("log-probabilities of a part of an echoed prompt", "prompt_logprob_start",
                 "leave it out, or leave out echo");
  MOTLEY_TRY_VOID(refuse_suffix(fields));
  const json::Value* const prompt = fields.take("prompt");
  MOTLEY_TRY_VOID(fields.finish());

  if (!request.fields.max_tokens) request.fields.max_tokens = default_max_tokens;
  if (prompt == nullptr)
    return Error(ErrorCode::invalid_argument, "no prompt", "prompt",
                 "give a text, a list of token ids, or a list of either");
  // All other fields are checked before the prompts are tokenised.
  MOTLEY_TRY(request.prompts,
             PromptReader(tokenizer, context, request.fields, request.echo).read(*prompt));
  if (request.prompts.size() > 1 && request.fields.prompt_named.width > 0)
    return wrong(cat(request.prompts.size(), " prompts"), "prompt_logprob_token_ids",
                 "send one prompt with them");
  if (request.prompts.size() * static_cast<std::size_t>(request.fields.choices) >
      field_limits::sequences.most)
    return Error(
        ErrorCode::invalid_argument,
        cat(request.prompts.size(), " prompts with ", request.fields.choices, " choices each"), "n",
        cat("ask for at most ", field_limits::sequences.most, " texts at once"));
  return request;
}

}  // namespace motley::server
