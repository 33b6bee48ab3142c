#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_variants.h"
#include "kernels/cpu/integer_body.h"
#include "kernels/cpu/pack_inputs.h"
#include "kernels/cpu/weight_rows.h"

// gemm_tile for any instruction set. Everything is a template over Isa, a type that each including
// file keeps to itself, so that no machine code is shared between files with different flags.
//
// An element of y is a sum over chunks of K (chunk_inputs each, ascending); a chunk's sum runs in
// `lanes` partial sums, one vector of k after the other, folded in one fixed order. So its bits
// depend on the instruction set, the format and `in` only. Registers hold a block of block_tokens x
// 4 accumulators, four weight vectors and one of x.
//
// x is copied first, in float32, padded with zeros, in the order in which the format's vectors
// come. Weights that few rows of x need are decoded in registers (Row::max_in_place); for more,
// four rows of a chunk are decoded into a panel that the first-level cache holds.
namespace motley::kernels::cpu::gemm_body {

// y[m][r] for `tokens` rows of packed x and four weight rows: `count` inputs of theirs.
struct Block {
  const float* x;
  std::int64_t x_stride;
  float* y;
  std::int64_t y_stride;
  int outs;  // how many of the four are wanted
  bool add;
};

template <class Isa, int tokens, class Accumulators>
[[gnu::always_inline]] inline void finish(const Accumulators& sums, const Block& block) {
#pragma GCC unroll 16
  for (int m = 0; m < tokens; ++m) {
    float* y = block.y + m * block.y_stride;
    const auto folded = Isa::fold(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    float each[weight_rows];
    static_assert(sizeof each == sizeof folded);
    if (block.outs == weight_rows) [[likely]] {
      auto total = folded;
      if (block.add) {
        __builtin_memcpy(&total, y, sizeof total);
        total += folded;
      }
      __builtin_memcpy(y, &total, sizeof total);
      continue;
    }
    __builtin_memcpy(each, &folded, sizeof each);
    for (int r = 0; r < block.outs; ++r) y[r] = block.add ? y[r] + each[r] : each[r];
  }
}

template <class Isa, int tokens, class Row>
void multiply(const Row* rows, std::int64_t count, const Block& block) {
  using Floats = typename Isa::Floats;
  constexpr std::int64_t step = Row::vectors * Isa::lanes;
  Floats sums[tokens][weight_rows];
  for (auto& row : sums) {
    for (Floats& sum : row) sum = Floats{};
  }
  const Row r0 = rows[0];
  const Row r1 = rows[1];
  const Row r2 = rows[2];
  const Row r3 = rows[3];
  const auto add_step = [&](const typename Row::Open(&open)[weight_rows],
                            const float* x) __attribute__((always_inline)) {
    unrolled<Row::vectors>([&]<int v>() __attribute__((always_inline)) {
      const Floats w0 = Row::template take<v>(open[0]);
      const Floats w1 = Row::template take<v>(open[1]);
      const Floats w2 = Row::template take<v>(open[2]);
      const Floats w3 = Row::template take<v>(open[3]);
#pragma GCC unroll 16
      for (int m = 0; m < tokens; ++m) {
        const Floats xs =
            Isa::load(reinterpret_cast<const std::byte*>(x + m * block.x_stride + v * Isa::lanes));
        sums[m][0] = Isa::fma(w0, xs, sums[m][0]);
        sums[m][1] = Isa::fma(w1, xs, sums[m][1]);
        sums[m][2] = Isa::fma(w2, xs, sums[m][2]);
        sums[m][3] = Isa::fma(w3, xs, sums[m][3]);
      }
    });
  };
  std::int64_t k = 0;
  for (; k + step <= count; k += step) {
    if constexpr (requires { r0.fetch_ahead(k); }) {
      r0.fetch_ahead(k);
      r1.fetch_ahead(k);
      r2.fetch_ahead(k);
      r3.fetch_ahead(k);
    }
    const typename Row::Open open[weight_rows] = {r0.open(k), r1.open(k), r2.open(k), r3.open(k)};
    add_step(open, block.x + k);
  }
  if constexpr (requires { r0.open_tail(k, count); }) {
    if (k < count) {
      const std::int64_t rest = count - k;
      const typename Row::Open open[weight_rows] = {r0.open_tail(k, rest), r1.open_tail(k, rest),
                                                    r2.open_tail(k, rest), r3.open_tail(k, rest)};
      add_step(open, block.x + k);
    }
  }
  finish<Isa, tokens>(sums, block);
}

template <class Isa, class Row>
void multiply_tokens(std::int64_t tokens, const Row* rows, std::int64_t count, const Block& block) {
  constexpr std::int64_t most = smaller(Isa::block_tokens, Row::max_in_place);
  if (tokens == 1) return multiply<Isa, 1>(rows, count, block);
  if constexpr (most >= 2) {
    if (tokens == 2) return multiply<Isa, 2>(rows, count, block);
  }
  if constexpr (most >= 4) {
    if (tokens == 3) return multiply<Isa, 3>(rows, count, block);
    if (tokens == 4) return multiply<Isa, 4>(rows, count, block);
  }
  if constexpr (most >= 6) {
    if (tokens == 5) return multiply<Isa, 5>(rows, count, block);
    if (tokens == 6) return multiply<Isa, 6>(rows, count, block);
  }
}

// Every block of rows of x, as even as they come.
template <class Isa, class Row>
void multiply_all(std::int64_t tokens, const Row* rows, std::int64_t count, const Block& block) {
  const std::int64_t blocks = (tokens + Isa::block_tokens - 1) / Isa::block_tokens;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = tokens * b / blocks;
    const std::int64_t end = tokens * (b + 1) / blocks;
    Block part = block;
    part.x += first * block.x_stride;
    part.y += first * block.y_stride;
    multiply_tokens<Isa>(end - first, rows, count, part);
  }
}

template <class Isa, class Row>
void decode_panel(const Row& row, std::int64_t count, float* panel) {
  constexpr std::int64_t step = Row::vectors * Isa::lanes;
  const auto store_step = [&](const typename Row::Open& open, float* to)
                              __attribute__((always_inline)) {
                                unrolled<Row::vectors>([&]<int v>() __attribute__((always_inline)) {
                                  const typename Isa::Floats w = Row::template take<v>(open);
                                  __builtin_memcpy(to + v * Isa::lanes, &w, sizeof w);
                                });
                              };
  for (std::int64_t k = 0; k < count; k += step) {
    if constexpr (requires { row.fetch_ahead(k); }) row.fetch_ahead(k);
    // The last step may be shorter.
    const bool whole = k + step <= count;
    store_step(whole ? row.open(k) : row.open_tail(k, count - k), panel + k);
  }
}

// Only the parts that are written are read. NOLINTBEGIN(cppcoreguidelines-pro-type-member-init)

// What run works with: [chunks, tokens, padded inputs of a chunk] of x, a panel of four rows.
template <class Isa, class Row>
struct Buffers {
  static constexpr std::int64_t step = Row::vectors * Isa::lanes;

