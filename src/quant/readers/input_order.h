#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley::quant {

// Columns by their groups, those of one group as they stand: column k of the sorted weight belongs
// to input order[k].
std::vector<std::int32_t> order_by_group(const std::vector<std::int32_t>& groups);

// Rows of codes of 4 or 8 bits with their columns in that order. `to` may be `from`.
struct CodeRows {
  std::int64_t rows;
  std::int64_t columns;
  int bits;
};
void sort_columns(const CodeRows& codes, const std::vector<std::int32_t>& order,
                  const std::byte* from, std::byte* to);

}  // namespace motley::quant
