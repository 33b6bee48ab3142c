#include "server/api/fields/token_fields.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"

namespace motley::server {
namespace {

constexpr std::string_view named_field = "prompt_logprob_token_ids";
constexpr std::string_view drawn_named_field = "logprob_token_ids";

// Of a list of named tokens.
std::size_t most_named(const TokenBounds& bounds) {
  return static_cast<std::size_t>(std::min(bounds.prompt_top, engine::max_named_tokens));
}

// As many ids for each token of the prompt; -1 fills up.
Result<engine::NamedTokens> read_named(Fields& fields, const TokenBounds& bounds) {
  engine::NamedTokens named;
  const json::Value* const value = fields.take(named_field);
  if (value == nullptr) return named;
  const std::string place = fields.place(named_field);
  MOTLEY_TRY(const json::Array* const lists, value->as_array(place));
  const std::size_t most = most_named(bounds);
  std::size_t width = 0;
  for (std::size_t i = 0; i < lists->size(); ++i) {
    const std::string at = cat(place, "[", i, "]");
    MOTLEY_TRY(const json::Array* const ids, (*lists)[i].as_array(at));
    if (i == 0) width = ids->size();
    if (width == 0 || width > most)
      return wrong(cat("a list of ", width, " ids"), at, cat("give 1 to ", most));
    if (ids->size() != width)
      return wrong(cat("a list of ", ids->size(), " ids after one of ", width), at,
                   "give lists of one length; -1 fills them up");
    if (i == 0) named.ids.reserve(lists->size() * width);
    for (std::size_t k = 0; k < width; ++k) {
      MOTLEY_TRY(const std::int64_t id,
                 read_integer((*ids)[k], cat(at, "[", k, "]"), -1, bounds.vocabulary - 1));
      named.ids.push_back(static_cast<std::int32_t>(id));
    }
  }
  if (width == 0) return wrong("no ids", place, "give a list for each token, or leave it out");
  named.width = static_cast<int>(width);
  return named;
}

Result<void> read_prompt_scores(Fields& fields, const TokenBounds& bounds,
                                serving::GenerationSettings& settings) {
  MOTLEY_TRY(const auto top, fields.integer("prompt_logprobs", 0, bounds.prompt_top));
  if (top) settings.prompt_top = static_cast<std::int32_t>(*top);
  MOTLEY_TRY(settings.prompt_named, read_named(fields, bounds));
  constexpr std::int64_t most = std::int64_t{1} << 31;
  MOTLEY_TRY(const auto start, fields.integer("prompt_logprob_start", -most, most));
  settings.prompt_start = start.value_or(0);
  return {};
}

}  // namespace

Result<TokenFields> read_token_fields(Fields& fields, const TokenBounds& bounds,
                                      serving::GenerationSettings& settings) {
  TokenFields read;
  MOTLEY_TRY(const auto skip, fields.boolean("skip_special_tokens"));
  settings.skip_special = skip.value_or(true);
  MOTLEY_TRY(const auto spaces, fields.boolean("spaces_between_special_tokens"));
  settings.spaces_between_special = spaces.value_or(true);
  MOTLEY_TRY(const auto ids, fields.boolean("return_token_ids"));
  read.return_ids = ids.value_or(false);
  MOTLEY_TRY(const auto as_ids, fields.boolean("return_tokens_as_token_ids"));
  read.as_ids = as_ids.value_or(false);
  MOTLEY_TRY_VOID(read_prompt_scores(fields, bounds, settings));
  return read;
}

Result<void> read_number_of_logprobs(Fields& fields, int most, engine::SamplingParams& sampling) {
  MOTLEY_TRY(const auto logprobs, fields.integer("logprobs", 0, most));
  sampling.logprobs = logprobs.has_value();
  sampling.top_logprobs = static_cast<std::int32_t>(logprobs.value_or(0));
  return {};
}

Result<void> read_named_logprobs(Fields& fields, const TokenBounds& bounds,
                                 engine::SamplingParams& sampling) {
  MOTLEY_TRY(const auto ids, fields.token_ids(drawn_named_field, bounds.vocabulary));
  if (ids.size() > most_named(bounds))
    return wrong(cat("a list of ", ids.size(), " ids"), fields.place(drawn_named_field),
                 cat("give at most ", most_named(bounds)));
  std::vector<std::int32_t>& named = sampling.logprob_tokens;
  for (const std::int32_t id : ids)
    if (std::ranges::find(named, id) == named.end()) named.push_back(id);
  return {};
}

Result<void> read_named_with_logprobs(Fields& fields, const TokenBounds& bounds,
                                      engine::SamplingParams& sampling) {
  MOTLEY_TRY_VOID(read_named_logprobs(fields, bounds, sampling));
  if (!sampling.logprob_tokens.empty() && !sampling.logprobs)
    return wrong("named tokens without logprobs", std::string(drawn_named_field),
                 "ask for logprobs");
  return {};
}

Result<void> settle_prompt_scores(serving::GenerationSettings& settings, bool stream) {
  if (settings.prompt_start != 0 && !settings.scores_prompt())
    return wrong("a place to begin without log-probabilities", "prompt_logprob_start",
                 "ask for prompt_logprobs or prompt_logprob_token_ids");
  if (!stream || !settings.scores_prompt()) return {};
  const bool names = settings.prompt_named.width > 0;
  if (names || *settings.prompt_top > 0)
    return Error(ErrorCode::unsupported, "a stream has no log-probabilities of the prompt",
                 std::string(names ? named_field : "prompt_logprobs"),
                 "leave out stream, or ask for echo and logprobs");
  settings.prompt_top.reset();
  return {};
}

void leave_token_lists(Fields& fields, TokenFields& tokens, serving::GenerationSettings& settings) {
  if (std::exchange(tokens.return_ids, false)) fields.leave("return_token_ids");
  if (settings.prompt_top) fields.leave("prompt_logprobs");
  if (settings.prompt_named.width > 0) fields.leave(named_field);
  if (settings.prompt_start != 0) fields.leave("prompt_logprob_start");
  settings.prompt_top.reset();
  settings.prompt_named = {};
  settings.prompt_start = 0;
}

}  // namespace motley::server
