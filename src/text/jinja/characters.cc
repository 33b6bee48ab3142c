#include "text/jinja/characters.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "text/jinja/characters_tables.h"

namespace motley::text::jinja {
namespace {

constexpr std::uint32_t property_bits = 10;

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

const CaseRange* find_range(std::span<const CaseRange> ranges, char32_t character) {
  const auto after = std::ranges::upper_bound(ranges, character, {}, &CaseRange::first);
  if (after == ranges.begin()) return nullptr;
  // Ranges of step 2 interleave: upper case in one, its neighbour in the next.
  for (auto range = after; range != ranges.begin() && after - range < 3;) {
    --range;
    if (character <= range->last &&
        (character - range->first) % static_cast<char32_t>(range->step) == 0)
      return &*range;
  }
  return nullptr;
}

const CaseExpansion* find_expansion(std::span<const CaseExpansion> expansions, char32_t character) {
  const auto found = std::ranges::lower_bound(expansions, character, {}, &CaseExpansion::from);
  return found != expansions.end() && found->from == character ? &*found : nullptr;
}

}  // namespace

std::uint16_t properties(char32_t character) {
  const std::span runs(character_runs, character_run_count);
  const auto after =
      std::ranges::upper_bound(runs, static_cast<std::uint32_t>(character), {},
                               [](std::uint32_t run) { return run >> property_bits; });
  return static_cast<std::uint16_t>(*(after - 1) & ((1U << property_bits) - 1));
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
  std::span<const CaseRange> ranges;
  std::span<const CaseExpansion> expansions;
  switch (wanted) {
    case Case::lower:
      ranges = {lower_ranges, lower_range_count};
      expansions = {lower_expansions, lower_expansion_count};
      break;
    case Case::upper:
      ranges = {upper_ranges, upper_range_count};
      expansions = {upper_expansions, upper_expansion_count};
      break;
    case Case::title:
      ranges = {title_ranges, title_range_count};
      expansions = {title_expansions, title_expansion_count};
      break;
  }
  if (const CaseExpansion* const several = find_expansion(expansions, character)) {
    for (const char32_t each : several->to) {
      if (each != 0) utf8::append(text, each);
    }
    return;
  }
  const CaseRange* const range = find_range(ranges, character);
  utf8::append(text, range == nullptr ? character
                                      : static_cast<char32_t>(static_cast<std::int64_t>(character) +
                                                              range->delta));
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

std::size_t count_characters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, is_continuation));
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
