#include "server/api/reply_parts.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/version.h"
#include "server/api/api_error.h"

namespace motley::server {

json::Object ReplyHead::begin(std::string_view kind) const {
  return json::Object{{"id", id},
                      {"object", kind},
                      {"created", created},
                      {"model", model},
                      {"system_fingerprint", cat("motley-", version())}};
}

std::string ReplyHead::open(std::string_view kind) const {
  std::string text = json::write(begin(kind));
  text.pop_back();  // the brace
  return text += ",\"choices\":[";
}

std::string ReplyHead::close(const TokenCounts& counts) {
  return cat("],\"usage\":", json::write(usage_object(counts)), "}");
}

std::string ReplyHead::event(std::string_view kind, std::string_view choice,
                             const TokenCounts& counts) const {
  if (continuous_usage) return cat("data: ", open(kind), choice, close(counts), "\n\n");
  return cat("data: ", open(kind), choice, include_usage ? "],\"usage\":null}" : "]}", "\n\n");
}

std::string ReplyHead::last_events(std::string_view kind, const TokenCounts& counts) const {
  if (!include_usage) return std::string(last_server_event);
  return cat("data: ", open(kind), close(counts), "\n\n", last_server_event);
}

json::Object usage_object(const TokenCounts& counts) {
  json::Object details{{"cached_tokens", counts.cached}};
  return json::Object{{"prompt_tokens", counts.prompt},
                      {"completion_tokens", counts.completion},
                      {"total_tokens", counts.prompt + counts.completion},
                      {"prompt_tokens_details", std::move(details)}};
}

std::string token_text(const text::Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.decode(std::span(&id, 1), false);
}

std::string failure_event(const Error& error) { return cat("data: ", error_body(error), "\n\n"); }

double finite_logprob(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

std::string_view name(EndOfChoice end) { return end == EndOfChoice::stop ? "stop" : "length"; }

}  // namespace motley::server
