#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace motley::serving {

struct SpecialToken {
  std::int32_t id = 0;
  std::string text;
};

// All special tokens of a tokenizer. Used for every request, so they are listed once.
inline std::vector<SpecialToken> special_tokens(const text::Tokenizer& tokenizer) {
  std::vector<SpecialToken> list;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_special(id)) list.push_back({id, tokenizer.bytes_of(id)});
  }
  return list;
}

}  // namespace motley::serving
