#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/point_map.h"

namespace motley::text::unicode {

// What characters become in another case, one to several characters each.
class CaseMap {
 public:
  // `numbers` is a table: number of characters; for each the distance from the one before, the
  // number of characters it becomes, and these (signed, from itself).
  explicit CaseMap(std::string_view numbers);

  // As UTF-8; null for a character that stays.
  const std::string* find(char32_t code_point) const {
    const std::uint16_t index = indices_[code_point];
    return index == 0 ? nullptr : &texts_[index - 1U];
  }

 private:
  std::vector<std::string> texts_;
  PointMap<std::uint16_t> indices_;  // of the text, plus one
};

}  // namespace motley::text::unicode
