#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/transposed_body.h"

// expand_tile for the Isa of the including file. Lanes are outputs and ranks come one after the
// other, so each element is one chain of sums over a run of ranks, however many rows there are. B
// has its ranks side by side and must be turned: for a row or two in registers, for more into a
// panel [ranks of a run][outputs of a block] that the first-level cache holds.
namespace motley::kernels::cpu::expand_body {

inline constexpr std::int64_t run_ranks = 64;
inline constexpr int block_vectors = 4;  // of a panel's outputs

// Calls body(i, column) for the eight ranks from `from` on, of `lanes` rows of B.
template <class Isa, DType type, class Body>
[[gnu::always_inline]] inline void for_eight_ranks(const std::byte* from, std::int64_t stride,
                                                   const Body& body) {
  typename Isa::Floats four[4];
  if constexpr (type == DType::f32) {
    for (int half = 0; half < 2; ++half) {
      Isa::turn(from + half * 16, stride, four);
      for (int i = 0; i < 4; ++i) body(4 * half + i, four[i]);
    }
  } else {
    Isa::turn(from, stride, four);
    for (int i = 0; i < 4; ++i) {
      body(2 * i, Isa::low_bf16(four[i]));
      body(2 * i + 1, Isa::high_bf16(four[i]));
    }
  }
}

template <class Isa>
[[gnu::always_inline]] inline void add_to(float* y, typename Isa::Floats sum, std::int64_t count) {
  typename Isa::Floats total{};
  if (count >= Isa::lanes) [[likely]] {
    __builtin_memcpy(&total, y, sizeof total);
    total += sum;
    __builtin_memcpy(y, &total, sizeof total);
    return;
  }
  __builtin_memcpy(&total, y, std::size_t(count) * sizeof(float));
  total += sum;
  __builtin_memcpy(y, &total, std::size_t(count) * sizeof(float));
}

[[gnu::always_inline]] inline float* row_of(const ExpandTile& tile, std::int64_t m) {
  return tile.y + (tile.y_rows != nullptr ? tile.y_rows[m] : m) * tile.y_stride;
}

struct Range {
  std::int64_t begin;
  std::int64_t count;
};
// Outputs over one run of ranks.
struct Part {
  Range outputs;
  Range ranks;
};

// At most `lanes` outputs for rows [m, m + rows). The run begins at `from` in the first output's
// row of B.
template <class Isa, DType type, int rows>
void expand_in_place(const ExpandTile& tile, std::int64_t m, const Part& part,
                     const std::byte* from, std::int64_t stride) {
  using Floats = typename Isa::Floats;
  constexpr std::int64_t element_bytes = type == DType::f32 ? 4 : 2;
  Floats sums[rows];
  for (Floats& sum : sums) sum = Floats{};
  const float* t = tile.t + m * tile.t_stride + part.ranks.begin;
  for (std::int64_t r = 0; r < part.ranks.count; r += 8) {
    for_eight_ranks<Isa, type>(from + r * element_bytes, stride,
                               [&](int i, Floats column) __attribute__((always_inline)) {
                                 for (int row = 0; row < rows; ++row) {
                                   const Floats by = Isa::broadcast(t[row * tile.t_stride + r + i]);
                                   sums[row] = Isa::fma(column, by, sums[row]);
                                 }
                               });
  }
  for (int row = 0; row < rows; ++row)
    add_to<Isa>(row_of(tile, m + row) + (part.outputs.begin - tile.out_begin), sums[row],
                part.outputs.count);
}

// A panel's outputs for rows [m, m + rows).
template <class Isa, int rows>
void expand_panel(const ExpandTile& tile, const float* panel, std::int64_t m, const Part& part) {
  using Floats = typename Isa::Floats;
  Floats sums[rows][block_vectors];
  for (auto& row : sums) {
    for (Floats& sum : row) sum = Floats{};
  }
  const float* t = tile.t + m * tile.t_stride + part.ranks.begin;
  for (std::int64_t r = 0; r < part.ranks.count; ++r, panel += block_vectors * Isa::lanes) {
    Floats columns[block_vectors];
    for (int v = 0; v < block_vectors; ++v)
      columns[v] = Isa::load(reinterpret_cast<const std::byte*>(panel + v * Isa::lanes));
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      const Floats by = Isa::broadcast(t[row * tile.t_stride + r]);
      for (int v = 0; v < block_vectors; ++v) sums[row][v] = Isa::fma(columns[v], by, sums[row][v]);
    }
  }
  for (int row = 0; row < rows; ++row) {
    float* y = row_of(tile, m + row) + (part.outputs.begin - tile.out_begin);
    for (int v = 0; v < block_vectors && v * Isa::lanes < part.outputs.count; ++v)
      add_to<Isa>(y + v * Isa::lanes, sums[row][v], part.outputs.count - v * Isa::lanes);
  }
}

template <class Isa>
void expand_rows(std::int64_t rows, const ExpandTile& tile, const float* panel, std::int64_t m,
                 const Part& part) {
  if (rows == 1) return expand_panel<Isa, 1>(tile, panel, m, part);
  if (rows == 2) return expand_panel<Isa, 2>(tile, panel, m, part);
  if constexpr (Isa::block_tokens >= 6) {
    if (rows == 3) return expand_panel<Isa, 3>(tile, panel, m, part);
    if (rows == 4) return expand_panel<Isa, 4>(tile, panel, m, part);
    if (rows == 5) return expand_panel<Isa, 5>(tile, panel, m, part);
    if (rows == 6) return expand_panel<Isa, 6>(tile, panel, m, part);
  }
}

