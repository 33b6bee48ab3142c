#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/requests/sampling_params.h"
#include "lora/scaled_adapter.h"

namespace motley::engine {

// Unique during the lifetime of an engine.
using RequestId = std::uint64_t;

inline constexpr int max_choices = 128;
inline constexpr int max_top_logprobs = 20;       // of an answer's tokens
inline constexpr int max_prompt_logprobs = 1024;  // of a prompt's, where the executor allows it
inline constexpr int max_named_tokens = 128;      // with a token, as above

// Tokens that a request names for each place of its prompt whose log-probabilities it wants.
struct NamedTokens {
  int width = 0;                       // for each place; 0: none
  std::vector<std::int32_t> ids = {};  // [places, width]; negative: none
};

// A prompt to continue, once or several times.
struct Request {
  std::vector<std::int32_t> tokens;  // the prompt; at least one
  // The prompt's tokens before its generation prompt, with which the conversation's next prompt
  // begins too, whatever the template makes of the answer; 0: not known.
  std::int64_t conversation_tokens = 0;
  // Empty: the base. Names are resolved when the request begins to run, so it never uses content
  // that was replaced before.
  std::vector<lora::ScaledAdapter> adapters = {};
  SamplingParams sampling = {};
  // For each choice. 0 only computes the prompt, for use with prompt_logprobs.
  std::int64_t max_tokens = 16;
  // Tokens that end a choice: the model's own, which `ignore_eos` turns into ordinary tokens, and
  // the client's. The token that ended it is delivered last. choice_ends() says which count.
  std::vector<std::int32_t> end_ids = {};
  std::vector<std::int32_t> stop_ids = {};
  int choices = 1;  // `n`
  // Within the requests of its client: higher ones begin first, and may preempt running lower ones.
  int priority = 0;
  // The sender, for fairness between clients: an address without its port, or another identifier.
  // Of weight 3 it gets three times the tokens of others.
  std::string client = {};
  std::uint32_t client_weight = 1;
  // The server's own: appears in no count of requests and their tokens.
  bool internal = false;
  // Prompt pages are shared only among requests with the same salt.
  std::string cache_salt = {};
  // Log-probabilities of the prompt's tokens from `prompt_first` on, each with `prompt_top`
  // alternatives and with those of the tokens that are named for its place.
  bool prompt_logprobs = false;
  std::int64_t prompt_first = 1;
  int prompt_top = 0;
  NamedTokens prompt_named = {};
  // The experts of the tokens from this position on, at most the prompt's end. Nothing: of none.
  // Tokens after it are not found in the prefix cache, which has no experts.
  std::optional<std::int64_t> routed_experts_from = {};

  // The tokens that end a choice of this request, ascending.
  std::vector<std::int32_t> choice_ends() const {
    std::vector<std::int32_t> ends = stop_ids;
    if (!sampling.ignore_eos) ends.insert(ends.end(), end_ids.begin(), end_ids.end());
    std::ranges::sort(ends);
    return ends;
  }

  // Where the state of a sequence of this length is saved, so that a later prompt begins there:
  // where a page ends.
  std::int64_t reused_up_to(std::int64_t length, std::int64_t page_tokens) const {
    const std::int64_t known = conversation_tokens > 0 ? conversation_tokens : length;
    return std::min(known, length - 1) / page_tokens * page_tokens;
  }
};

}  // namespace motley::engine
