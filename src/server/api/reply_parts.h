#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/output/transcript.h"
#include "text/tokenizer.h"

// What answers of completions and of chats have in common.
namespace motley::server {

// What every chunk of an answer repeats.
struct ReplyHead {
  std::string id;
  std::string model;
  std::int64_t created = 0;  // seconds of the epoch
  bool include_usage = false;

  json::Object begin(std::string_view kind) const;
};

json::Object usage_object(const TokenCounts& counts);

// The text of a token alone; in the middle of a character that is U+FFFD.
std::string token_text(const text::Tokenizer& tokenizer, std::int32_t id);

// A log-probability as a number that JSON has: minus infinity and less than -9999 is -9999.
double finite_logprob(float logprob);

// One event of a stream.
std::string server_event(const json::Object& chunk);
inline constexpr std::string_view last_server_event = "data: [DONE]\n\n";

std::string_view name(EndOfChoice end);

}  // namespace motley::server
