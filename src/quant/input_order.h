#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace motley::quant {

// Columns by their groups, those of one group as they stand: column k of the sorted weight belongs
// to input order[k].
std::vector<std::int32_t> order_by_group(const std::vector<std::int32_t>& groups);

// Rows of codes of 4 or 8 bits, each from a whole byte on.
struct CodeRows {
  std::int64_t rows;
  std::int64_t columns;
  int bits;
};
// Writes rows of those columns alone, in that order. A column of no_column has the code `filler`.
// `to` may be `from` if there are as many columns as before.
inline constexpr std::int32_t no_column = -1;
void take_columns(const CodeRows& codes, std::span<const std::int32_t> columns,
                  const std::byte* from, std::byte* to, std::uint8_t filler = 0);

}  // namespace motley::quant
