#include "server/api/fields/token_lists.h"

#include <algorithm>
#include <optional>

#include "base/cat.h"
#include "base/json/json.h"
#include "server/api/reply_parts.h"

namespace motley::server {
namespace {

void append_scored(std::string& text, std::int32_t id, float logprob,
                   std::optional<std::size_t> rank, const text::Tokenizer& tokenizer) {
  text += cat("\"", id, "\":{\"logprob\":");
  json::append_number(text, finite_logprob(logprob));
  text += cat(",\"rank\":", rank ? std::to_string(*rank) : "null", ",\"decoded_token\":");
  json::append_string(text, token_text(tokenizer, id));
  text += '}';
}

}  // namespace

std::string id_list(std::span<const std::int32_t> ids) {
  std::string list = "[";
  for (const std::int32_t id : ids) list += cat(list.size() > 1 ? "," : "", id);
  return list += ']';
}

std::string token_name(const text::Tokenizer& tokenizer, std::int32_t id, bool as_id) {
  return as_id ? cat("token_id:", id) : token_text(tokenizer, id);
}

void append_prompt_entry(std::string& text, std::span<const std::int32_t> prompt, std::size_t at,
                         const engine::PromptEvent& scores, std::size_t top,
                         const text::Tokenizer& tokenizer) {
  const auto first = static_cast<std::size_t>(scores.first);
  if (at < first || at - first >= scores.logprobs.size()) {
    text += "null";
    return;
  }
  const auto likeliest = scores.likeliest(at - first, top);
  const auto own = std::ranges::find(likeliest, prompt[at], &engine::TopLogprob::token);
  std::optional<std::size_t> rank;
  if (at - first < scores.ranks.size())
    rank = static_cast<std::size_t>(scores.ranks[at - first]);
  else if (own != likeliest.end())
    rank = static_cast<std::size_t>(own - likeliest.begin()) + 1;
  text += '{';
  append_scored(text, prompt[at], scores.logprobs[at - first], rank, tokenizer);
  for (std::size_t i = 0; i < likeliest.size(); ++i) {
    if (likeliest[i].token == prompt[at]) continue;
    text += ',';
    append_scored(text, likeliest[i].token, likeliest[i].logprob, i + 1, tokenizer);
  }
  text += '}';
}

void add_to_event(std::string& event, std::string_view name, std::string_view json) {
  constexpr std::string_view end = "}\n\n";
  event.insert(event.size() - end.size(), cat(",\"", name, "\":", json));
}

namespace {

json::Object token_object(const text::Tokenizer& tokenizer, std::int32_t id, float logprob,
                          bool as_id) {
  json::Array bytes;
  for (const char byte : tokenizer.bytes_of(id))
    bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return json::Object{{"token", token_name(tokenizer, id, as_id)},
                      {"logprob", finite_logprob(logprob)},
                      {"bytes", std::move(bytes)}};
}

}  // namespace

TokenListing listing_of(const GenerationFields& fields) {
  return {.as_ids = fields.tokens.as_ids, .drawn_first = !fields.sampling.logprob_tokens.empty()};
}

json::Object scored_token(const text::Tokenizer& tokenizer, std::int32_t id, float logprob,
                          std::span<const engine::TopLogprob> top, const TokenListing& listing) {
  json::Array list;
  if (listing.drawn_first) list.emplace_back(token_object(tokenizer, id, logprob, listing.as_ids));
  for (const engine::TopLogprob& each : top) {
    if (listing.drawn_first && each.token == id) continue;
    list.emplace_back(token_object(tokenizer, each.token, each.logprob, listing.as_ids));
  }
  json::Object object = token_object(tokenizer, id, logprob, listing.as_ids);
  object.add("top_logprobs", std::move(list));
  return object;
}

}  // namespace motley::server
