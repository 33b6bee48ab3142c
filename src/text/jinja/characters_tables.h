#pragma once

#include <cstddef>
#include <cstdint>

// The tables behind characters.h.
namespace motley::text::jinja {

// Characters first, first + step, ... last become themselves + delta.
struct CaseRange {
  char32_t first;
  char32_t last;
  int step;
  int delta;
};

// A character that becomes two or three; unused places are 0.
struct CaseExpansion {
  char32_t from;
  char32_t to[3];
};

// Runs of characters with the same properties: the first character << 10 | properties.
extern const std::uint32_t character_runs[];
extern const std::size_t character_run_count;

extern const CaseRange lower_ranges[];
extern const std::size_t lower_range_count;
extern const CaseExpansion lower_expansions[];
extern const std::size_t lower_expansion_count;

extern const CaseRange upper_ranges[];
extern const std::size_t upper_range_count;
extern const CaseExpansion upper_expansions[];
extern const std::size_t upper_expansion_count;

extern const CaseRange title_ranges[];
extern const std::size_t title_range_count;
extern const CaseExpansion title_expansions[];
extern const std::size_t title_expansion_count;

}  // namespace motley::text::jinja
