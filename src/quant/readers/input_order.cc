#include "quant/readers/input_order.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace motley::quant {
namespace {

// Two codes a byte, the low half first, to a byte each; the half behind the last code is dropped.
void spread_halves(const std::byte* from, std::int64_t columns, std::uint8_t* to) {
  for (std::int64_t pair = 0; pair < columns / 2; ++pair) {
    const auto both = static_cast<std::uint8_t>(from[pair]);
    to[2 * pair] = both & 15U;
    to[2 * pair + 1] = both >> 4U;
  }
  if (columns % 2 != 0) to[columns - 1] = static_cast<std::uint8_t>(from[columns / 2]) & 15U;
}

void sort_row_of_halves(const std::vector<std::uint8_t>& codes,
                        const std::vector<std::int32_t>& order, std::byte* to) {
  const auto code = [&](std::size_t k) {
    return unsigned{codes[static_cast<std::size_t>(order[k])]};
  };
  const std::size_t columns = order.size();
  for (std::size_t k = 0; k + 1 < columns; k += 2)
    to[k / 2] = static_cast<std::byte>(code(k) | code(k + 1) << 4U);
  if (columns % 2 != 0) to[columns / 2] = static_cast<std::byte>(code(columns - 1));
}

}  // namespace

std::vector<std::int32_t> order_by_group(const std::vector<std::int32_t>& groups) {
  std::vector<std::int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](std::int32_t input) { return groups[static_cast<std::size_t>(input)]; });
  return order;
}

void sort_columns(const CodeRows& codes, const std::vector<std::int32_t>& order,
                  const std::byte* from, std::byte* to) {
  const std::int64_t row_bytes = (codes.columns * codes.bits + 7) / 8;
  std::vector<std::uint8_t> row(order.size());
  for (std::int64_t o = 0; o < codes.rows; ++o, from += row_bytes, to += row_bytes) {
    if (codes.bits == 4) {
      spread_halves(from, codes.columns, row.data());
      sort_row_of_halves(row, order, to);
      continue;
    }
    std::memcpy(row.data(), from, row.size());
    for (std::size_t k = 0; k < order.size(); ++k)
      to[k] = static_cast<std::byte>(row[static_cast<std::size_t>(order[k])]);
  }
}

}  // namespace motley::quant
