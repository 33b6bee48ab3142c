#pragma once

#include <cstddef>
#include <cstdint>

#include "lora/files/adapter.h"

// Factors of an expert as tensor cores read them from shared memory, so that a plain copy of bytes
// is all that a kernel needs. A pair of blobs serves a whole seam: columns of rank space are gate's
// ranks up to a multiple of 8, then up's up to another, all up to a multiple of 16; where gate and
// up share A (and scale), one set of columns for both. At the second seam they are down's. What no
// number stands for is zero.
//
//   A: [columns / 32][in / 64, even][columns of the block][64 k]
//   B: [rows / 64, a multiple of 4][columns / 16][64 rows][16 columns]
//
// At the first seam rows of gate and up alternate in groups of 8: packed row r is row r / 16 * 8 +
// r % 8 of gate where r % 16 < 8, else of up. A tile's rows (the last two dimensions above) are
// swizzled in chunks of 16 bytes, as wide as they are: 128 and 32 bytes in bf16, half in FP8. In
// FP8 the rows' float32 scales follow: [columns] of A, [rows, padded] of B.
namespace motley::lora {

constexpr std::int32_t packed_columns(std::int32_t first, std::int32_t second) {
  return ((first + 7) / 8 * 8 + (second + 7) / 8 * 8 + 15) / 16 * 16;
}
// Columns of a block of A, the last one of maybe half as many.
inline constexpr std::int64_t packed_block = 32;
// k of a packed A, rows of a packed B.
constexpr std::int64_t packed_depth(std::int64_t in) { return (in + 127) / 128 * 128; }
constexpr std::int64_t packed_rows(std::int64_t rows) { return (rows + 255) / 256 * 256; }

// What one expert has at a seam: gate's and up's factors, or down's alone.
struct JoinedFactors {
  Factors first;
  Factors second;

  bool present() const { return first.present() || second.present(); }
  // One set of columns stands for both.
  bool shared() const {
    return first.present() && second.present() && first.a == second.a &&
           first.rank == second.rank && first.scale == second.scale;
  }
  // Columns of the first.
  std::int32_t split() const { return (first.rank + 7) / 8 * 8; }
  std::int32_t columns() const { return packed_columns(first.rank, shared() ? 0 : second.rank); }
};

// Which row of gate or up a packed row of both is.
struct AlternatingRow {
  bool up;
  std::int64_t row;
};
constexpr AlternatingRow alternating_row(std::int64_t row) {
  return {row % 16 >= 8, row / 16 * 8 + row % 8};
}

// Where byte `byte` of row `row` stands in a tile whose rows are `pitch` bytes: 128, 64, 32 or 16.
constexpr std::size_t swizzled(std::size_t row, std::size_t byte, std::size_t pitch) {
  const std::size_t chunk = byte / 16 ^ ((row * pitch / 128) & (pitch / 16 - 1));
  return row * pitch + chunk * 16 + byte % 16;
}

}  // namespace motley::lora
