#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace motley::text {

// A text on its way from its writers to the model: valid UTF-8 that normalizers rewrite.
struct Draft {
  std::string text;
  // One entry a byte: whether it comes from untrusted text, in whole or in part. Empty if nothing
  // does.
  std::vector<std::uint8_t> untrusted;
  // Whether the text still begins with what its writers began with.
  bool opens = true;
};

// Refuses a text that steps have made longer than any sane ones do: a file may list steps each of
// which writes several characters for one.
inline Result<void> check_growth(std::size_t original_bytes, std::size_t bytes) {
  if (bytes <= 100 * original_bytes + 4096) return {};
  return Error(ErrorCode::unsupported, "the tokenizer makes a text more than 100 times as long",
               "tokenizer.json", "look at the steps of its normalizer and pre_tokenizer");
}

}  // namespace motley::text
