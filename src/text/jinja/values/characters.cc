#include "text/jinja/values/characters.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "text/jinja/values/characters_tables.h"
#include "text/unicode/case_map.h"
#include "text/unicode/point_map.h"
#include "text/unicode/tables.h"

namespace motley::text::jinja {
namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

unicode::PointMap<std::uint16_t> read_properties() {
  std::vector<std::uint16_t> all;
  all.reserve(unicode::code_points);
  unicode::tables::TableReader table(tables::properties);
  while (all.size() < unicode::code_points) {
    const std::uint32_t length = table.number();
    all.insert(all.end(), length, static_cast<std::uint16_t>(table.number()));
  }
  return unicode::PointMap<std::uint16_t>(all);
}

const std::string* mapped(char32_t character, Case wanted) {
  static const unicode::CaseMap lower(tables::lower_case);
  static const unicode::CaseMap upper(tables::upper_case);
  static const unicode::CaseMap title(tables::title_case);
  if (wanted == Case::lower) return lower.find(character);
  const std::string* const titled = wanted == Case::title ? title.find(character) : nullptr;
  return titled != nullptr ? titled : upper.find(character);
}

}  // namespace

std::uint16_t properties(char32_t character) {
  static const unicode::PointMap<std::uint16_t> all = read_properties();
  return all[character];
}

bool is_line_end(char32_t character) {
  return (character >= 0x0A && character <= 0x0D) || (character >= 0x1C && character <= 0x1E) ||
         character == 0x85 || character == 0x2028 || character == 0x2029;
}

bool all_in_case(std::string_view text, std::uint16_t wanted) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    at += character.bytes;
    const std::uint16_t cases = properties(character.code_point) & (lower | upper | title);
    if ((cases & ~wanted) != 0) return false;
    any = any || cases != 0;
  }
  return any;
}

void append_in_case(std::string& text, char32_t character, Case wanted) {
  if (const std::string* const text_of = mapped(character, wanted))
    text += *text_of;
  else
    utf8::append(text, character);
}

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {.code_point = byte, .bytes = 1};
  const utf8::Decoded decoded = utf8::decode(text.substr(at));
  return {.code_point = decoded.code_point, .bytes = decoded.length};
}

std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && is_continuation(text[at])) --at;
  return at;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    ++at;
    while (at < text.size() && is_continuation(text[at])) ++at;
  }
  return at;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text,
                             [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

}  // namespace motley::text::jinja
