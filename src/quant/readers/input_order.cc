#include "quant/readers/input_order.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

namespace motley::quant {
namespace {

// Rows that are sorted together: a line has one byte of each.
constexpr std::size_t tile_rows = 16;
using Line [[gnu::vector_size(tile_rows)]] = std::uint8_t;

// 16 bytes each of 16 rows become 16 lines, or the other way round; both `stride` bytes apart.
void transpose(const std::byte* from, std::size_t from_stride, std::byte* to,
               std::size_t to_stride) {
  std::array<Line, 16> a{};
  for (std::size_t i = 0; i < 16; ++i) std::memcpy(&a[i], from + i * from_stride, sizeof(Line));
  // Each round takes one bit of a byte's row to its column.
  for (int round = 0; round < 4; ++round) {
    std::array<Line, 16> b{};
    for (std::size_t i = 0; i < 8; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                         6, 22, 7, 23);
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                             13, 29, 14, 30, 15, 31);
    }
    a = b;
  }
  for (std::size_t i = 0; i < 16; ++i) std::memcpy(to + i * to_stride, &a[i], sizeof(Line));
}

// Lines of one code a byte from those of the rows, whose bytes have two where bits are 4.
void spread(const std::vector<Line>& lines, int bits, std::vector<Line>& codes) {
  if (bits == 8) {
    std::ranges::copy(lines, codes.begin());
    return;
  }
  for (std::size_t at = 0; at < lines.size(); ++at) {
    codes[2 * at] = lines[at] & 15;
    codes[2 * at + 1] = lines[at] >> 4;
  }
}

// The other way, with the codes in that order.
void pick(const std::vector<Line>& codes, const std::vector<std::int32_t>& order, int bits,
          std::vector<Line>& lines) {
  const auto code = [&](std::size_t k) { return codes[static_cast<std::size_t>(order[k])]; };
  if (bits == 8) {
    for (std::size_t k = 0; k < order.size(); ++k) lines[k] = code(k);
    return;
  }
  const std::size_t pairs = order.size() / 2;
  for (std::size_t at = 0; at < pairs; ++at) lines[at] = code(2 * at) | code(2 * at + 1) << 4;
  if (order.size() % 2 != 0) lines[pairs] = code(2 * pairs);
}

}  // namespace

std::vector<std::int32_t> order_by_group(const std::vector<std::int32_t>& groups) {
  std::vector<std::int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int32_t input) {
    return std::pair{groups[static_cast<std::size_t>(input)], input};
  });
  return order;
}

void sort_columns(const CodeRows& codes, const std::vector<std::int32_t>& order,
                  const std::byte* from, std::byte* to) {
  const auto columns = static_cast<std::size_t>(codes.columns);
  const std::size_t row_bytes = (columns * static_cast<std::size_t>(codes.bits) + 7) / 8;
  const std::size_t padded = (row_bytes + tile_rows - 1) / tile_rows * tile_rows;
  std::vector<std::byte> rows(tile_rows * padded);
  std::vector<Line> lines(padded);
  std::vector<Line> each(padded * static_cast<std::size_t>(8 / codes.bits));
  auto* const line_bytes = reinterpret_cast<std::byte*>(lines.data());
  for (std::int64_t first = 0; first < codes.rows; first += std::int64_t{tile_rows}) {
    const auto count =
        static_cast<std::size_t>(std::min(std::int64_t{tile_rows}, codes.rows - first));
    const auto offset = static_cast<std::size_t>(first) * row_bytes;
    // Tiles that are not whole go through rows that are.
    const bool whole = count == tile_rows && row_bytes == padded;
    for (std::size_t row = 0; !whole && row < count; ++row)
      std::memcpy(&rows[row * padded], from + offset + row * row_bytes, row_bytes);
    const std::byte* const unsorted = whole ? from + offset : rows.data();
    std::byte* const sorted = whole ? to + offset : rows.data();
    for (std::size_t at = 0; at < padded; at += tile_rows)
      transpose(unsorted + at, padded, line_bytes + at * sizeof(Line), sizeof(Line));
    spread(lines, codes.bits, each);
    pick(each, order, codes.bits, lines);
    for (std::size_t at = 0; at < padded; at += tile_rows)
      transpose(line_bytes + at * sizeof(Line), sizeof(Line), sorted + at, padded);
    for (std::size_t row = 0; !whole && row < count; ++row)
      std::memcpy(to + offset + row * row_bytes, &rows[row * padded], row_bytes);
  }
}

}  // namespace motley::quant
