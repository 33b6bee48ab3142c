#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// The tables that tools/make_unicode_tables.py writes. All but the names are numbers to be
// read with TableReader.
namespace motley::text::unicode::tables {

// Bits of a character's flags.
inline constexpr std::uint8_t numeric_flag = 1;
inline constexpr std::uint8_t punctuation_flag = 2;
inline constexpr std::uint8_t word_flag = 4;
inline constexpr std::uint8_t mark_flag = 8;
inline constexpr std::uint8_t white_space_flag = 16;

// Number of distinct records; for each its category and flags.
extern const std::string_view character_records;
// Runs of characters from U+0000 on: length, index of a record.
extern const std::string_view character_runs;

// Sorted by name, which is in lower case and without blanks, hyphens and underscores.
struct PropertyName {
  std::string_view name;
  std::uint16_t set;
};
extern const std::span<const PropertyName> property_names;
// Sets of characters, one after the other: number of ranges; for each the distance from the end of
// the one before, and its length less one.
extern const std::string_view property_sets;

// Number of classes of characters that fold together; for each its size, the folded character
// (signed, from that of the class before) and the others (signed, from the folded one).
// Then number of foldings to several characters; for each these, and the characters that fold to
// them, both as a number and as many characters.
extern const std::string_view foldings;

// To be read with CaseMap.
extern const std::string_view lowercase;

// Number of classes; for each its number, and a set as in property_sets.
extern const std::string_view combining_classes;

// Number of characters; for each the distance from the one before, and the full decomposition as a
// number and as many characters. Without Hangul; the compatible ones only where they differ.
extern const std::string_view canonical_decompositions;
extern const std::string_view compatible_decompositions;

// Number of pairs; for each the first character's distance from that of the pair before, the
// second character, and what they compose to. Without Hangul.
extern const std::string_view compositions;

// Reads numbers of five bits per character, low bits first; the sixth bit means that more follow.
class TableReader {
 public:
  explicit TableReader(std::string_view text) : at_(text.data()) {}

  std::uint32_t number() {
    std::uint32_t value = 0;
    for (int shift = 0;; shift += 5) {
      while (*at_ == '\n') ++at_;
      const auto digit = static_cast<std::uint32_t>(*at_++ - '0');
      value |= (digit & 31) << shift;
      if (digit < 32) return value;
    }
  }

  // Even numbers are non-negative, odd ones negative.
  std::int32_t signed_number() {
    const std::uint32_t value = number();
    const auto half = static_cast<std::int32_t>(value >> 1);
    return (value & 1) != 0 ? -half - 1 : half;
  }

 private:
  const char* at_;
};

}  // namespace motley::text::unicode::tables
