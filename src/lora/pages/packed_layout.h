#pragma once

#include <cstddef>
#include <cstdint>

#include "lora/files/adapter.h"

// The packed layout of an expert's factors: as tensor cores read them from shared memory, so that
// kernels only copy bytes. A pair of blobs serves a whole seam. At the first seam the columns in
// rank space are gate's ranks up to a multiple of 8, then up's up to a multiple of 8, and all up to
// a multiple of 16; if gate and up share A (and scale), they share one set of columns. At the
// second seam they are down's ranks. Padding is zero.
//
//   A: [columns / 32][in / 64, even][columns of the block][64 k]
//   B: [rows / 64, a multiple of 4][columns / 16][64 rows][16 columns]
//
// At the first seam rows of gate and up alternate in groups of 8: packed row r is row r / 16 * 8 +
// r % 8 of gate if r % 16 < 8, else of up. A tile's rows (the last two dimensions above) are
// swizzled in chunks of 16 bytes, as wide as they are: 128 and 32 bytes in bf16, half in FP8. In
// FP8 the rows' float32 scales follow: [columns] of A, [rows, padded] of B.
namespace motley::lora {

constexpr std::int32_t packed_columns(std::int32_t first, std::int32_t second) {
  return ((first + 7) / 8 * 8 + (second + 7) / 8 * 8 + 15) / 16 * 16;
}
// Columns of a block of A; the last block may have half as many.
inline constexpr std::int64_t packed_block = 32;
// k of a packed A, and rows of a packed B.
constexpr std::int64_t packed_depth(std::int64_t in) { return (in + 127) / 128 * 128; }
constexpr std::int64_t packed_rows(std::int64_t rows) { return (rows + 255) / 256 * 256; }

// An expert's factors at a seam: gate's and up's, or down's alone.
struct JoinedFactors {
  Factors first;
  Factors second;

  bool present() const { return first.present() || second.present(); }
  // Both share one set of columns.
  bool shared() const {
    return first.present() && second.present() && first.a == second.a &&
           first.rank == second.rank && first.scale == second.scale;
  }
  // The columns of the first factor.
  std::int32_t split() const { return (first.rank + 7) / 8 * 8; }
  std::int32_t columns() const { return packed_columns(first.rank, shared() ? 0 : second.rank); }
};

// The row of gate or up that a packed row of both is.
struct AlternatingRow {
  bool up;
  std::int64_t row;
};
constexpr AlternatingRow alternating_row(std::int64_t row) {
  return {row % 16 >= 8, row / 16 * 8 + row % 8};
}

// The place of byte `byte` of row `row` in a tile with rows of `pitch` bytes: 128, 64, 32 or 16.
constexpr std::size_t swizzled(std::size_t row, std::size_t byte, std::size_t pitch) {
  const std::size_t chunk = byte / 16 ^ ((row * pitch / 128) & (pitch / 16 - 1));
  return row * pitch + chunk * 16 + byte % 16;
}

}  // namespace motley::lora
