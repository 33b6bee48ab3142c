#include "server/api/reply_parts.h"

#include <algorithm>

#include "base/cat.h"
#include "base/version.h"

namespace motley::server {

json::Object ReplyHead::begin(std::string_view kind) const {
  json::Object reply;
  reply.add("id", id);
  reply.add("object", kind);
  reply.add("created", created);
  reply.add("model", model);
  reply.add("system_fingerprint", cat("motley-", version()));
  return reply;
}

json::Object usage_object(const TokenCounts& counts) {
  json::Object details;
  details.add("cached_tokens", counts.cached);
  json::Object usage;
  usage.add("prompt_tokens", counts.prompt);
  usage.add("completion_tokens", counts.completion);
  usage.add("total_tokens", counts.prompt + counts.completion);
  usage.add("prompt_tokens_details", std::move(details));
  return usage;
}

std::string token_text(const text::Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.decode(std::span(&id, 1), false);
}

double finite_logprob(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

std::string server_event(const json::Object& chunk) {
  return cat("data: ", json::write(chunk), "\n\n");
}

std::string_view name(EndOfChoice end) { return end == EndOfChoice::stop ? "stop" : "length"; }

}  // namespace motley::server
