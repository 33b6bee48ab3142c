#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "text/unicode/code_set.h"

namespace motley::text::regex {

// The distinct sets of a pattern, numbered.
class SetList {
 public:
  std::uint32_t number(const unicode::CodeSet& set);
  std::span<const unicode::CodeSet> sets() const { return sets_; }

 private:
  std::vector<unicode::CodeSet> sets_;
  std::map<unicode::CodeSet, std::uint32_t> numbers_;
};

// One character of valid UTF-8.
struct Character {
  char32_t code_point;
  std::uint32_t length;
};

inline Character character_at(const unsigned char* at) {
  const char32_t lead = at[0];
  if (lead < 0x80) return {.code_point = lead, .length = 1};
  if (lead < 0xE0) return {.code_point = (lead & 0x1F) << 6 | (at[1] & 0x3FU), .length = 2};
  if (lead < 0xF0) {
    return {.code_point = (lead & 0x0F) << 12 | (at[1] & 0x3FU) << 6 | (at[2] & 0x3FU),
            .length = 3};
  }
  return {.code_point =
              (lead & 0x07) << 18 | (at[1] & 0x3FU) << 12 | (at[2] & 0x3FU) << 6 | (at[3] & 0x3FU),
          .length = 4};
}

// Where the character before `at` begins.
inline const unsigned char* character_before(const unsigned char* at) {
  --at;
  while ((*at & 0xC0) == 0x80) --at;
  return at;
}

// Character classes: characters that no set of a pattern distinguishes are in one class. Knows
// which sets contain each class.
class Alphabet {
 public:
  explicit Alphabet(std::span<const unicode::CodeSet> sets);

  std::uint32_t classes() const { return classes_; }

  std::uint32_t ascii_class(unsigned char byte) const { return ascii_[byte]; }
  std::uint32_t class_of(char32_t code_point) const {
    return values_[blocks_[code_point / block] + code_point % block];
  }

  // Whether the set contains each class: a row of classes() bytes, 0 or 1.
  const std::uint8_t* row(std::uint32_t set) const {
    return members_.data() + std::size_t{set} * classes_;
  }

 private:
  static constexpr std::uint32_t block = 64;

  void place(char32_t first, char32_t last, std::uint16_t its_class);

  std::uint32_t classes_ = 0;
  std::array<std::uint16_t, 128> ascii_{};
  std::vector<std::uint32_t> blocks_;  // index into values_ of each block
  std::vector<std::uint16_t> values_;
  std::vector<std::uint32_t> uniform_;  // by class: the block of only that class, plus one
  std::vector<std::uint8_t> members_;
};

}  // namespace motley::text::regex
