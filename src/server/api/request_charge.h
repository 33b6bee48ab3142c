#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "server/api/fields/generation_fields.h"

// Computes what a request may need and send, before it is accepted, from its fields and lengths.
namespace motley::server {

// The inputs of the charge.
struct RequestSize {
  std::size_t prompts = 1;
  std::size_t prompt_tokens = 0;  // of all prompts
  std::size_t prompt_bytes = 0;   // of their text, if it is kept for echoing
  std::size_t tools_bytes = 0;    // of the tools' JSON, which all choices share
  std::int64_t room_tokens = 0;   // left for an answer in the longest sequence
  bool echo = false;
  bool chat = false;
  bool numbers = false;  // tokens are sent as numbers, with or without text
  // For a response: it repeats its request this many times, and a stream repeats its items at their
  // end and at its own.
  bool response = false;
  std::size_t repeated_bytes = 0;
};

struct RequestCharge {
  std::size_t memory_bytes = 0;    // upper bound at any time
  std::size_t admitted_bytes = 0;  // of these, at acceptance
  std::size_t kept_bytes = 0;      // of the admitted bytes, for what is kept of the answer
  std::size_t answer_bytes = 0;    // of the body or stream, which is written in pieces
  std::string fields;              // those it depends on, with their values: "n 128, logprobs 20"
};

struct RequestLimits {
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::size_t answer_bytes = std::size_t{512} << 20;
};

// At acceptance a choice is charged for at most this many tokens, and for further ones as they are
// generated, because few choices use their full length. If the request leaves the length open, the
// limits also assume this number.
inline constexpr std::int64_t charged_tokens = 4096;
RequestCharge charge_for(const GenerationFields& fields, const RequestSize& size);

// Refuses with `too_long` if the charge exceeds the limits.
Result<void> check_charge(const RequestCharge& charge, const RequestLimits& limits);

// The limits of one request of a client that may use this many bytes.
RequestLimits limits_within(std::size_t client_bytes);

}  // namespace motley::server
