#include "server/api/request_charge.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/cat.h"
#include "base/units.h"
#include "engine/requests/events.h"

namespace motley::server {
namespace {

// For each prompt: the engine's request and its copies of lists, without their elements.
constexpr std::size_t prompt_state_bytes = 4096;
// For each choice: decoders, parsers, the sampler, and what is kept of the answer.
constexpr std::size_t choice_state_bytes = 4096;
// The ids of a prompt are in the body's plan, the request, its sequence and its sampler.
constexpr std::size_t prompt_token_bytes = 4 * sizeof(std::int32_t);
// The lists of an echoed prompt that are written once for all choices.
constexpr std::size_t echo_lists_bytes = std::size_t{4} << 20;
// The text of an answer, per token; vectors and strings allocate up to twice their size.
constexpr std::size_t text_bytes = 6;
constexpr std::size_t growth = 2;
// JSON of a token and of each of its alternatives, in completions and chats.
constexpr std::size_t entry_bytes = 48;
constexpr std::size_t top_entry_bytes = 32;
constexpr std::size_t chat_entry_bytes = 100;
// For a token in prompt_logprobs, "token_id:7" in place of a short text, and an id in a list.
constexpr std::size_t prompt_entry_bytes = 96;
constexpr std::size_t id_name_bytes = 10;
constexpr std::size_t id_bytes = 8;
// A token with its id, name and rank.
constexpr std::size_t number_entry_bytes = 112;
// A number in base64, with its part of what stands around.
constexpr std::size_t named_bytes = 6;

// The experts of a token, in the base64 of an answer.
std::size_t routed_sent(const GenerationFields& fields) {
  const engine::RoutedExpertsSizes& sizes = fields.routed_experts;
  return sizes.kept() ? (sizes.bytes_of_token() * 4 + 2) / 3 : 0;
}
// What is kept of them until the answer is sent.
std::size_t routed_kept(const GenerationFields& fields) {
  return fields.routed_experts.kept() ? growth * fields.routed_experts.bytes_of_token() : 0;
}

// JSON of a token's log-probabilities, and of an echoed prompt's.
std::size_t scores_sent(const GenerationFields& fields, bool chat, bool numbers) {
  if (!fields.sampling.logprobs) return 0;
  // The answer's, or those of an echoed prompt, which has no named ones.
  const std::size_t top = std::max(fields.sampling.alternatives(),
                                   static_cast<std::size_t>(fields.sampling.top_logprobs));
  const std::size_t name = fields.tokens.as_ids ? id_name_bytes : 0;
  // The drawn token is among the alternatives, too.
  if (numbers) return number_entry_bytes * (top + 2);
  return chat ? (chat_entry_bytes + name) * (top + 1)
              : entry_bytes + name + (top_entry_bytes + name) * (top + 1);
}
// How often a response's stream repeats its text, and the object that repeats its request.
constexpr std::size_t response_texts = 5;
constexpr std::size_t response_objects = 3;

struct Tokens {
  std::size_t engine = 0;  // ids, in sequence and sampler
  std::size_t kept = 0;    // until the answer is sent
  std::size_t sent = 0;
};

Tokens bytes_of_token(const GenerationFields& fields, const RequestSize& size) {
  const engine::SamplingParams& sampling = fields.sampling;
  const bool penalties = sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
                         sampling.frequency_penalty != 0;
  // Named ones have their ranks next to them.
  const bool ranked = sampling.ranks && !sampling.logprob_tokens.empty();
  const std::size_t top_bytes =
      (sizeof(engine::TopLogprob) + (ranked ? sizeof(std::int32_t) : 0)) * sampling.alternatives();
  Tokens bytes;
  bytes.engine = growth * sizeof(std::int32_t) * (penalties ? 2 : 1);
  const bool with_ids = fields.tokens.return_ids || size.numbers;
  const bool numbers = sampling.logprobs || with_ids;
  bytes.kept = growth * (text_bytes + (numbers ? 24 : 0) + (sampling.logprobs ? top_bytes : 0) +
                         (sampling.ranks ? sizeof(std::int32_t) : 0));
  bytes.sent = text_bytes + routed_sent(fields) + (with_ids ? id_bytes : 0) +
               scores_sent(fields, size.chat, size.numbers);
  return bytes;
}

// Tokens of all prompts that have log-probabilities.
std::size_t scored_tokens(const GenerationFields& fields, const RequestSize& size) {
  if (!fields.scores_prompt()) return size.prompt_tokens;
  const auto start = static_cast<std::size_t>(std::abs(fields.prompt_start));
  if (fields.prompt_start < 0) return std::min(size.prompt_tokens, size.prompts * start);
  if (size.prompts > 1) return size.prompt_tokens;
  return size.prompt_tokens - std::min(size.prompt_tokens, start);
}

// Scores of a prompt's tokens, which are kept until the answer is sent.
std::size_t prompt_scores_bytes(const GenerationFields& fields, const RequestSize& size) {
  const bool echoed = size.echo && !size.chat && fields.sampling.logprobs;
  if (!echoed && !fields.scores_prompt()) return 0;
  // Ids in the body's plan, the request and its copies; and what becomes of them.
  const std::size_t named =
      fields.prompt_named.ids.size() * (4 * sizeof(std::int32_t) + growth * sizeof(float));
  const auto top = static_cast<std::size_t>(
      std::max(echoed ? fields.sampling.top_logprobs : 0, fields.prompt_top.value_or(0)));
  const std::size_t each =
      growth * (sizeof(float) + sizeof(std::int32_t) + sizeof(engine::TopLogprob) * top) +
      sizeof(std::int64_t);
  return named + scored_tokens(fields, size) * each +
         (echoed && fields.choices > 1 ? echo_lists_bytes : 0);
}

// An upper bound of what is sent of the prompts for each choice; a chat's body has these lists
// once.
std::size_t prompt_sent(const GenerationFields& fields, const RequestSize& size) {
  std::size_t token = routed_sent(fields);
  std::size_t scored = 0;
  if (fields.tokens.return_ids) token += id_bytes;
  if (fields.prompt_top) {
    token += id_bytes;
    scored = prompt_entry_bytes * (static_cast<std::size_t>(*fields.prompt_top) + 1);
  }
  if (size.echo && !size.chat) token += scores_sent(fields, false, false);
  return size.prompt_tokens * token + scored_tokens(fields, size) * scored +
         named_bytes * fields.prompt_named.ids.size() + (size.echo ? size.prompt_bytes : 0);
}

std::string fields_of(const GenerationFields& fields, const RequestSize& size) {
  std::vector<std::string> list;
  if (size.prompts > 1) list.push_back(cat(size.prompts, " prompts"));
  if (fields.choices > 1) list.push_back(cat("n ", fields.choices));
  if (size.echo) list.emplace_back("echo");
  if (fields.sampling.logprobs)
    list.push_back(cat(size.chat ? "top_logprobs " : "logprobs ", fields.sampling.top_logprobs));
  if (!fields.sampling.logprob_tokens.empty())
    list.push_back(cat("logprob_token_ids of ", fields.sampling.logprob_tokens.size(), " ids"));
  if (fields.prompt_top) list.push_back(cat("prompt_logprobs ", *fields.prompt_top));
  if (fields.prompt_named.width > 0)
    list.push_back(cat("prompt_logprob_token_ids of ", fields.prompt_named.ids.size(), " ids"));
  if (fields.tokens.return_ids) list.emplace_back("return_token_ids");
  if (fields.routed_experts.kept()) list.emplace_back("return_routed_experts");
  if (fields.max_tokens) list.push_back(cat("max_tokens ", *fields.max_tokens));
  if (!fields.stop.empty()) list.push_back(cat(fields.stop.size(), " of stop"));
  if (fields.sampling.grammar)
    list.push_back(
        cat(fields.grammar_field, " of ", fields.sampling.grammar->text.size(), " bytes"));
  if (size.tools_bytes > 0) list.push_back(cat("tools of ", size.tools_bytes, " bytes"));
  if (list.empty()) list.push_back(cat(size.prompt_tokens, " tokens of prompts"));
  return join(list, ", ");
}

constexpr std::size_t list_bytes = sizeof(std::vector<std::int32_t>);
// An id in the set of those that end a text, which all choices share.
constexpr std::size_t set_entry_bytes = 48;

// Lists in the request and its copies, and a mask up to the largest id.
std::size_t bytes_of_bans(const engine::SamplingParams& sampling) {
  std::size_t bytes = 6 * sizeof(std::int32_t) * sampling.allowed_tokens.size();
  if (!sampling.allowed_tokens.empty())
    bytes += static_cast<std::size_t>(sampling.allowed_tokens.back()) / 8;
  for (const auto& banned : sampling.banned)
    bytes += 6 * list_bytes + 12 * sizeof(std::int32_t) * banned.size();
  return bytes;
}

// Without generated tokens.
std::size_t fixed_bytes(const GenerationFields& fields, const RequestSize& size) {
  const engine::SamplingParams& sampling = fields.sampling;
  std::size_t stop_bytes = 0;
  for (const std::string& stop : fields.stop) stop_bytes += stop.size() + sizeof(std::string);
  std::size_t each_prompt =
      prompt_state_bytes + 6 * sizeof(engine::LogitBias) * sampling.logit_bias.size() +
      4 * sizeof(std::int32_t) * (fields.stop_ids.size() + sampling.logprob_tokens.size());
  each_prompt += bytes_of_bans(sampling);
  if (sampling.grammar) each_prompt += 2 * sampling.grammar->text.size();
  const std::size_t each_choice =
      choice_state_bytes + fields.stop.size() * sizeof(std::uint32_t) + size.tools_bytes;
  std::size_t bytes = size.prompts * each_prompt + 8 * stop_bytes;
  bytes += set_entry_bytes * fields.stop_ids.size();
  bytes += size.prompts * static_cast<std::size_t>(fields.choices) * each_choice;
  bytes += prompt_token_bytes * size.prompt_tokens + size.prompt_bytes + size.repeated_bytes;
  // One event holds all ids of a prompt.
  if (fields.tokens.return_ids && fields.stream) bytes += growth * id_bytes * size.prompt_tokens;
  bytes += size.prompt_tokens * routed_kept(fields);
  return bytes + prompt_scores_bytes(fields, size);
}

}  // namespace

RequestCharge charge_for(const GenerationFields& fields, const RequestSize& size) {
  const auto choices = static_cast<std::size_t>(fields.choices);
  const std::size_t sequences = size.prompts * choices;
  const Tokens token = bytes_of_token(fields, size);
  const auto first = static_cast<std::size_t>(
      std::min({fields.max_tokens.value_or(size.room_tokens), size.room_tokens, charged_tokens}));
  const auto all = fields.max_tokens
                       ? static_cast<std::size_t>(std::min(*fields.max_tokens, size.room_tokens))
                       : first;
  const std::size_t kept = (fields.stream && !size.response ? 0 : token.kept) + routed_kept(fields);
  const bool repeats = fields.stream && size.response;

  RequestCharge charge;
  charge.kept_bytes = sequences * first * kept;
  std::size_t fixed = fixed_bytes(fields, size);
  if (all > 0 && choices > 1) fixed += token.engine / growth * size.prompt_tokens * choices;
  charge.admitted_bytes = fixed + sequences * first * token.engine + charge.kept_bytes;
  charge.memory_bytes = fixed + sequences * all * (token.engine + kept);
  charge.answer_bytes = sequences * (256 + all * token.sent * (repeats ? response_texts : 1)) +
                        size.repeated_bytes * (repeats ? response_objects : 1);
  charge.answer_bytes += choices * prompt_sent(fields, size);
  charge.fields = fields_of(fields, size);
  return charge;
}

Result<void> check_charge(const RequestCharge& charge, const RequestLimits& limits) {
  const auto refused = [&](std::string_view what, std::size_t bytes, std::size_t limit) {
    return Error(ErrorCode::too_long,
                 cat("the request may ", what, " ", format_bytes(bytes), ", and one may ", what,
                     " ", format_bytes(limit), " (", charge.fields, ")"),
                 "", "ask for less of these, or send several requests");
  };
  if (charge.memory_bytes > limits.memory_bytes)
    return refused("take", charge.memory_bytes, limits.memory_bytes);
  if (charge.answer_bytes > limits.answer_bytes)
    return refused("send", charge.answer_bytes, limits.answer_bytes);
  return {};
}

RequestLimits limits_within(std::size_t client_bytes) {
  RequestLimits limits;
  limits.memory_bytes = std::min(limits.memory_bytes, client_bytes);
  return limits;
}

}  // namespace motley::server
