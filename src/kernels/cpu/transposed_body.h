#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm_body.h"

// transposed_tile for the Isa of the including file. Lanes are inputs of w and its rows come one
// after the other, so each element is one chain of sums over a run of rows. f32, f16 and bf16 are
// widened in registers; a run of another format's rows is decoded first, in their own order, and
// serves all rows of x.
namespace motley::kernels::cpu::transposed_body {

using gemm_body::Span;

inline constexpr std::int64_t run_rows = 64;
inline constexpr std::int64_t panel_inputs = 256;

// Rows of w in a run, from the first input of a block on.
struct Run {
  const std::byte* data;
  std::int64_t stride;  // bytes
  std::int64_t rows;
};

// A block of x's rows: [rows][run_rows] in float32, and where its results go.
struct Block {
  const float* x;
  float* y[8];
  bool add;
};

template <class Isa, class Row, int rows, int vectors>
void multiply(const Run& run, const Block& block, std::int64_t at, std::int64_t count) {
  using Floats = typename Isa::Floats;
  Floats sums[rows][vectors];
  for (auto& row : sums) {
    for (Floats& sum : row) sum = Floats{};
  }
  const std::byte* from = run.data;
  for (std::int64_t j = 0; j < run.rows; ++j, from += run.stride) {
    Floats w[vectors];
    for (int v = 0; v < vectors; ++v) w[v] = Row::widen(from + v * Isa::lanes * Row::element_bytes);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      const Floats by = Isa::broadcast(block.x[row * run_rows + j]);
      for (int v = 0; v < vectors; ++v) sums[row][v] = Isa::fma(w[v], by, sums[row][v]);
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int v = 0; v < vectors; ++v) {
      float* y = block.y[row] + at + v * Isa::lanes;
      const std::int64_t left = count - v * Isa::lanes;
      const std::size_t bytes = left < Isa::lanes ? std::size_t(left) * 4 : sizeof(Floats);
      Floats total = sums[row][v];
      if (block.add) {
        Floats before{};
        __builtin_memcpy(&before, y, bytes);
        total = before + total;
      }
      __builtin_memcpy(y, &total, bytes);
    }
  }
}

// Whole vectors of inputs [0, count) of a run; returns how many inputs were done.
template <class Isa, class Row, int rows, int vectors>
std::int64_t multiply_blocks(const Run& run, const Block& block, std::int64_t at,
                             std::int64_t count) {
  constexpr std::int64_t step = vectors * Isa::lanes;
  for (; at + step <= count; at += step) {
    const Run part{run.data + at * Row::element_bytes, run.stride, run.rows};
    multiply<Isa, Row, rows, vectors>(part, block, at, step);
  }
  return at;
}

// Registers hold about 16 sums of a machine with 32, and 8 of one with 16.
template <class Isa, class Row, int rows>
void multiply_inputs(const Run& run, const Block& block, std::int64_t count) {
  constexpr int sums = Isa::block_tokens >= 6 ? 16 : 8;
  constexpr int vectors = sums / rows >= 16 ? 16 : sums / rows >= 8 ? 8 : 4;
  std::int64_t at = 0;
  at = multiply_blocks<Isa, Row, rows, vectors>(run, block, at, count);
  at = multiply_blocks<Isa, Row, rows, 1>(run, block, at, count);
  if (at == count) return;
  // Inputs behind the last whole vector, with zeros up to the next.
  alignas(64) std::byte edge[run_rows * Isa::lanes * Row::element_bytes] = {};
  constexpr std::int64_t stride = Isa::lanes * Row::element_bytes;
  for (std::int64_t j = 0; j < run.rows; ++j) {
    __builtin_memcpy(edge + j * stride, run.data + j * run.stride + at * Row::element_bytes,
                     std::size_t((count - at) * Row::element_bytes));
  }
  multiply<Isa, Row, rows, 1>({edge, stride, run.rows}, block, at, count - at);
}

