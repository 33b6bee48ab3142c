#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "server/api/fields/generation_fields.h"

// What a request may take and send, before it is accepted: arithmetic on its fields and lengths.
namespace motley::server {

// What the charge depends on.
struct RequestSize {
  std::size_t prompts = 1;
  std::size_t prompt_tokens = 0;  // of all prompts
  std::size_t prompt_bytes = 0;   // of their text, where it is kept to be echoed
  std::size_t tools_bytes = 0;    // of the tools' JSON, which every choice refers to
  std::int64_t room_tokens = 0;   // for an answer, in the longest sequence
  bool echo = false;
  bool chat = false;
  // Of a response: it repeats so much of its request, and a stream its items at their end and at
  // its own.
  bool response = false;
  std::size_t repeated_bytes = 0;
};

struct RequestCharge {
  std::size_t memory_bytes = 0;    // at most, at any time
  std::size_t admitted_bytes = 0;  // of these, when it is accepted
  std::size_t kept_bytes = 0;      // of the admitted, for what is kept of its answer
  std::size_t answer_bytes = 0;    // of the body or stream, which is written piece by piece
  std::string fields;              // that it depends on, with their values: "n 128, logprobs 20"
};

struct RequestLimits {
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::size_t answer_bytes = std::size_t{512} << 20;
};

// An upper bound. Of longer choices so many tokens are charged when the request is accepted, and
// the others as they come: few are as long as they may be. Where the request leaves the length
// open, that goes for the limit too.
inline constexpr std::int64_t charged_tokens = 4096;
RequestCharge charge_for(const GenerationFields& fields, const RequestSize& size);

// Refuses with `too_long` what no request may take.
Result<void> check_charge(const RequestCharge& charge, const RequestLimits& limits);

// The limits of one request where its client has so many bytes.
RequestLimits limits_within(std::size_t client_bytes);

}  // namespace motley::server
