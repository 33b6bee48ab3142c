#include "engine/validate_request.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "lora/apply/batch.h"

namespace motley::engine {
namespace {

constexpr std::size_t max_biases = 1024;
constexpr std::size_t max_stop_ids = 1024;
constexpr std::size_t max_banned = 4096;

Error refused(std::string_view field, std::string what, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(field), std::move(fix)};
}

Result<void> in_range(std::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return refused(field, cat(value, " is out of range"),
                 cat("use a number from ", least, " to ", most));
}

bool is_token(std::int32_t id, const RequestBounds& bounds) {
  return id >= 0 && id < bounds.vocabulary;
}

Result<void> validate_ids(std::string_view field, const std::vector<std::int32_t>& ids,
                          const RequestBounds& bounds) {
  for (const std::int32_t id : ids) {
    if (!is_token(id, bounds))
      return refused(field, cat("token ", id, " is not in the vocabulary"),
                     cat("use ids from 0 to ", bounds.vocabulary - 1));
  }
  return {};
}

double most_named(const RequestBounds& bounds) {
  return static_cast<double>(std::min<std::int64_t>(bounds.prompt_top, max_named_tokens));
}

Result<void> validate_prompt(const Request& request, const RequestBounds& bounds) {
  if (request.tokens.empty()) return refused("prompt", "it has no tokens", "send at least one");
  MOTLEY_TRY_VOID(validate_ids("prompt", request.tokens, bounds));
  const auto length = static_cast<std::int64_t>(request.tokens.size());
  const std::int64_t most = bounds.sequence_tokens - (request.max_tokens > 0 ? 1 : 0);
  if (length > most)
    return Error(ErrorCode::too_long, cat("it has ", length, " tokens, and at most ", most, " fit"),
                 "prompt", "send a shorter one");
  return {};
}

Result<void> validate_scores(const Request& request, const RequestBounds& bounds) {
  MOTLEY_TRY_VOID(
      in_range("prompt_logprobs", request.prompt_top, 0,
               static_cast<double>(std::min<std::int64_t>(bounds.prompt_top, bounds.vocabulary))));
  const auto length = std::ssize(request.tokens);
  if (request.prompt_first < 1 || request.prompt_first > length)
    return refused("prompt_logprob_start", cat(request.prompt_first, " is out of range"),
                   cat("use a token from 1 to ", length));
  const NamedTokens& named = request.prompt_named;
  constexpr std::string_view field = "prompt_logprob_token_ids";
  MOTLEY_TRY_VOID(in_range(field, named.width, 0, most_named(bounds)));
  const std::int64_t wanted = named.width * (length - request.prompt_first);
  if (std::ssize(named.ids) != wanted)
    return refused(field, cat(named.ids.size(), " ids"), cat("give ", wanted));
  const auto unknown = std::ranges::find_if(
      named.ids, [&](std::int32_t id) { return id >= 0 && !is_token(id, bounds); });
  if (unknown != named.ids.end())
    return refused(field, cat("token ", *unknown, " is not in the vocabulary"),
                   cat("use ids from 0 to ", bounds.vocabulary - 1, ", or -1 for none"));
  return {};
}

Result<void> validate_adapters(const Request& request) {
  const auto& adapters = request.adapters;
  if (adapters.size() > static_cast<std::size_t>(lora::max_mix))
    return refused("adapters", cat(adapters.size(), " on one request"),
                   cat("use at most ", lora::max_mix));
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (!std::isfinite(adapters[i].scale))
      return refused("adapters", cat("the scale of ", quote(adapters[i].name), " is not a number"),
                     "use a finite one");
    for (std::size_t k = 0; k < i; ++k) {
      if (adapters[k].name == adapters[i].name)
        return refused("adapters", cat(quote(adapters[i].name), " is named twice"),
                       "name each once, with the sum of the scales");
    }
  }
  return {};
}

