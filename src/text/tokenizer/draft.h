#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace motley::text {

// A text while normalizers rewrite it, before it goes to the model. Valid UTF-8.
struct Draft {
  std::string text;
  // By byte: whether it comes from untrusted text, at least in part. Empty if nothing does.
  std::vector<std::uint8_t> untrusted;
  // Whether the text still begins with the original begin.
  bool opens = true;
};

// Refuses a text that has grown more than by any reasonable normalizer: a file may list several
// that each write several characters for one.
inline Result<void> check_growth(std::size_t original_bytes, std::size_t bytes) {
  if (bytes <= 100 * original_bytes + 4096) return {};
  return Error(ErrorCode::unsupported, "the tokenizer makes a text more than 100 times as long",
               "tokenizer.json", "look at the steps of its normalizer and pre_tokenizer");
}

}  // namespace motley::text
