#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"

namespace motley::engine {

struct TopLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

// The next token of a choice. Spans in events are valid only during the call.
struct TokenEvent {
  int choice = 0;
  std::int32_t token = 0;
  float logprob = 0;                     // if the request asks for log-probabilities
  std::span<const TopLogprob> top = {};  // the most probable first
};

// Log-probabilities of a piece of the prompt, in order of tokens: entry i is that of token `first +
// i` given those before it. The first token of a prompt has none, so the first piece begins at 1.
struct PromptEvent {
  std::int64_t first = 0;
  std::span<const float> logprobs = {};  // [pieces]
  // [pieces], or empty: among all tokens by log-probability, from 1 on; equal ones by rising id.
  std::span<const std::int32_t> ranks = {};
  std::span<const TopLogprob> top = {};  // [pieces, prompt_top]: the most probable tokens there
};

enum class FinishReason : std::uint8_t {
  stop,       // a token of end_ids or stop_ids, or the grammar has ended
  length,     // max_tokens, or the longest sequence that the model or the memory allows
  cancelled,  // by cancel()
};

struct ChoiceEvent {
  int choice = 0;
  FinishReason reason = FinishReason::stop;
  std::optional<std::int32_t> stop_token = {};  // the token that ended it, if any
};

// Sent when the request begins to run.
struct StartEvent {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;  // of all choices
};

// Receives the events of a request, on the engine's thread, one call at a time. It must not block,
// call the engine and wait for the result (cancel() is fine), or throw: a sink that runs out of
// memory reports that to its client itself. Exactly one of finished() and failed() is called last;
// then the engine releases the sink.
class RequestSink {
 public:
  virtual ~RequestSink() = default;

  virtual void started(const StartEvent& event) = 0;
  virtual void prompt_scored(const PromptEvent& event) = 0;
  virtual void token(const TokenEvent& event) = 0;
  virtual void choice_finished(const ChoiceEvent& event) = 0;
  // All choices are finished.
  virtual void finished(const Usage& usage) = 0;
  // The request has failed, whatever was delivered before.
  virtual void failed(const Error& error) = 0;
};

}  // namespace motley::engine
