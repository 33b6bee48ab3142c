// How the grouped GEMMs tile an expert layer, as values. All tilings give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace motley::kernels::cuda {

// A tile is some rows of an expert's weights times some of its tokens. Small tiles are for few
// tokens per expert, with several blocks per multiprocessor; tall ones are for many, with one.
struct GroupedTiles {
  enum class Rows : std::uint8_t { r64, r128, r256 };
  // How a tile's token rows are loaded to shared memory.
  enum class Gather : int {
    boxes,     // one tensor copy per row
    copies,    // 16-byte copies by two warps
    permuted,  // rows that one warp of each block permutes concurrently
  };

  Rows rows = Rows::r128;
  int width = 8;  // tokens, at most
  Gather gather = Gather::boxes;
  bool sort_inside = false;  // every block sorts the pairs by itself; no launch before
  bool sum_inside = false;   // the last tile of a token sums its experts; no launch behind

  constexpr bool tall() const { return width > 16; }

  friend constexpr bool operator==(const GroupedTiles&, const GroupedTiles&) = default;
};

constexpr int count_rows(GroupedTiles::Rows rows) { return 64 << static_cast<int>(rows); }

// Whether there is code for a tiling, for at least one problem.
constexpr bool can_run(const GroupedTiles& t) {
  using Rows = GroupedTiles::Rows;
  using Gather = GroupedTiles::Gather;
  if (t.tall()) {
    const bool taller = t.rows == Rows::r256 && t.gather != Gather::boxes;
    // Token rows that are codes.
    const bool square = t.rows == Rows::r128 && t.width == 128 && t.gather == Gather::permuted;
    return (taller || square) && !t.sort_inside && !t.sum_inside;
  }
  if ((t.width != 8 && t.width != 16) || t.gather == Gather::permuted) return false;
  if (t.rows == Rows::r64) return t.width == 8 && t.gather == Gather::boxes;
  return !(t.rows == Rows::r256 && t.sum_inside);
}

namespace grouped {

inline constexpr int summed_pairs = 512;  // the most pairs for which tiles can sum inside

constexpr GroupedTiles numbered_tiles(int number) {
  constexpr std::array<int, 5> widths{8, 16, 64, 128, 160};
  const auto next = [&](int count) {
    const int digit = number % count;
    number /= count;
    return digit;
  };
  GroupedTiles tiles;
  tiles.rows = static_cast<GroupedTiles::Rows>(next(3));
  tiles.width = widths[static_cast<std::size_t>(next(5))];
  tiles.gather = static_cast<GroupedTiles::Gather>(next(3));
  tiles.sort_inside = next(2) == 1;
  tiles.sum_inside = next(2) == 1;
  return tiles;
}
constexpr int numbered_count = 3 * 5 * 3 * 2 * 2;
constexpr std::size_t count_tiles() {
  std::size_t count = 0;
  for (int i = 0; i < numbered_count; ++i) count += can_run(numbered_tiles(i)) ? 1 : 0;
  return count;
}

}  // namespace grouped

// Every tiling that there is code for.
inline constexpr auto all_grouped_tiles = [] {
  std::array<GroupedTiles, grouped::count_tiles()> all{};
  std::size_t count = 0;
  for (int i = 0; i < grouped::numbered_count; ++i) {
    const GroupedTiles tiles = grouped::numbered_tiles(i);
    if (can_run(tiles)) all[count++] = tiles;
  }
  return all;
}();

}  // namespace motley::kernels::cuda
