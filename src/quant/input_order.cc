#include "quant/input_order.h"

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
void spread(std::span<const Line> lines, int bits, std::vector<Line>& codes) {
  if (bits == 8) {
    std::ranges::copy(lines, codes.begin());
    return;
  }
  for (std::size_t at = 0; at < lines.size(); ++at) {
    codes[2 * at] = lines[at] & 15;
    codes[2 * at + 1] = lines[at] >> 4;
  }
}

// The other way, with the columns that are asked for. Behind the last code is that of no column.
void pick(std::span<const Line> codes, std::span<const std::int32_t> columns, int bits,
          std::span<Line> lines) {
  const auto code = [&](std::size_t k) {
    const std::int32_t column = columns[k];
    return column == no_column ? codes.back() : codes[static_cast<std::size_t>(column)];
  };
  if (bits == 8) {
    for (std::size_t k = 0; k < columns.size(); ++k) lines[k] = code(k);
    return;
  }
  const std::size_t pairs = columns.size() / 2;
  for (std::size_t at = 0; at < pairs; ++at) lines[at] = code(2 * at) | code(2 * at + 1) << 4;
  if (columns.size() % 2 != 0) lines[pairs] = code(2 * pairs);
}

// Rows of a tile as lines, one for each byte of a row, padded to whole squares.
class Tile {
 public:
  explicit Tile(std::size_t row_bytes)
      : row_bytes_(row_bytes),
        padded_((row_bytes + tile_rows - 1) / tile_rows * tile_rows),
        rows_(tile_rows * padded_),
        lines_(padded_) {}

  std::span<Line> lines() { return lines_; }

  void read(const std::byte* first, std::size_t count) {
    const bool in_place = stands_alone(count);
    for (std::size_t row = 0; !in_place && row < count; ++row)
      std::memcpy(&rows_[row * padded_], first + row * row_bytes_, row_bytes_);
    const std::byte* const rows = in_place ? first : rows_.data();
    for (std::size_t at = 0; at < padded_; at += tile_rows)
      transpose(rows + at, padded_, line_bytes(at), sizeof(Line));
  }
  void write(std::byte* first, std::size_t count) {
    const bool in_place = stands_alone(count);
    std::byte* const rows = in_place ? first : rows_.data();
    for (std::size_t at = 0; at < padded_; at += tile_rows)
      transpose(line_bytes(at), sizeof(Line), rows + at, padded_);
    for (std::size_t row = 0; !in_place && row < count; ++row)
      std::memcpy(first + row * row_bytes_, &rows_[row * padded_], row_bytes_);
  }

 private:
  bool stands_alone(std::size_t count) const { return count == tile_rows && row_bytes_ == padded_; }
  std::byte* line_bytes(std::size_t at) { return reinterpret_cast<std::byte*>(&lines_[at]); }

  std::size_t row_bytes_;
  std::size_t padded_;
  std::vector<std::byte> rows_;
  std::vector<Line> lines_;
};

}  // namespace

std::vector<std::int32_t> order_by_group(const std::vector<std::int32_t>& groups) {
  std::vector<std::int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int32_t input) {
    return std::pair{groups[static_cast<std::size_t>(input)], input};
  });
  return order;
}

void take_columns(const CodeRows& codes, std::span<const std::int32_t> columns,
                  const std::byte* from, std::byte* to, std::uint8_t filler) {
  const auto bits = static_cast<std::size_t>(codes.bits);
  const std::size_t from_bytes = (static_cast<std::size_t>(codes.columns) * bits + 7) / 8;
  const std::size_t to_bytes = (columns.size() * bits + 7) / 8;
  Tile all(from_bytes);
  Tile taken(to_bytes);
  std::vector<Line> each(all.lines().size() * (8 / bits) + 1);
  each.back() = Line{} + filler;
  for (std::int64_t first = 0; first < codes.rows; first += std::int64_t{tile_rows}) {
    const auto row = static_cast<std::size_t>(first);
    const auto count =
        static_cast<std::size_t>(std::min(std::int64_t{tile_rows}, codes.rows - first));
    all.read(from + row * from_bytes, count);
    spread(all.lines(), codes.bits, each);
    pick(each, columns, codes.bits, taken.lines());
    taken.write(to + row * to_bytes, count);
  }
}

}  // namespace motley::quant
