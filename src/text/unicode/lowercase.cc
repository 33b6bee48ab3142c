#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/unicode/case_map.h"
#include "text/unicode/tables.h"
#include "text/unicode/unicode.h"

namespace motley::text::unicode {
CaseMap::CaseMap(std::string_view numbers) {
  std::vector<std::uint16_t> indices(code_points);
  tables::TableReader table(numbers);
  std::uint32_t point = 0;
  for (std::uint32_t left = table.number(); left > 0; --left) {
    point += table.number();
    std::string text;
    for (std::uint32_t length = table.number(); length > 0; --length)
      utf8::append(text, point + static_cast<std::uint32_t>(table.signed_number()));
    texts_.push_back(std::move(text));
    indices[point] = static_cast<std::uint16_t>(texts_.size());
  }
  indices_ = PointMap<std::uint16_t>(indices);
}

std::string lowercase(std::string_view text) {
  static const CaseMap lower(tables::lowercase);
  std::string written;
  written.reserve(text.size());
  while (!text.empty()) {
    if (static_cast<unsigned char>(text[0]) < 0x80) {
      written += ascii::lower(text[0]);
      text.remove_prefix(1);
      continue;
    }
    const utf8::Decoded character = utf8::decode(text);
    const std::string* const mapped = lower.find(character.code_point);
    written += mapped == nullptr ? text.substr(0, character.length) : *mapped;
    text.remove_prefix(character.length);
  }
  return written;
}

}  // namespace motley::text::unicode
