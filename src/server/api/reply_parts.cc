#include "server/api/reply_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "base/function_ref.h"
#include "base/version.h"
#include "server/api/api_error.h"
#include "server/api/policy_update.h"

namespace motley::server {
namespace {

// vLLM's name of weights that were never replaced.
constexpr std::string_view base_version = "default";

// Calls see(version, first, end) for each span that has tokens.
void each_span(const std::vector<serving::VersionSpan>& spans, std::int64_t drawn,
               FunctionRef<void(std::string_view, std::int64_t, std::int64_t)> see) {
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::int64_t end = i + 1 < spans.size() ? std::min(spans[i + 1].first, drawn) : drawn;
    if (spans[i].first < end) see(spans[i].version, spans[i].first, end);
  }
}

// ART's spans; empty where no version has a number.
std::string policy_spans(const std::vector<serving::VersionSpan>& spans, std::int64_t drawn,
                         std::string_view adapter) {
  std::string list;
  bool any = false;
  each_span(spans, drawn, [&](std::string_view version, std::int64_t first, std::int64_t end) {
    std::optional<std::int64_t> policy = policy_of(version);
    if (!policy) policy = policy_of(adapter);
    any = any || policy;
    list += cat(list.empty() ? "" : ",", "{\"start_token\":", first, ",\"end_token\":", end,
                ",\"policy_version\":", policy.value_or(0),
                ",\"lora_slot\":", json::string_literal(adapter),
                ",\"update_seq\":", policy.value_or(0), "}");
  });
  return any ? list : std::string();
}

}  // namespace

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

std::string weight_versions(const std::vector<serving::VersionSpan>& spans, std::int64_t drawn) {
  std::string list = "[";
  each_span(spans, drawn, [&](std::string_view version, std::int64_t first, std::int64_t end) {
    list += cat(list.size() > 1 ? "," : "",
                "{\"version\":", json::string_literal(version.empty() ? base_version : version),
                ",\"start\":", first, ",\"end\":", end, "}");
  });
  return list += ']';
}

std::string version_members(const serving::Transcript& transcript, std::size_t index, bool with_ids,
                            std::span<const lora::ScaledAdapter> adapters) {
  const std::vector<serving::VersionSpan> spans = transcript.versions_of(index);
  const std::int64_t drawn = transcript.drawn(index);
  std::string members;
  if (with_ids) members += cat(",\"weight_versions\":", weight_versions(spans, drawn));
  if (adapters.size() != 1) return members;
  const std::string policies = policy_spans(spans, drawn, adapters[0].name);
  if (!policies.empty()) members += cat(",\"policy_token_spans\":[", policies, "]");
  return members;
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
