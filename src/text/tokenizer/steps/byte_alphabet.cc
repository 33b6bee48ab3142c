#include "text/tokenizer/steps/byte_alphabet.h"

#include <cstddef>

#include "base/utf8.h"

namespace motley::text {
namespace {

constexpr char32_t end_of_alphabet = 0x100 + 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char16_t, 256> characters{};
  std::array<std::int16_t, end_of_alphabet> bytes{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char16_t character = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
    alphabet.characters[static_cast<std::size_t>(byte)] = character;
    alphabet.bytes[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet alphabet = make_alphabet();

}  // namespace

char32_t character_of_byte(std::uint8_t byte) { return alphabet.characters[byte]; }

int byte_of_character(char32_t character) {
  return character < end_of_alphabet ? alphabet.bytes[character] : -1;
}

void append_as_characters(std::string& text, std::string_view bytes) {
  for (const char byte : bytes)
    utf8::append(text, character_of_byte(static_cast<std::uint8_t>(byte)));
}

void append_bytes_of_token(std::string& bytes, std::string_view token) {
  const std::size_t start = bytes.size();
  for (std::size_t at = 0; at < token.size(); ++at) {
    // Characters of the alphabet have one or two bytes, and tokens are valid UTF-8.
    const auto lead = static_cast<std::uint8_t>(token[at]);
    int byte = -1;
    if (lead < 0x80) {
      byte = byte_of_character(lead);
    } else if (lead < 0xE0) {
      const auto trail = static_cast<std::uint8_t>(token[++at]);
      byte = byte_of_character(static_cast<char32_t>((lead & 0x1F) << 6 | (trail & 0x3F)));
    }
    if (byte < 0) {
      bytes.resize(start);
      bytes += token;
      return;
    }
    bytes.push_back(static_cast<char>(byte));
  }
}

}  // namespace motley::text