Result<void> validate_sampling(const Request& request, const RequestBounds& bounds) {
  const SamplingParams& sampling = request.sampling;
  constexpr double large = 1e4;
  MOTLEY_TRY_VOID(in_range("temperature", double{sampling.temperature}, 0, large));
  MOTLEY_TRY_VOID(in_range("top_k", sampling.top_k, 0, 2147483647));
  MOTLEY_TRY_VOID(in_range("min_p", double{sampling.min_p}, 0, 1));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return refused("top_p", cat(sampling.top_p, " is out of range"),
                   "use a number above 0, at most 1");
  if (!(sampling.repetition_penalty > 0 && double{sampling.repetition_penalty} <= large))
    return refused("repetition_penalty", cat(sampling.repetition_penalty, " is out of range"),
                   "use a number above 0, 1 for none");
  MOTLEY_TRY_VOID(in_range("frequency_penalty", double{sampling.frequency_penalty}, -2, 2));
  MOTLEY_TRY_VOID(in_range("presence_penalty", double{sampling.presence_penalty}, -2, 2));
  MOTLEY_TRY_VOID(
      in_range("top_logprobs", sampling.top_logprobs, 0,
               static_cast<double>(std::min<std::int64_t>(max_top_logprobs, bounds.vocabulary))));
  constexpr std::string_view named = "logprob_token_ids";
  MOTLEY_TRY_VOID(
      in_range(named, static_cast<double>(sampling.logprob_tokens.size()), 0, most_named(bounds)));
  MOTLEY_TRY_VOID(validate_ids(named, sampling.logprob_tokens, bounds));
  if (sampling.min_tokens < 0 || sampling.min_tokens > request.max_tokens)
    return refused("min_tokens", cat(sampling.min_tokens, " is out of range"),
                   "use a number from 0 to max_tokens");
  if (sampling.logit_bias.size() > max_biases)
    return refused("logit_bias", cat(sampling.logit_bias.size(), " entries"),
                   cat("use at most ", max_biases));
  for (const LogitBias& bias : sampling.logit_bias) {
    if (!is_token(bias.token, bounds))
      return refused("logit_bias", cat("token ", bias.token, " is not in the vocabulary"),
                     cat("use ids from 0 to ", bounds.vocabulary - 1));
    MOTLEY_TRY_VOID(in_range("logit_bias", double{bias.bias}, -large, large));
  }
  MOTLEY_TRY_VOID(validate_ids("allowed_token_ids", sampling.allowed_tokens, bounds));
  if (sampling.banned.size() > max_banned)
    return refused("bad_words", cat(sampling.banned.size(), " sequences of tokens"),
                   cat("use at most ", max_banned));
  for (const std::vector<std::int32_t>& sequence : sampling.banned) {
    if (sequence.empty()) return refused("bad_words", "a sequence without tokens", "leave it out");
    MOTLEY_TRY_VOID(validate_ids("bad_words", sequence, bounds));
  }
  return {};
}

Result<void> validate_routed(const Request& request, const RequestBounds& bounds) {
  if (!request.routed_experts_from) return {};
  if (!bounds.routed_experts)
    return Error(ErrorCode::unsupported, "the experts of tokens are not kept", "routed_experts",
                 "start the server with --enable-return-routed-experts");
  const auto length = static_cast<std::int64_t>(request.tokens.size());
  if (*request.routed_experts_from >= 0 && *request.routed_experts_from <= length) return {};
  return refused("routed_experts_prompt_start",
                 cat(*request.routed_experts_from, " is out of range"),
                 cat("use a number from 0 to ", length, ", the tokens of the prompt"));
}

}  // namespace

Result<void> validate(const Request& request, const RequestBounds& bounds) {
  if (request.max_tokens < 0)
    return refused("max_tokens", cat(request.max_tokens, " is negative"), "use 0 or more");
  if (request.choices < 1 || request.choices > max_choices)
    return refused("n", cat(request.choices, " is out of range"),
                   cat("use a number from 1 to ", max_choices));
  if (request.end_ids.size() + request.stop_ids.size() > max_stop_ids)
    return refused("stop_token_ids", cat(request.stop_ids.size(), " entries"),
                   cat("use at most ", max_stop_ids));
  MOTLEY_TRY_VOID(validate_ids("end_ids", request.end_ids, bounds));
  MOTLEY_TRY_VOID(validate_ids("stop_token_ids", request.stop_ids, bounds));
  MOTLEY_TRY_VOID(validate_prompt(request, bounds));
  MOTLEY_TRY_VOID(validate_scores(request, bounds));
  MOTLEY_TRY_VOID(validate_adapters(request));
  MOTLEY_TRY_VOID(validate_routed(request, bounds));
  return validate_sampling(request, bounds);
}

}  // namespace motley::engine
