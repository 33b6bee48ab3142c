#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/point_map.h"

namespace motley::text::unicode {

// Maps characters to another case, each to one to several characters.
class CaseMap {
 public:
  // `numbers` is a table: number of characters; for each the distance from the one before, the
  // number of characters it becomes, and these (signed, from itself).
  explicit CaseMap(std::string_view numbers);

  // As UTF-8; null if the character does not change.
  const std::string* find(char32_t code_point) const {
    const std::uint16_t index = indices_[code_point];
    return index == 0 ? nullptr : &texts_[index - 1U];
  }

 private:
  std::vector<std::string> texts_;
  PointMap<std::uint16_t> indices_;  // of the text, plus one
};

}  // namespace motley::text::unicode
