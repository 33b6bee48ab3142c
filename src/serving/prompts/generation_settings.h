#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/requests/request.h"
#include "lora/scaled_adapter.h"
#include "text/generation_config.h"

namespace motley::serving {

// How a request's answers are generated, whatever protocol it came in.
struct GenerationSettings {
  std::vector<lora::ScaledAdapter> adapters = {};
  engine::SamplingParams sampling = {};
  std::string_view grammar_field = {};  // of the request, where sampling.grammar comes from
  bool strict_form = false;             // its whole schema must be enforced
  std::optional<std::int64_t> max_tokens = {};
  // Keeps this many last tokens of a prompt; -1: as many as leave space for the answer.
  std::optional<std::int64_t> truncate = {};
  std::optional<bool> add_special_tokens = {};  // around a text; the default depends on the route
  int choices = 1;
  int priority = 0;  // the engine's: higher ones begin first
  std::vector<std::string> stop = {};
  bool include_stop = false;  // in the text
  std::vector<std::int32_t> stop_ids = {};
  bool skip_special = true;                     // in the text
  bool spaces_between_special = true;           // if the decoder inserts them
  std::optional<std::int32_t> prompt_top = {};  // prompt_logprobs, with this many alternatives
  // The prompt's log-probabilities begin after this token; negative: of this many last tokens.
  std::int64_t prompt_start = 0;
  engine::NamedTokens prompt_named = {};  // for each of them
  std::string cache_salt = {};
  // The experts of tokens from this one of the prompt on; nothing: of none.
  std::optional<std::int64_t> routed_experts_from = {};

  bool scores_prompt() const { return prompt_top || prompt_named.width > 0; }
  // The first token of a prompt of this length that has a log-probability.
  std::int64_t first_scored(std::int64_t tokens) const {
    const std::int64_t first = prompt_start >= 0 ? prompt_start + 1 : tokens + prompt_start;
    return std::clamp<std::int64_t>(first, 1, std::max<std::int64_t>(tokens, 1));
  }
};

// Higher temperatures have the same effect: all tokens are equally probable.
inline constexpr double max_temperature = 10'000;
// 0 asks for the most probable token, which the smallest share selects.
inline constexpr float least_top_p = 1e-9F;

// What the model's configuration says of sampling, as the engine takes it.
engine::SamplingParams default_sampling(const text::GenerationConfig& defaults,
                                        std::int64_t vocabulary);

}  // namespace motley::serving
