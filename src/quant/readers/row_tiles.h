#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace motley::quant {

// A part of a weight's rows. Files that keep outputs side by side are transposed in such tiles:
// they and what they are made of fit the first cache, and memory is read and written in whole
// lines.
template <std::int64_t of_outputs>
struct RowTile {
  static constexpr std::int64_t outputs = of_outputs;
  static constexpr std::int64_t bytes = 64;

  alignas(64) std::array<std::array<std::byte, bytes>, outputs> rows;
};

struct TilePlace {
  std::int64_t output;   // the first
  std::int64_t outputs;  // at most a tile's
  std::int64_t byte;     // the first of a row
};

using FourWords [[gnu::vector_size(16)]] = std::uint32_t;

// Four words each of four lines of `line` words become four words each of four rows, `row` bytes
// apart.
inline void transpose_words(const std::uint32_t* from, std::size_t line, std::byte* to,
                            std::size_t row) {
  std::array<FourWords, 4> lines{};
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(&lines[i], from + i * line, sizeof(FourWords));
  const FourWords upper_left = __builtin_shufflevector(lines[0], lines[1], 0, 4, 1, 5);
  const FourWords upper_right = __builtin_shufflevector(lines[0], lines[1], 2, 6, 3, 7);
  const FourWords lower_left = __builtin_shufflevector(lines[2], lines[3], 0, 4, 1, 5);
  const FourWords lower_right = __builtin_shufflevector(lines[2], lines[3], 2, 6, 3, 7);
  const std::array<FourWords, 4> rows{
      __builtin_shufflevector(upper_left, lower_left, 0, 1, 4, 5),
      __builtin_shufflevector(upper_left, lower_left, 2, 3, 6, 7),
      __builtin_shufflevector(upper_right, lower_right, 0, 1, 4, 5),
      __builtin_shufflevector(upper_right, lower_right, 2, 3, 6, 7),
  };
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(to + i * row, &rows[i], sizeof(FourWords));
}

// Copies `bytes` of a line of a file's matrix and prefetches what lies `ahead` bytes behind them
// (0: nothing): the same part of a line that is copied next. Hardware does not follow such strides.
inline void copy_line(void* to, const std::byte* from, std::int64_t bytes, std::int64_t ahead) {
  constexpr std::int64_t line = 64;
  auto* const bytes_to = static_cast<std::byte*>(to);
  std::int64_t at = 0;
  for (; at + line <= bytes; at += line) {
    if (ahead > 0) __builtin_prefetch(from + at + ahead);
    std::memcpy(bytes_to + at, from + at, line);
  }
  if (at < bytes) std::memcpy(bytes_to + at, from + at, static_cast<std::size_t>(bytes - at));
}

// Writes rows [outputs, row_bytes] tile by tile, as make(place, tile) makes them. What a tile has
// beyond the end of a row is dropped. Neighbouring tiles of the same rows follow each other, so
// that few pages are read and written at a time.
template <class Tile, class Make>
void write_rows(std::byte* rows, std::int64_t outputs, std::int64_t row_bytes, Make make) {
  constexpr std::int64_t stretch = (1024 / Tile::outputs) * Tile::bytes;
  Tile tile{};
  const auto write = [&](const TilePlace& place) {
    make(place, tile);
    const auto bytes = static_cast<std::size_t>(std::min(Tile::bytes, row_bytes - place.byte));
    std::byte* to = rows + place.output * row_bytes + place.byte;
    for (std::int64_t o = 0; o < place.outputs; ++o, to += row_bytes) {
      const std::byte* const from = tile.rows[static_cast<std::size_t>(o)].data();
      // Of a size that the compiler knows: a few wide moves.
      if (bytes == Tile::bytes) {
        std::memcpy(to, from, Tile::bytes);
      } else {
        std::memcpy(to, from, bytes);
      }
    }
  };
  for (std::int64_t begin = 0; begin < row_bytes; begin += stretch) {
    const std::int64_t end = std::min(begin + stretch, row_bytes);
    for (std::int64_t output = 0; output < outputs; output += Tile::outputs) {
      const std::int64_t count = std::min(Tile::outputs, outputs - output);
      for (std::int64_t byte = begin; byte < end; byte += Tile::bytes) write({output, count, byte});
    }
  }
}

// The half byte behind the last code of each row, where there is one.
inline void clear_last_halves(std::byte* rows, std::int64_t outputs, std::int64_t in) {
  if (in % 2 == 0) return;
  const std::int64_t row_bytes = (in + 1) / 2;
  for (std::int64_t o = 0; o < outputs; ++o) rows[(o + 1) * row_bytes - 1] &= std::byte{0x0F};
}

}  // namespace motley::quant