template <class Isa, DType type>
void expand(const ExpandTile& tile) {
  using Floats = typename Isa::Floats;
  constexpr std::int64_t element_bytes = type == DType::f32 ? 4 : 2;
  constexpr std::int64_t most_in_place = 2;
  constexpr std::int64_t block = block_vectors * Isa::lanes;
  alignas(64) float panel[run_ranks * block];
  // Rows behind the last output, where a vector reaches beyond it.
  alignas(64) std::byte edge[Isa::lanes * run_ranks * element_bytes];
  const std::int64_t row_bytes = tile.padded * element_bytes;
  for (std::int64_t rank = 0; rank < tile.padded; rank += run_ranks) {
    const std::int64_t ranks = tile.padded - rank < run_ranks ? tile.padded - rank : run_ranks;
    const Range run{rank, ranks};
    for (std::int64_t first = tile.out_begin; first < tile.out_end; first += block) {
      const std::int64_t count = tile.out_end - first < block ? tile.out_end - first : block;
      // Vectors behind the last output are computed too, and not written.
      if (count < block) __builtin_memset(panel, 0, sizeof panel);
      for (std::int64_t v = 0; v * Isa::lanes < count; ++v) {
        const std::int64_t o = first + v * Isa::lanes;
        const std::int64_t outs = tile.out_end - o < Isa::lanes ? tile.out_end - o : Isa::lanes;
        const std::byte* from =
            static_cast<const std::byte*>(tile.b) + o * row_bytes + rank * element_bytes;
        std::int64_t stride = row_bytes;
        if (outs < Isa::lanes) {
          stride = ranks * element_bytes;
          for (std::int64_t i = 0; i < Isa::lanes; ++i) {
            if (i < outs) {
              __builtin_memcpy(edge + i * stride, from + i * row_bytes, std::size_t(stride));
            } else {
              __builtin_memset(edge + i * stride, 0, std::size_t(stride));
            }
          }
          from = edge;
        }
        if (tile.rows == 1) {
          expand_in_place<Isa, type, 1>(tile, 0, {{o, outs}, run}, from, stride);
        } else if (tile.rows == most_in_place) {
          expand_in_place<Isa, type, 2>(tile, 0, {{o, outs}, run}, from, stride);
        } else {
          for (std::int64_t r = 0; r < ranks; r += 8) {
            for_eight_ranks<Isa, type>(from + r * element_bytes, stride,
                                       [&](int i, Floats column) __attribute__((always_inline)) {
                                         __builtin_memcpy(panel + (r + i) * block + v * Isa::lanes,
                                                          &column, sizeof column);
                                       });
          }
        }
      }
      if (tile.rows <= most_in_place) continue;
      const std::int64_t blocks = (tile.rows + Isa::block_tokens - 1) / Isa::block_tokens;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t m = tile.rows * b / blocks;
        const std::int64_t end = tile.rows * (b + 1) / blocks;
        expand_rows<Isa>(end - m, tile, panel, m, {{first, count}, run});
      }
    }
  }
}

// FP8 is decoded first, as many outputs at a time as the first-level cache holds.
template <class Isa>
void expand_decoded(const ExpandTile& tile) {
  using Row = gemm_body::F8Row<Isa>;
  constexpr std::int64_t most = most_f8_ranks;
  if (tile.padded == 0) return;
  alignas(64) float decoded[most + Row::step];
  std::int64_t block = Row::step;  // one scale a row
  while (block < tile.padded) block *= 2;
  const WeightView w{.kind = WeightKind::f8_e4m3,
                     .data = tile.b,
                     .scales = tile.b_scales,
                     .out = tile.out_end,
                     .in = tile.padded,
                     .block_rows = 1,
                     .block_columns = block};
  const RowLayout layout = layout_of(w);
  const gemm_body::Span span{0, tile.padded};
  ExpandTile part = tile;
  part.b = decoded;
  part.out_begin = 0;
  for (std::int64_t first = tile.out_begin; first < tile.out_end; first += part.out_end) {
    const std::int64_t left = tile.out_end - first;
    part.out_end = left < most / tile.padded ? left : most / tile.padded;
    part.y = tile.y + (first - tile.out_begin);
    // A step behind a row's end is the next one's beginning, and written again.
    for (std::int64_t o = 0; o < part.out_end; ++o) {
      gemm_body::NoScratch none;
      const Row row(layout, first + o, span, none);
      transposed_body::decode<Isa>(row, w, first + o, span, decoded + o * tile.padded);
    }
    expand<Isa, DType::f32>(part);
  }
}

template <class Isa>
void expand_tile(const ExpandTile& tile) {
  if (tile.b_type == DType::f8_e4m3) return expand_decoded<Isa>(tile);
  if (tile.b_type == DType::f32) return expand<Isa, DType::f32>(tile);
  return expand<Isa, DType::bf16>(tile);
}

}  // namespace motley::kernels::cpu::expand_body
