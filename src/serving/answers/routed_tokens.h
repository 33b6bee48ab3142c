#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "serving/answers/byte_blocks.h"

namespace motley::serving {

// The experts of tokens that have come so far (engine::RoutedExpertsEvent): of prompts, and of
// choices, which are numbered across all prompts. Takes nothing before the first.
class RoutedTokens {
 public:
  RoutedTokens(std::size_t prompts, std::size_t choices_each)
      : prompts_(prompts), choices_each_(choices_each) {}

  void take_prompt(std::size_t prompt, std::span<const std::uint8_t> ids);
  void take_choice(std::size_t index, std::span<const std::uint8_t> ids);

  // Those of a choice's prompt, from where the request asks for them, and then its own.
  std::size_t bytes(std::size_t index) const;
  // Appends bytes [begin, end) of these.
  void append_to(std::string& text, std::size_t index, std::size_t begin, std::size_t end) const;

  // What those of choices take.
  std::size_t kept_bytes() const { return kept_bytes_; }

 private:
  std::size_t prompts_;
  std::size_t choices_each_;
  std::vector<ByteBlocks> of_prompts_;
  std::vector<ByteBlocks> of_choices_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace motley::serving