  alignas(64) float x[rows_at_once * chunk_inputs];
  alignas(64) float panel[weight_rows * chunk_inputs];
  typename Row::Scratch scratch[weight_rows];

  // Few rows of x are held whole, so that each row of the weight is read from end to end.
  static std::int64_t chunks_held(std::int64_t tokens) { return rows_at_once / tokens; }
  static std::int64_t padded(std::int64_t count) { return (count + step - 1) / step * step; }

  // Chunk number `at` of those that are held.
  void pack(const GemmTile& tile, const RowGroup& group, const Span& span, std::int64_t at) {
    float* to = x + at * group.tokens * chunk_inputs;
    const std::int64_t width = padded(span.count);
    for (std::int64_t m = 0; m < group.tokens; ++m, to += width) {
      pack_x<Isa>(tile, group.first + m, span, width, group.largest[m], to);
      if constexpr (requires { Row::arranged; }) {
        for (std::int64_t k = 0; k < width; k += step) arrange_for_nibbles<Isa>(to + k);
      }
    }
  }
};

// NOLINTEND(cppcoreguidelines-pro-type-member-init)

// Adds a chunk of four weight rows, o and those behind it, to all rows of x.
template <class Isa, class Row>
void add_chunk(const RowLayout& layout, std::int64_t tokens, std::int64_t o, const Span& span,
               const Block& block, Buffers<Isa, Row>& buffers) {
  const auto row_at = [&](int r) { return o + smaller(r, block.outs - 1); };
  PanelRow<Isa> panel_rows[weight_rows];
  for (int r = 0; r < weight_rows; ++r) panel_rows[r].data = buffers.panel + r * block.x_stride;
  if constexpr (requires(const Row& row) { row.open(0); }) {
    const auto opened = [&](int r) { return Row(layout, row_at(r), span, buffers.scratch[r]); };
    const Row rows[weight_rows] = {opened(0), opened(1), opened(2), opened(3)};
    if (tokens <= Row::max_in_place) return multiply_all<Isa>(tokens, rows, span.count, block);
    for (int r = 0; r < weight_rows; ++r)
      decode_panel<Isa>(rows[r], span.count, buffers.panel + r * block.x_stride);
  } else {
    for (int r = 0; r < weight_rows; ++r) {
      float* const to = buffers.panel + r * block.x_stride;
      decode_inputs(*layout.w, row_at(r), span.begin, span.count, to);
      for (std::int64_t k = span.count; k < block.x_stride; ++k) to[k] = 0;
    }
  }
  multiply_all<Isa>(tokens, panel_rows, block.x_stride, block);
}

template <class Isa, class Row>
void run(const GemmTile& tile) {
  Buffers<Isa, Row> buffers;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const WeightView& w = tile.w;
  const RowLayout layout = layout_of(w);
  const std::int64_t chunks = chunks_of(w);
  for (std::int64_t first = 0; first < tile.rows; first += rows_at_once) {
    const RowGroup group = row_group<Isa>(tile, first);
    const std::int64_t held = buffers.chunks_held(group.tokens);
    for (std::int64_t first_chunk = 0; first_chunk < chunks; first_chunk += held) {
      const std::int64_t end_chunk = smaller(first_chunk + held, chunks);
      for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk)
        buffers.pack(tile, group, chunk_at(w, chunk), chunk - first_chunk);
      for (std::int64_t o = tile.out_begin; o < tile.out_end; o += weight_rows) {
        for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
          const Span span = chunk_at(w, chunk);
          const std::int64_t at = (chunk - first_chunk) * chunk_inputs;
          const Block block{
              .x = buffers.x + at * group.tokens,
              .x_stride = buffers.padded(span.count),
              .y = tile.y + first * tile.y_stride + (o - tile.out_begin),
              .y_stride = tile.y_stride,
              .outs = static_cast<int>(smaller(weight_rows, tile.out_end - o)),
              .add = chunk != 0,
          };
          add_chunk<Isa, Row>(layout, group.tokens, o, span, block, buffers);
        }
      }
    }
  }
}

template <class Isa>
void gemm_tile(const GemmTile& tile) {
  const WeightView& w = tile.w;
  if (has_integer_products(w)) return integer_body::gemm_tile<Isa>(tile);
  if (!is_plain(w)) return with_row<Isa>(w, [&]<class Row>() { run<Isa, Row>(tile); });
  if (w.kind == WeightKind::f32) return run<Isa, PlainRow<Isa, WeightKind::f32>>(tile);
  if (w.kind == WeightKind::f16) return run<Isa, PlainRow<Isa, WeightKind::f16>>(tile);
  return run<Isa, PlainRow<Isa, WeightKind::bf16>>(tile);
}

}  // namespace motley::kernels::cpu::gemm_body
