// The instances of the tensor-core attention kernels; there is one file for each pair of widths.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda::tiles {

// A latent is key and value: the values are the first columns of the keys.
constexpr std::int64_t latent_width = 576;
// Whether gates can multiply a result: their code would cost other heads time, also unused.
constexpr bool takes_gates(std::int64_t key_width, std::int64_t value_width) {
  return key_width == value_width;
}
// Whether registers hold the sums of earlier units next to those of the current one, in the kernels
// of many rows. Kernels of few rows follow them, for the same order of sums.
constexpr bool keeps_units(std::int64_t value_columns) { return value_columns <= 256; }
// Whether both warpgroups of many rows have the same rows, and half of the value columns each:
// where a warpgroup has no registers for all of them.
constexpr bool halves_columns(std::int64_t value_columns, bool in_units) {
  return value_columns * (in_units && keeps_units(value_columns) ? 2 : 1) > 256;
}

struct TileParams;

struct Instance {
  void (*kernel)(TileParams) = nullptr;
  int threads = 0;
  int shared_bytes = 0;
  int rows = 0;           // packed rows of a tile
  int blocks_per_sm = 1;  // side by side
  // Of a block, once its warps have taken and given back: what it was launched with must be as
  // many.
  int registers = 0;
  bool waits = false;  // blocks of a grid wait for each other
};

// For sequences of at most `rows` packed rows.
template <int key_width, int value_width, int rows>
Instance few_instance();
// For sequences of any number of rows. `in_units`: sums in the order of few_instance.
template <int key_width, int value_width, bool in_units>
Instance many_instance();

// The same over pages of codes (codes.cuh). Those of many rows work in units where few rows do.
template <int key_width, int value_width, int rows>
Instance few_codes_instance();
template <int key_width, int value_width>
Instance many_codes_instance();

// The compiled instances; others do not link.
extern template Instance few_instance<64, 64, 8>();
extern template Instance few_instance<64, 64, 16>();
extern template Instance few_instance<64, 64, 32>();
extern template Instance many_instance<64, 64, false>();
extern template Instance many_instance<64, 64, true>();
extern template Instance few_instance<128, 128, 8>();
extern template Instance few_instance<128, 128, 16>();
extern template Instance few_instance<128, 128, 32>();
extern template Instance many_instance<128, 128, false>();
extern template Instance many_instance<128, 128, true>();
extern template Instance few_instance<192, 128, 8>();
extern template Instance few_instance<192, 128, 16>();
extern template Instance few_instance<192, 128, 32>();
extern template Instance many_instance<192, 128, false>();
extern template Instance many_instance<192, 128, true>();
extern template Instance few_instance<256, 256, 8>();
extern template Instance few_instance<256, 256, 16>();
extern template Instance few_instance<256, 256, 32>();
extern template Instance many_instance<256, 256, false>();
extern template Instance many_instance<256, 256, true>();
extern template Instance few_instance<512, 512, 16>();
extern template Instance many_instance<512, 512, false>();
extern template Instance few_instance<576, 512, 16>();
extern template Instance many_instance<576, 512, false>();
extern template Instance few_codes_instance<64, 64, 8>();
extern template Instance few_codes_instance<64, 64, 16>();
extern template Instance many_codes_instance<64, 64>();
extern template Instance few_codes_instance<128, 128, 8>();
extern template Instance few_codes_instance<128, 128, 16>();
extern template Instance many_codes_instance<128, 128>();
extern template Instance few_codes_instance<256, 256, 8>();
extern template Instance few_codes_instance<256, 256, 16>();
extern template Instance many_codes_instance<256, 256>();
extern template Instance few_codes_instance<512, 512, 16>();
extern template Instance many_codes_instance<512, 512>();

}  // namespace motley::kernels::cuda::tiles