template <class Isa, class Row>
void multiply_rows(std::int64_t rows, const Run& run, const Block& block, std::int64_t count) {
  if (rows == 1) return multiply_inputs<Isa, Row, 1>(run, block, count);
  if (rows == 2) return multiply_inputs<Isa, Row, 2>(run, block, count);
  if constexpr (Isa::block_tokens >= 6) {
    if (rows == 3) return multiply_inputs<Isa, Row, 3>(run, block, count);
    if (rows == 4) return multiply_inputs<Isa, Row, 4>(run, block, count);
    if (rows == 5) return multiply_inputs<Isa, Row, 5>(run, block, count);
    if (rows == 6) return multiply_inputs<Isa, Row, 6>(run, block, count);
  }
}

// The way back from gemm_body's arrangement: there three rounds of even and odd turn the places'
// bits by three, and as many more as a lane's number has bits make the turn whole.
template <class Isa>
[[gnu::always_inline]] inline void put_in_order(typename Isa::Floats (&numbers)[8]) {
  for (int lanes = Isa::lanes; lanes > 1; lanes /= 2) {
    typename Isa::Floats turned[8];
    for (int i = 0; i < 4; ++i) {
      turned[i] = Isa::even(numbers[2 * i], numbers[2 * i + 1]);
      turned[i + 4] = Isa::odd(numbers[2 * i], numbers[2 * i + 1]);
    }
    for (int i = 0; i < 8; ++i) numbers[i] = turned[i];
  }
}

// Inputs of the span in float32, from the row that is opened for it; what stands behind them, up to
// a whole step, is written too.
template <class Isa, class Row>
void decode(const Row& row, const WeightView& w, std::int64_t o, const Span& span, float* to) {
  constexpr std::int64_t step = Row::vectors * Isa::lanes;
  static_assert(panel_inputs % step == 0);
  for (std::int64_t k = 0; k < span.count; k += step) {
    const std::int64_t rest = span.count - k;
    const typename Row::Open open = rest < step ? row.open_tail(k, rest) : row.open(k);
    typename Isa::Floats numbers[Row::vectors];
    gemm_body::unrolled<Row::vectors>(
        [&]<int v>() __attribute__((always_inline)) { numbers[v] = Row::template take<v>(open); });
    if constexpr (requires { Row::arranged; }) put_in_order<Isa>(numbers);
    __builtin_memcpy(to + k, numbers, sizeof numbers);
    // One NaN of an FP8 step makes all of it NaN, which in a sum over inputs is the same.
    if (to[k] != to[k]) [[unlikely]]
      decode_inputs(w, o, span.begin + k, rest < step ? rest : step, to + k);
  }
}

// The span's inputs of `rows` rows of the weight from `first` on, to a panel.
template <class Isa, class Row>
void decode_run(const WeightView& w, std::int64_t first, std::int64_t rows, const Span& span,
                float* panel) {
  if constexpr (requires(const Row& row) { row.open(0); }) {
    const RowLayout layout = layout_of(w);
    typename Row::Scratch scratch;
    for (std::int64_t j = 0; j < rows; ++j) {
      const Row row(layout, first + j, span, scratch);
      decode<Isa>(row, w, first + j, span, panel + j * panel_inputs);
    }
  } else {
    for (std::int64_t j = 0; j < rows; ++j)
      decode_inputs(w, first + j, span.begin, span.count, panel + j * panel_inputs);
  }
}
using DecodeRun = void (*)(const WeightView& w, std::int64_t first, std::int64_t rows,
                           const Span& span, float* panel);

template <class Isa>
void load_x(const TransposedTile& tile, std::int64_t m, std::int64_t begin, std::int64_t count,
            float* to) {
  const std::int64_t row = tile.x_rows != nullptr ? tile.x_rows[m] : m;
  const std::int64_t first = row * tile.x_stride + begin;
  if (tile.x_type == DType::f32) {
    __builtin_memcpy(to, static_cast<const float*>(tile.x) + first,
                     std::size_t(count) * sizeof(float));
    return;
  }
  const auto* halves = static_cast<const std::uint16_t*>(tile.x) + first;
  for (std::int64_t j = 0; j < count; ++j)
    to[j] = __builtin_bit_cast(float, std::uint32_t{halves[j]} << 16);
}

