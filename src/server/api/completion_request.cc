#include "server/api/completion_request.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::server {
namespace {

using Prompt = CompletionRequest::Prompt;

constexpr std::size_t most_prompts = 1024;
constexpr std::size_t most_sequences = 4096;  // prompts times choices
constexpr std::int64_t default_max_tokens = 16;

class PromptReader {
 public:
  PromptReader(const text::Tokenizer& tokenizer, std::int64_t vocabulary, bool echo)
      : tokenizer_(tokenizer), vocabulary_(vocabulary), echo_(echo) {}

  Result<std::vector<Prompt>> read(const json::Value& value) const {
    if (value.if_string() != nullptr) return one(from_text(value, "prompt"));
    MOTLEY_TRY(const json::Array* const list, value.as_array("prompt"));
    if (list->empty())
      return Error(ErrorCode::invalid_argument, "an empty list", "prompt", "give a prompt");
    if (list->front().if_string() == nullptr && list->front().if_array() == nullptr)
      return one(from_ids(*list, "prompt"));
    if (list->size() > most_prompts)
      return Error(ErrorCode::invalid_argument, cat(list->size(), " prompts"), "prompt",
                   cat("give at most ", most_prompts));
    std::vector<Prompt> prompts;
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
    Prompt prompt;
    MOTLEY_TRY(prompt.tokens, tokenizer_.encode(*text));
    if (prompt.tokens.empty()) return empty(place);
    if (echo_) prompt.text = *text;
    return prompt;
  }

  Result<Prompt> from_ids(const json::Array& ids, std::string_view place) const {
    if (ids.empty()) return empty(place);
    Prompt prompt;
    prompt.tokens.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      MOTLEY_TRY(const std::int64_t id,
                 read_integer(ids[i], cat(place, "[", i, "]"), 0, vocabulary_ - 1));
      prompt.tokens.push_back(static_cast<std::int32_t>(id));
    }
    if (echo_) prompt.text = tokenizer_.decode(prompt.tokens, true);
    return prompt;
  }

  const text::Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
  bool echo_;
};

Result<void> read_logprobs(Fields& fields, engine::SamplingParams& sampling) {
  MOTLEY_TRY(const auto logprobs, fields.integer("logprobs", 0, engine::most_top_logprobs));
  sampling.logprobs = logprobs.has_value();
  sampling.top_logprobs = static_cast<std::int32_t>(logprobs.value_or(0));
  return {};
}

// Fields that ask for what is not there; their harmless values pass.
Result<void> refuse_unsupported(Fields& fields, const GenerationFields& read) {
  MOTLEY_TRY(const auto suffix, fields.string("suffix"));
  if (suffix && !suffix->empty())
    return Error(ErrorCode::unsupported, "text before a suffix is not something models here write",
                 "suffix", "leave it out");
  MOTLEY_TRY(const auto best_of, fields.integer("best_of", 1, engine::most_choices));
  if (best_of && *best_of != read.choices)
    return Error(ErrorCode::unsupported, "choosing the best of several", "best_of",
                 "leave it out, or make it n");
  return {};
}

}  // namespace

Result<CompletionRequest> read_completion_request(const json::Value& body,
                                                  const ApiContext& context,
                                                  const text::Tokenizer& tokenizer) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object);
  CompletionRequest request;
  MOTLEY_TRY(request.fields, read_generation_fields(fields, context));
  MOTLEY_TRY_VOID(read_logprobs(fields, request.fields.sampling));
  MOTLEY_TRY(const auto echo, fields.boolean("echo"));
  request.echo = echo.value_or(false);
  MOTLEY_TRY_VOID(refuse_unsupported(fields, request.fields));
  const json::Value* const prompt = fields.take("prompt");
  MOTLEY_TRY_VOID(fields.refuse_others());

  if (!request.fields.max_tokens) request.fields.max_tokens = default_max_tokens;
  if (*request.fields.max_tokens == 0 && !request.echo)
    return Error(ErrorCode::invalid_argument, "nothing to write and nothing to echo", "max_tokens",
                 "ask for a token at least, or set echo");
  if (prompt == nullptr)
    return Error(ErrorCode::invalid_argument, "no prompt", "prompt",
                 "give a text, a list of token ids, or a list of either");
  // All fields are checked before the work that tokenising is.
  MOTLEY_TRY(request.prompts,
             PromptReader(tokenizer, context.vocabulary, request.echo).read(*prompt));
  if (request.prompts.size() * static_cast<std::size_t>(request.fields.choices) > most_sequences)
    return Error(
        ErrorCode::invalid_argument,
        cat(request.prompts.size(), " prompts with ", request.fields.choices, " choices each"), "n",
        cat("ask for at most ", most_sequences, " texts at once"));
  return request;
}

}  // namespace motley::server
