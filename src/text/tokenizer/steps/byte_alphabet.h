#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

// The alphabet of byte-level tokenizers: one printable character for each byte.
namespace motley::text {

// The character of a byte: printable Latin-1 maps to itself, the other 68 bytes, in ascending
// order, to U+0100 and on.
char32_t character_of_byte(std::uint8_t byte);

// The byte of a character, or -1 if it is not in the alphabet.
int byte_of_character(char32_t character);

// Appends each byte as its character.
void append_as_characters(std::string& text, std::string_view bytes);

// Appends the bytes that a token denotes: those of its characters, or the token itself if it has a
// character outside of the alphabet.
void append_bytes_of_token(std::string& bytes, std::string_view token);

}  // namespace motley::text
