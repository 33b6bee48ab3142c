#include "text/unicode/unicode.h"

#include <array>
#include <vector>

#include "base/utf8.h"
#include "text/unicode/point_map.h"
#include "text/unicode/tables.h"

namespace motley::text::unicode {
namespace {

struct Record {
  Category category = Category::Cn;
  std::uint8_t flags = 0;
};

struct Characters {
  std::vector<Record> records;
  PointMap<std::uint8_t> indices;

  const Record& operator[](char32_t code_point) const { return records[indices[code_point]]; }
};

Characters read_characters() {
  Characters characters;
  tables::TableReader records(tables::character_records);
  for (std::uint32_t left = records.number(); left > 0; --left) {
    const auto category = static_cast<Category>(records.number());
    characters.records.push_back(
        {.category = category, .flags = static_cast<std::uint8_t>(records.number())});
  }
  std::vector<std::uint8_t> indices;
  indices.reserve(code_points);
  tables::TableReader runs(tables::character_runs);
  while (indices.size() < code_points) {
    const std::uint32_t length = runs.number();
    indices.insert(indices.end(), length, static_cast<std::uint8_t>(runs.number()));
  }
  characters.indices = PointMap<std::uint8_t>(indices);
  return characters;
}

const Record& record(char32_t code_point) {
  static const Characters characters = read_characters();
  return characters[code_point];
}

bool has_flag(char32_t code_point, std::uint8_t flag) {
  return (record(code_point).flags & flag) != 0;
}

}  // namespace

Category category(char32_t code_point) { return record(code_point).category; }

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= '\t' && code_point <= '\r');
  return has_flag(code_point, tables::white_space_flag);
}

bool is_numeric(char32_t code_point) { return has_flag(code_point, tables::numeric_flag); }

bool is_punctuation(char32_t code_point) { return has_flag(code_point, tables::punctuation_flag); }

bool is_word(char32_t code_point) { return has_flag(code_point, tables::word_flag); }

bool is_combining_mark(char32_t code_point) { return has_flag(code_point, tables::mark_flag); }

std::string without_marks(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded character = utf8::decode(text);
    if (character.code_point < 0x300 || !is_combining_mark(character.code_point))
      kept += text.substr(0, character.length);
    text.remove_prefix(character.length);
  }
  return kept;
}

}  // namespace motley::text::unicode
