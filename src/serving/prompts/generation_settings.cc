#include "serving/prompts/generation_settings.h"

#include <algorithm>

namespace motley::serving {

engine::SamplingParams default_sampling(const text::GenerationConfig& defaults,
                                        std::int64_t vocabulary) {
  engine::SamplingParams params;
  params.temperature =
      static_cast<float>(std::min<double>(defaults.temperature.value_or(1), max_temperature));
  params.top_p = std::max(static_cast<float>(defaults.top_p.value_or(1)), least_top_p);
  // A larger number than the vocabulary means all tokens.
  params.top_k = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(defaults.top_k.value_or(0), 0, vocabulary));
  params.min_p = static_cast<float>(defaults.min_p.value_or(0));
  params.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(1));
  return params;
}

}  // namespace motley::serving
