#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampling/sampling_params.h"

namespace motley::engine {

// Unique for the life of an engine.
using RequestId = std::uint64_t;

inline constexpr int max_choices = 128;
inline constexpr int max_top_logprobs = 20;

// An adapter of a request and how much of it.
struct ScaledAdapter {
  std::string name;
  float scale = 1;

  friend auto operator<=>(const ScaledAdapter&, const ScaledAdapter&) = default;
};

// Continue a prompt, once or several times.
struct Request {
  std::vector<std::int32_t> tokens;  // the prompt; at least one
  // None is the base. Names are resolved when the request begins to run, so that it never meets
  // content that was replaced before.
  std::vector<ScaledAdapter> adapters = {};
  SamplingParams sampling = {};
  // Of each choice. 0 computes the prompt only, which makes sense with prompt_logprobs.
  std::int64_t max_tokens = 16;
  // Tokens that end a choice: the model's own, which `ignore_eos` makes plain ones, and the
  // client's. The token that ended it is delivered as its last.
  std::vector<std::int32_t> end_ids = {};
  std::vector<std::int32_t> stop_ids = {};
  int choices = 1;  // `n`
  // Among the requests of its client: higher ones begin first, and may preempt running lower ones.
  int priority = 0;
  // The sender: clients take turns. An address without its port, or anything that keeps them
  // apart.
  std::string client = {};
  // Pages of prompts are shared among requests of the same salt alone.
  std::string cache_salt = {};
  // Log-probabilities of the prompt's tokens, with `sampling.top_logprobs` tops (for `echo`).
  bool prompt_logprobs = false;
};

}  // namespace motley::engine