// Rows of x and y of one run, and of which inputs of the weight.
struct Piece {
  std::int64_t first;  // row of the run, of those that are summed
  std::int64_t rows;
  std::int64_t begin;
  std::int64_t end;
};

// Adds a run to every row of x. Row widens what the run has.
template <class Isa, class Row>
void add_run(const TransposedTile& tile, const Run& run, const Piece& piece) {
  alignas(64) float x[Isa::block_tokens * run_rows];
  const std::int64_t blocks = (tile.rows + Isa::block_tokens - 1) / Isa::block_tokens;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t m = tile.rows * b / blocks;
    const std::int64_t tokens = tile.rows * (b + 1) / blocks - m;
    Block block{.x = x, .y = {}, .add = tile.add || piece.first > 0};
    for (std::int64_t i = 0; i < tokens; ++i) {
      load_x<Isa>(tile, m + i, piece.first, piece.rows, x + i * run_rows);
      const std::int64_t y_row = tile.y_rows != nullptr ? tile.y_rows[m + i] : m + i;
      block.y[i] = tile.y + y_row * tile.y_stride + (piece.begin - tile.in_begin);
    }
    multiply_rows<Isa, Row>(tokens, run, block, piece.end - piece.begin);
  }
}

// Rows of f32, f16 and bf16 are read in place.
template <class Isa, class Row>
void run_in_place(const TransposedTile& tile) {
  const WeightView& w = tile.w;
  // A run without rows still writes its zeros.
  for (std::int64_t first = 0; first < tile.count || first == 0; first += run_rows) {
    const std::int64_t rows = gemm_body::smaller(tile.count - first, run_rows);
    const std::int64_t stride = w.in * Row::element_bytes;
    const std::byte* from = static_cast<const std::byte*>(w.data) + (tile.first + first) * stride +
                            tile.in_begin * Row::element_bytes;
    add_run<Isa, Row>(tile, {from, stride, rows}, {first, rows, tile.in_begin, tile.in_end});
  }
}

// Any other is decoded to a panel of float32. Panels begin at multiples of their width, so that
// scales begin where steps do.
template <class Isa>
void run_panels(const TransposedTile& tile, DecodeRun decode_rows) {
  alignas(64) float panel[run_rows * panel_inputs];
  std::int64_t end = 0;
  for (std::int64_t begin = tile.in_begin; begin < tile.in_end; begin = end) {
    const std::int64_t from = begin / panel_inputs * panel_inputs;
    end = gemm_body::smaller(from + panel_inputs, tile.in_end);
    for (std::int64_t first = 0; first < tile.count || first == 0; first += run_rows) {
      const std::int64_t rows = gemm_body::smaller(tile.count - first, run_rows);
      decode_rows(tile.w, tile.first + first, rows, {from, end - from}, panel);
      const auto* data = reinterpret_cast<const std::byte*>(panel + (begin - from));
      add_run<Isa, gemm_body::PlainRow<Isa, WeightKind::f32>>(tile, {data, panel_inputs * 4, rows},
                                                              {first, rows, begin, end});
    }
  }
}

template <class Isa>
void transposed_tile(const TransposedTile& tile) {
  using gemm_body::PlainRow;
  const WeightView& w = tile.w;
  if (!is_plain(w)) {
    return gemm_body::with_row<Isa>(
        w, [&]<class Row>() { run_panels<Isa>(tile, decode_run<Isa, Row>); });
  }
  if (w.kind == WeightKind::f32) return run_in_place<Isa, PlainRow<Isa, WeightKind::f32>>(tile);
  if (w.kind == WeightKind::f16) return run_in_place<Isa, PlainRow<Isa, WeightKind::f16>>(tile);
  return run_in_place<Isa, PlainRow<Isa, WeightKind::bf16>>(tile);
}

}  // namespace motley::kernels::cpu::transposed_body
