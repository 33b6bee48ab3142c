#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json/json.h"
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
  bool continuous_usage = false;   // what a choice has cost by now, in each of its events
  std::int64_t prompt_tokens = 0;  // of a chat, for that

  json::Object begin(std::string_view kind) const;

  // The body of a whole answer is what open() gives, the choices with commas between, and close().
  std::string open(std::string_view kind) const;
  static std::string close(const TokenCounts& counts);

  // An event with one choice, as JSON; `counts` are the choice's by now.
  std::string event(std::string_view kind, std::string_view choice,
                    const TokenCounts& counts) const;
  std::string last_events(std::string_view kind, const TokenCounts& counts) const;
};

json::Object usage_object(const TokenCounts& counts);

// The text of a token alone; in the middle of a character that is U+FFFD.
std::string token_text(const text::Tokenizer& tokenizer, std::int32_t id);

// A log-probability as a number that JSON has: minus infinity and less than -9999 is -9999.
double finite_logprob(float logprob);

// The event that ends a stream which has failed.
std::string failure_event(const Error& error);

inline constexpr std::string_view last_server_event = "data: [DONE]\n\n";

std::string_view name(EndOfChoice end);

}  // namespace motley::server
