#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json/json.h"
#include "lora/scaled_adapter.h"
#include "serving/answers/transcript.h"
#include "text/tokenizer.h"

// Common parts of completion and chat answers.
namespace motley::server {

// Repeated in every chunk of an answer.
struct ReplyHead {
  std::string id;
  std::string model;
  std::int64_t created = 0;  // seconds since the epoch
  bool include_usage = false;
  bool continuous_usage = false;   // each event has the usage of its choice so far
  std::int64_t prompt_tokens = 0;  // of a chat, for the usage

  json::Object begin(std::string_view kind) const;

  // The body of a whole answer is open(), the choices separated by commas, and close().
  std::string open(std::string_view kind) const;
  static std::string close(const serving::Transcript& transcript);

  // An event with one choice, as JSON; `usage` are the choice's so far.
  std::string event(std::string_view kind, std::string_view choice,
                    const engine::Usage& usage) const;
  std::string last_events(std::string_view kind, const serving::Transcript& transcript) const;
};

// What stands after the choices of a whole answer: usage, and the version of its adapter.
std::string ends_of_body(const serving::Transcript& transcript);
// `,"adapter_version":"..."`, or nothing for the base.
std::string version_member(const serving::Transcript& transcript);
// To the last of these events, if there is a version.
void add_version(std::string& events, const serving::Transcript& transcript);

// Of a choice, as JSON: half-open spans of its tokens, `[{"version", "start", "end"}]`.
std::string weight_versions(const std::vector<serving::VersionSpan>& spans, std::int64_t drawn);
// The members of a choice that say which versions it is of: `weight_versions` where the answer has
// ids of tokens; and ART's `policy_token_spans` where a version ends with a number of a policy,
// "@7".
std::string version_members(const serving::Transcript& transcript, std::size_t index, bool with_ids,
                            std::span<const lora::ScaledAdapter> adapters);

json::Object usage_object(const engine::Usage& usage);

// The text of a single token; U+FFFD for part of a character.
std::string token_text(const text::Tokenizer& tokenizer, std::int32_t id);

// A log-probability as a JSON number: minus infinity and anything below -9999 become -9999.
double finite_logprob(float logprob);

// The event that ends a failed stream.
std::string failure_event(const Error& error);

inline constexpr std::string_view last_server_event = "data: [DONE]\n\n";

std::string_view name(engine::FinishReason end);

}  // namespace motley::server
