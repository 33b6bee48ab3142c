#include "serving/answers/routed_tokens.h"

namespace motley::serving {

void RoutedTokens::take_prompt(std::size_t prompt, std::span<const std::uint8_t> ids) {
  of_prompts_.resize(prompts_);
  of_prompts_[prompt].append(ids);
}

void RoutedTokens::take_choice(std::size_t index, std::span<const std::uint8_t> ids) {
  of_choices_.resize(prompts_ * choices_each_);
  ByteBlocks& all = of_choices_[index];
  kept_bytes_ -= all.capacity();
  all.append(ids);
  kept_bytes_ += all.capacity();
}

std::size_t RoutedTokens::bytes(std::size_t index) const {
  const std::size_t prompt = of_prompts_.empty() ? 0 : of_prompts_[index / choices_each_].size();
  return prompt + (of_choices_.empty() ? 0 : of_choices_[index].size());
}

void RoutedTokens::append_to(std::string& text, std::size_t index, std::size_t begin,
                             std::size_t end) const {
  std::size_t before = 0;
  if (!of_prompts_.empty()) {
    const ByteBlocks& prompt = of_prompts_[index / choices_each_];
    prompt.append_to(text, begin, end);
    before = prompt.size();
  }
  if (of_choices_.empty() || end <= before) return;
  of_choices_[index].append_to(text, begin > before ? begin - before : 0, end - before);
}

}  // namespace motley::serving
