#include "text/tokenizer/steps/white_space.h"

#include "base/utf8.h"
#include "text/tokenizer/character_at.h"
#include "text/unicode/unicode.h"

namespace motley::text {

LastCharacter last_character(std::string_view text) {
  std::size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return {.code_point = character_at(text, start).code_point, .length = text.size() - start};
}

std::size_t leading_white_space(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const utf8::Decoded character = character_at(text, length);
    if (!unicode::is_white_space(character.code_point)) break;
    length += character.length;
  }
  return length;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t start = text.size();
  while (start > 0) {
    const LastCharacter character = last_character(text.substr(0, start));
    if (!unicode::is_white_space(character.code_point)) break;
    start -= character.length;
  }
  return text.size() - start;
}

}  // namespace motley::text
