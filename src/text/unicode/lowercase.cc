#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/unicode/point_map.h"
#include "text/unicode/tables.h"
#include "text/unicode/unicode.h"

namespace motley::text::unicode {
namespace {

struct LowerCase {
  // What characters become, as UTF-8; the first is that of those which stay.
  std::vector<std::string> texts;
  PointMap<std::uint16_t> indices;
};

LowerCase read_lowercase() {
  LowerCase lower;
  lower.texts.emplace_back();
  std::vector<std::uint16_t> indices(code_points);
  tables::TableReader table(tables::lowercase);
  std::uint32_t point = 0;
  for (std::uint32_t left = table.number(); left > 0; --left) {
    point += table.number();
    std::string text;
    for (std::uint32_t length = table.number(); length > 0; --length)
      utf8::append(text, point + static_cast<std::uint32_t>(table.signed_number()));
    indices[point] = static_cast<std::uint16_t>(lower.texts.size());
    lower.texts.push_back(std::move(text));
  }
  lower.indices = PointMap<std::uint16_t>(indices);
  return lower;
}

}  // namespace

std::string lowercase(std::string_view text) {
  static const LowerCase lower = read_lowercase();
  std::string written;
  written.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x80) {
      const bool upper = first >= 'A' && first <= 'Z';
      written += static_cast<char>(upper ? first + ('a' - 'A') : first);
      text.remove_prefix(1);
      continue;
    }
    const utf8::Decoded character = utf8::decode(text);
    const std::uint16_t index = lower.indices[character.code_point];
    written += index == 0 ? text.substr(0, character.length) : lower.texts[index];
    text.remove_prefix(character.length);
  }
  return written;
}

}  // namespace motley::text::unicode
