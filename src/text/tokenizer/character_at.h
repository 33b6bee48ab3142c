#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/utf8.h"

namespace motley::text {

// The character at a byte of a text: utf8::decode() with a fast path for ASCII.
inline utf8::Decoded character_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<std::uint8_t>(text[at]);
  if (byte < 0x80) return {.code_point = byte, .length = 1, .valid = true};
  return utf8::decode(text.substr(at));
}

}  // namespace motley::text
