#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm_body.h"

// transposed_tile for the Isa of the including file. Lanes are inputs of w and its rows come one
// after the other, so each element is one chain of sums over a run of rows. f32, f16 and bf16 are
// widened in registers; a run of another format's rows is decoded first, in their own order, and
// serves all rows of x.
namespace motley::kernels::cpu::transposed_body {

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

// Inputs [begin, begin + count) of row o in float32, `begin` a multiple of panel_inputs; what
// stands behind them, up to a whole step, is written too.
template <class Isa, class Row>
void decode(const WeightView& w, std::int64_t o, std::int64_t begin, std::int64_t count,
            float* to) {
  constexpr std::int64_t step = Row::vectors * Isa::lanes;
  static_assert(panel_inputs % step == 0);
  const Row row(w, o);
  for (std::int64_t k = 0; k < count; k += step) {
    const std::int64_t rest = count - k;
    const typename Row::Open open =
        rest < step ? row.open_tail(begin + k, rest) : row.open(begin + k);
    typename Isa::Floats numbers[Row::vectors];
    gemm_body::unrolled<Row::vectors>(
        [&]<int v>() __attribute__((always_inline)) { numbers[v] = Row::template take<v>(open); });
    if constexpr (requires { Row::arranged; }) put_in_order<Isa>(numbers);
    __builtin_memcpy(to + k, numbers, sizeof numbers);
    // One NaN of an FP8 step makes all of it NaN, which in a sum over inputs is the same.
    if (to[k] != to[k]) [[unlikely]]
      decode_inputs(w, o, begin + k, rest < step ? rest : step, to + k);
  }
}

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

// Row reads f32 and half rows in place; any other is decoded to a panel of float32.
template <class Isa, class Row, bool in_place>
void run_tile(const TransposedTile& tile) {
  using Panel = gemm_body::PlainRow<Isa, WeightKind::f32>;
  constexpr std::int64_t panel_rows = in_place ? 0 : run_rows;
  alignas(64) float panel[panel_rows * panel_inputs + 1];
  alignas(64) float x[Isa::block_tokens * run_rows];
  const WeightView& w = tile.w;
  for (std::int64_t begin = tile.in_begin; begin < tile.in_end;) {
    // Panels begin at multiples of their width, so that scales begin where steps do.
    const std::int64_t cut = (begin / panel_inputs + 1) * panel_inputs;
    const std::int64_t end = in_place || cut > tile.in_end ? tile.in_end : cut;
    // A run without rows still writes its zeros.
    for (std::int64_t first = 0; first < tile.count || first == 0; first += run_rows) {
      const std::int64_t rows = tile.count - first < run_rows ? tile.count - first : run_rows;
      Run run{nullptr, 0, rows};
      if constexpr (in_place) {
        run.stride = w.in * Row::element_bytes;
        run.data = static_cast<const std::byte*>(w.data) + (tile.first + first) * run.stride +
                   begin * Row::element_bytes;
      } else {
        const std::int64_t from = begin / panel_inputs * panel_inputs;
        for (std::int64_t j = 0; j < rows; ++j) {
          float* to = panel + j * panel_inputs;
          if constexpr (requires(const Row& row) { row.open(0); }) {
            decode<Isa, Row>(w, tile.first + first + j, from, end - from, to);
          } else {
            decode_inputs(w, tile.first + first + j, from, end - from, to);
          }
        }
        run.stride = panel_inputs * 4;
        run.data = reinterpret_cast<const std::byte*>(panel + (begin - from));
      }
      const std::int64_t blocks = (tile.rows + Isa::block_tokens - 1) / Isa::block_tokens;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t m = tile.rows * b / blocks;
        const std::int64_t tokens = tile.rows * (b + 1) / blocks - m;
        Block block{.x = x, .y = {}, .add = tile.add || first > 0};
        for (std::int64_t i = 0; i < tokens; ++i) {
          load_x<Isa>(tile, m + i, first, rows, x + i * run_rows);
          const std::int64_t y_row = tile.y_rows != nullptr ? tile.y_rows[m + i] : m + i;
          block.y[i] = tile.y + y_row * tile.y_stride + (begin - tile.in_begin);
        }
        if constexpr (in_place) {
          multiply_rows<Isa, Row>(tokens, run, block, end - begin);
        } else {
          multiply_rows<Isa, Panel>(tokens, run, block, end - begin);
        }
      }
    }
    begin = end;
  }
}

template <class Isa>
void transposed_tile(const TransposedTile& tile) {
  using gemm_body::PlainRow;
  const WeightKind kind = tile.w.kind;
  if (kind == WeightKind::f32) return run_tile<Isa, PlainRow<Isa, WeightKind::f32>, true>(tile);
  if (kind == WeightKind::f16) return run_tile<Isa, PlainRow<Isa, WeightKind::f16>, true>(tile);
  if (kind == WeightKind::bf16) return run_tile<Isa, PlainRow<Isa, WeightKind::bf16>, true>(tile);
  if (!has_vector_blocks(tile.w, 4 * Isa::lanes))
    return run_tile<Isa, gemm_body::AnyRow<Isa>, false>(tile);
  if (kind == WeightKind::f8_block) return run_tile<Isa, gemm_body::F8Row<Isa>, false>(tile);
  if (tile.w.block_columns >= 8 * Isa::lanes)
    return run_tile<Isa, gemm_body::Int4Row<Isa, true>, false>(tile);
  return run_tile<Isa, gemm_body::Int4Row<Isa, false>, false>(tile);
}

}  // namespace motley::kernels::cpu::transposed_body
