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

std::string ReplyHead::close(const serving::Transcript& transcript) {
  return cat("]", ends_of_body(transcript));
}

std::string ReplyHead::event(std::string_view kind, std::string_view choice,
                             const engine::Usage& usage) const {
  if (continuous_usage)
    return cat("data: ", open(kind), choice, "],\"usage\":", json::write(usage_object(usage)),
               "}\n\n");
  return cat("data: ", open(kind), choice, include_usage ? "],\"usage\":null}" : "]}", "\n\n");
}

std::string ReplyHead::last_events(std::string_view kind,
                                   const serving::Transcript& transcript) const {
  if (!include_usage) return std::string(last_server_event);
  return cat("data: ", open(kind), close(transcript), "\n\n", last_server_event);
}

std::string ends_of_body(const serving::Transcript& transcript) {
  return cat(",\"usage\":", json::write(usage_object(transcript.usage())),
             version_member(transcript), "}");
}

std::string version_member(const serving::Transcript& transcript) {
  const std::string version = transcript.adapter_version();
  return version.empty() ? "" : cat(",\"adapter_version\":", json::write(json::Value(version)));
}

void add_version(std::string& events, const serving::Transcript& transcript) {
  constexpr std::string_view end = "}\n\n";
  events.insert(events.size() - end.size(), version_member(transcript));
}

json::Object usage_object(const engine::Usage& usage) {
  json::Object details{{"cached_tokens", usage.cached_tokens}};
  return json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", std::move(details)}};
}

std::string token_text(const text::Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.decode(std::span(&id, 1), false);
}

std::string failure_event(const Error& error) { return cat("data: ", error_body(error), "\n\n"); }

double finite_logprob(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

std::string_view name(engine::FinishReason end) {
  if (end == engine::FinishReason::aborted) return "abort";
  return end == engine::FinishReason::stop ? "stop" : "length";
}

}  // namespace motley::server
