#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Properties and normal forms of characters as the `tokenizers` package implements them. Its parts
// use different versions of Unicode, and so do these functions: each says which.
namespace motley::text::unicode {

// Named as Unicode names them.
// NOLINTBEGIN(readability-identifier-naming)
enum class Category : std::uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn
};
// NOLINTEND(readability-identifier-naming)

// As \p{..} of regular expressions, Unicode 16.
Category category(char32_t code_point);

// The property White_Space, which is the same in all versions.
bool is_white_space(char32_t code_point);

// A number of any kind (Nd, Nl, No) as the pre-tokenizer Digits sees it, Unicode 17.
bool is_numeric(char32_t code_point);

// Punctuation and the symbols of ASCII as the pre-tokenizers Punctuation and BertPreTokenizer see
// them, Unicode 8.
bool is_punctuation(char32_t code_point);

// \w of the pre-tokenizer Whitespace and of added tokens that are single words, Unicode 16:
// Alphabetic, marks, decimal digits, connectors and joiners.
bool is_word(char32_t code_point);

// A mark (Mn, Mc, Me) as the normalizer StripAccents sees it, Unicode 9.
bool is_combining_mark(char32_t code_point);

// Normal forms of valid UTF-8, Unicode 9.
std::string nfc(std::string_view text);
std::string nfd(std::string_view text);
std::string nfkc(std::string_view text);
std::string nfkd(std::string_view text);

// Full lower case without context or language, character by character, Unicode 17.
std::string lowercase(std::string_view text);

// Without combining marks.
std::string without_marks(std::string_view text);

}  // namespace motley::text::unicode
