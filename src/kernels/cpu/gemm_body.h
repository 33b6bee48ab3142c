#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_variants.h"

// gemm_tile for any instruction set. Everything is a template over Isa, a type that each including
// file keeps to itself, so that no machine code is shared between files with different flags.
//
// An element of y is a sum over chunks of K (chunk_inputs each, ascending); a chunk's sum runs in
// `lanes` partial sums, one vector of k after the other, folded in one fixed order. So its bits
// depend on the instruction set, the format and `in` only. Registers hold a block of block_tokens x
// 4 accumulators, four weight vectors and one of x.
//
// x is copied first, in float32, padded with zeros, in the order in which the format's vectors
// come. Weights that few rows of x need are decoded in registers (Row::most_in_place); for more,
// four rows of a chunk are decoded into a panel that the first-level cache holds.
namespace motley::kernels::cpu::gemm_body {

inline constexpr std::int64_t chunk_inputs = 1024;
inline constexpr std::int64_t rows_at_once = 64;  // of x
inline constexpr int weight_rows = 4;             // of a register block

[[gnu::always_inline]] constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// Where a format's bytes are. A vector's `open` loads what one step of K needs; `take(v)` gives its
// vector v, in the order that `arrange` brings x into. The tail's bytes come from a zeroed copy.
// Four rows that are read side by side lie so close that the processor's own prefetching loses its
// way in them: `fetch_ahead` asks for what the next four have at the same place.

template <class Isa, WeightKind kind>
struct PlainRow {
  using Floats = typename Isa::Floats;
  using Open = Floats;
  static constexpr int vectors = 1;
  static constexpr std::int64_t element_bytes = kind == WeightKind::f32 ? 4 : 2;
  // float32 rows are panels already; widening the others costs half of what six rows' products do.
  static constexpr std::int64_t most_in_place = kind == WeightKind::f32 ? rows_at_once : 16;

  const std::byte* data;
  std::int64_t in;

  PlainRow(const WeightView& w, std::int64_t o)
      : data(static_cast<const std::byte*>(w.data) + o * w.in * element_bytes), in(w.in) {}

  static Floats widen(const std::byte* from) {
    if constexpr (kind == WeightKind::f32) return Isa::load(from);
    if constexpr (kind == WeightKind::f16) return Isa::widen_f16(from);
    if constexpr (kind == WeightKind::bf16) return Isa::widen_bf16(from);
  }
  void fetch_ahead(std::int64_t k) const {
    __builtin_prefetch(data + (k + weight_rows * in) * element_bytes);
  }
  Open open(std::int64_t k) const { return widen(data + k * element_bytes); }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    alignas(64) std::byte rest[Isa::lanes * element_bytes] = {};
    __builtin_memcpy(rest, data + k * element_bytes, std::size_t(count * element_bytes));
    return widen(rest);
  }
  template <int v>
  static Floats take(const Open& open) {
    return open;
  }
};

[[gnu::always_inline]] constexpr int log2_of(std::int64_t power) {
  int log = 0;
  while ((std::int64_t{1} << log) < power) ++log;
  return log;
}

[[gnu::always_inline]] inline std::int64_t scales_a_row(const WeightView& w) {
  return (w.in + w.block_columns - 1) / w.block_columns;
}

// A step is four vectors, which share a scale.
template <class Isa>
struct F8Row {
  using Floats = typename Isa::Floats;
  using Open = typename Isa::F8;
  static constexpr int vectors = 4;
  static constexpr std::int64_t step = 4 * Isa::lanes;
  static constexpr std::int64_t most_in_place = 1;

  const std::byte* data;
  const float* scales;
  std::int64_t in;
  int block_log;

  F8Row(const WeightView& w, std::int64_t o)
      : data(static_cast<const std::byte*>(w.data) + o * w.in),
        scales(w.scales + (o / w.block_rows) * scales_a_row(w)),
        in(w.in),
        block_log(log2_of(w.block_columns)) {}

  void fetch_ahead(std::int64_t k) const { __builtin_prefetch(data + k + weight_rows * in); }
  Open open(std::int64_t k) const { return Isa::open_f8(data + k, scales[k >> block_log]); }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    alignas(64) std::byte rest[step] = {};
    __builtin_memcpy(rest, data + k, std::size_t(count));
    return Isa::open_f8(rest, scales[k >> block_log]);
  }
  template <int v>
  static Floats take(const Open& open) {
    return Isa::template f8<v>(open);
  }
};

// A step is `lanes` words of eight codes. Vector v has code v of every word, so its lane l is
// element 8 l + v of the step. `wide` says that a step never meets two scales of a row.
template <class Isa, bool wide>
struct Int4Row {
  using Floats = typename Isa::Floats;
  using Open = std::conditional_t<wide, typename Isa::Int4, typename Isa::Int4Narrow>;
  static constexpr int vectors = 8;
  static constexpr bool arranged = true;  // x comes in this order too
  static constexpr std::int64_t step = 8 * Isa::lanes;
  // With more rows of x, what a step holds open would no longer fit the registers.
  static constexpr std::int64_t most_in_place = 1;

  const std::byte* data;
  const float* scales;
  std::int64_t in;
  int block_log;

  Int4Row(const WeightView& w, std::int64_t o)
      : data(static_cast<const std::byte*>(w.data) + o * ((w.in + 1) / 2)),
        scales(w.scales + (o / w.block_rows) * scales_a_row(w)),
        in(w.in),
        block_log(log2_of(w.block_columns)) {}

  void fetch_ahead(std::int64_t k) const {
    __builtin_prefetch(data + k / 2 + weight_rows * ((in + 1) / 2));
  }
  Open open(std::int64_t k) const { return open_words(data + k / 2, k, step); }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    alignas(64) std::byte rest[step / 2] = {};
    __builtin_memcpy(rest, data + k / 2, std::size_t((count + 1) / 2));
    return open_words(rest, k, count);
  }
  template <int v>
  static Floats take(const Open& open) {
    return Isa::template int4<v>(open);
  }

 private:
  // k is a multiple of the step. Beyond the last input the lanes' scales are zero, and so is x.
  Open open_words(const std::byte* words, std::int64_t k, std::int64_t count) const {
    const float* first = scales + (k >> block_log);
    if constexpr (wide) {
      return Isa::open_int4(words, *first);
    } else {
      const auto blocks = static_cast<int>((count - 1) >> block_log) + 1;
      return Isa::open_int4(words, first, blocks, block_log - 3);
    }
  }
};

// Rows of a panel, already float32 and padded.
template <class Isa>
struct PanelRow {
  using Floats = typename Isa::Floats;
  using Open = Floats;
  static constexpr int vectors = 1;

  const float* data;

  Open open(std::int64_t k) const {
    return Isa::load(reinterpret_cast<const std::byte*>(data + k));
  }
  template <int v>
  static Floats take(const Open& open) {
    return open;
  }
};

// Calls body.template operator()<v>() for v in [0, count).
template <int count, class Body>
[[gnu::always_inline]] inline void unrolled(Body&& body) {
  [&]<int... v>(std::integer_sequence<int, v...>) {
    (body.template operator()<v>(), ...);
  }(std::make_integer_sequence<int, count>());
}

// y[m][r] for `tokens` rows of packed x and four weight rows: inputs [begin, begin + count) of the
// rows, of which `count_padded` stand in x.
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
void multiply(const Row* rows, std::int64_t begin, std::int64_t count, const Block& block) {
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
      r0.fetch_ahead(begin + k);
      r1.fetch_ahead(begin + k);
      r2.fetch_ahead(begin + k);
      r3.fetch_ahead(begin + k);
    }
    const typename Row::Open open[weight_rows] = {r0.open(begin + k), r1.open(begin + k),
                                                  r2.open(begin + k), r3.open(begin + k)};
    add_step(open, block.x + k);
  }
  if constexpr (requires { r0.open_tail(k, count); }) {
    if (k < count) {
      const std::int64_t rest = count - k;
      const typename Row::Open open[weight_rows] = {
          r0.open_tail(begin + k, rest), r1.open_tail(begin + k, rest),
          r2.open_tail(begin + k, rest), r3.open_tail(begin + k, rest)};
      add_step(open, block.x + k);
    }
  }
  finish<Isa, tokens>(sums, block);
}

template <class Isa, class Row>
void multiply_tokens(std::int64_t tokens, const Row* rows, std::int64_t begin, std::int64_t count,
                     const Block& block) {
  switch (tokens) {
    case 1:
      return multiply<Isa, 1>(rows, begin, count, block);
    case 2:
      return multiply<Isa, 2>(rows, begin, count, block);
    case 3:
      return multiply<Isa, 3>(rows, begin, count, block);
    default:
      break;
  }
  if constexpr (Isa::block_tokens >= 4) {
    if (tokens == 4) return multiply<Isa, 4>(rows, begin, count, block);
  }
  if constexpr (Isa::block_tokens >= 6) {
    if (tokens == 5) return multiply<Isa, 5>(rows, begin, count, block);
    if (tokens == 6) return multiply<Isa, 6>(rows, begin, count, block);
  }
}

// Every block of rows of x, as even as they come.
template <class Isa, class Row>
void multiply_all(std::int64_t tokens, const Row* rows, std::int64_t begin, std::int64_t count,
                  const Block& block) {
  const std::int64_t blocks = (tokens + Isa::block_tokens - 1) / Isa::block_tokens;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = tokens * b / blocks;
    const std::int64_t end = tokens * (b + 1) / blocks;
    Block part = block;
    part.x += first * block.x_stride;
    part.y += first * block.y_stride;
    multiply_tokens<Isa>(end - first, rows, begin, count, part);
  }
}

template <class Isa, class Row>
void decode_panel(const Row& row, std::int64_t begin, std::int64_t count, float* panel) {
  constexpr std::int64_t step = Row::vectors * Isa::lanes;
  const auto store_step = [&](const typename Row::Open& open, float* to)
                              __attribute__((always_inline)) {
                                unrolled<Row::vectors>([&]<int v>() __attribute__((always_inline)) {
                                  const typename Isa::Floats w = Row::template take<v>(open);
                                  __builtin_memcpy(to + v * Isa::lanes, &w, sizeof w);
                                });
                              };
  std::int64_t k = 0;
  for (; k + step <= count; k += step) {
    if constexpr (requires { row.fetch_ahead(k); }) row.fetch_ahead(begin + k);
    store_step(row.open(begin + k), panel + k);
  }
  if (k < count) store_step(row.open_tail(begin + k, count - k), panel + k);
}

// Splits 8 vectors into those whose lane l is element 8 l + v: three rounds of even and odd.
template <class Isa>
void arrange_for_int4(float* x) {
  using Floats = typename Isa::Floats;
  Floats a[8];
  Floats b[8];
  for (int i = 0; i < 8; ++i)
    a[i] = Isa::load(reinterpret_cast<const std::byte*>(x + i * Isa::lanes));
  // Each round halves the distance: the first half of a run of n gives evens, then odds.
  for (int i = 0; i < 4; ++i) {
    b[i] = Isa::even(a[2 * i], a[2 * i + 1]);
    b[i + 4] = Isa::odd(a[2 * i], a[2 * i + 1]);
  }
  for (int h = 0; h < 8; h += 4) {
    for (int i = 0; i < 2; ++i) {
      a[h + i] = Isa::even(b[h + 2 * i], b[h + 2 * i + 1]);
      a[h + i + 2] = Isa::odd(b[h + 2 * i], b[h + 2 * i + 1]);
    }
  }
  for (int h = 0; h < 8; h += 2) {
    b[h] = Isa::even(a[h], a[h + 1]);
    b[h + 1] = Isa::odd(a[h], a[h + 1]);
  }
  // b[4 v0 + 2 v1 + v2] is v = v0 + 2 v1 + 4 v2.
  for (int v = 0; v < 8; ++v) {
    const int from = 4 * (v & 1) + (v & 2) + (v >> 2);
    __builtin_memcpy(x + v * Isa::lanes, &b[from], sizeof b[from]);
  }
}

// Inputs [begin, begin + count) of row m of x, in float32, zeros up to `padded`.
template <class Isa>
void pack_x(const GemmTile& tile, std::int64_t m, std::int64_t begin, std::int64_t count,
            std::int64_t padded, float* to) {
  const std::int64_t row = tile.x_rows != nullptr ? tile.x_rows[m] : m;
  const std::int64_t element_bytes = tile.x_type == DType::f32 ? 4 : 2;
  const std::byte* from =
      static_cast<const std::byte*>(tile.x) + (row * tile.x_stride + begin) * element_bytes;
  if (tile.x_type == DType::f32) {
    __builtin_memcpy(to, from, std::size_t(count) * sizeof(float));
  } else {
    std::int64_t k = 0;
    for (; k + Isa::lanes <= count; k += Isa::lanes) {
      const typename Isa::Floats wide = Isa::widen_bf16(from + 2 * k);
      __builtin_memcpy(to + k, &wide, sizeof wide);
    }
    for (; k < count; ++k) {
      std::uint16_t half = 0;
      __builtin_memcpy(&half, from + 2 * k, sizeof half);
      to[k] = __builtin_bit_cast(float, std::uint32_t{half} << 16);
    }
  }
  for (std::int64_t k = count; k < padded; ++k) to[k] = 0;
}

// A format without vector loops: panels are decoded number by number.
template <class Isa>
struct AnyRow {
  using Floats = typename Isa::Floats;
  static constexpr int vectors = 1;
  const WeightView* w;
  std::int64_t o;
  AnyRow(const WeightView& view, std::int64_t row) : w(&view), o(row) {}
};

template <class Isa, class Row>
void run(const GemmTile& tile) {
  constexpr std::int64_t step = Row::vectors * Isa::lanes;
  constexpr bool in_place = requires(const Row& row) { row.open(0); };
  // [chunks, tokens, padded inputs of a chunk]
  alignas(64) float x[rows_at_once * chunk_inputs];
  alignas(64) float panel[weight_rows * chunk_inputs];
  const WeightView& w = tile.w;
  // A weight without inputs still has a chunk, which gives zeros.
  const std::int64_t chunks = w.in <= chunk_inputs ? 1 : (w.in + chunk_inputs - 1) / chunk_inputs;
  for (std::int64_t first = 0; first < tile.rows; first += rows_at_once) {
    const std::int64_t tokens = smaller(rows_at_once, tile.rows - first);
    // Few rows of x are held whole, so that each row of the weight is read from end to end.
    const std::int64_t held = rows_at_once / tokens;
    for (std::int64_t first_chunk = 0; first_chunk < chunks; first_chunk += held) {
      const std::int64_t end_chunk = smaller(first_chunk + held, chunks);
      for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
        const std::int64_t begin = chunk * chunk_inputs;
        const std::int64_t count = smaller(chunk_inputs, w.in - begin);
        const std::int64_t padded = (count + step - 1) / step * step;
        float* to = x + (chunk - first_chunk) * tokens * chunk_inputs;
        for (std::int64_t m = 0; m < tokens; ++m, to += padded) {
          pack_x<Isa>(tile, first + m, begin, count, padded, to);
          if constexpr (requires { Row::arranged; }) {
            for (std::int64_t k = 0; k < padded; k += step) arrange_for_int4<Isa>(to + k);
          }
        }
      }
      for (std::int64_t o = tile.out_begin; o < tile.out_end; o += weight_rows) {
        const std::int64_t outs = smaller(weight_rows, tile.out_end - o);
        const auto row_at = [&](std::int64_t r) { return Row(w, o + smaller(r, outs - 1)); };
        const Row rows[weight_rows] = {row_at(0), row_at(1), row_at(2), row_at(3)};
        for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
          const std::int64_t begin = chunk * chunk_inputs;
          const std::int64_t count = smaller(chunk_inputs, w.in - begin);
          const std::int64_t padded = (count + step - 1) / step * step;
          const Block block{
              .x = x + (chunk - first_chunk) * tokens * chunk_inputs,
              .x_stride = padded,
              .y = tile.y + first * tile.y_stride + (o - tile.out_begin),
              .y_stride = tile.y_stride,
              .outs = static_cast<int>(outs),
              .add = chunk != 0,
          };
          if constexpr (in_place) {
            if (tokens <= Row::most_in_place) {
              multiply_all<Isa>(tokens, rows, begin, count, block);
              continue;
            }
          }
          PanelRow<Isa> panel_rows[weight_rows];
          for (int r = 0; r < weight_rows; ++r) {
            float* to = panel + r * padded;
            panel_rows[r].data = to;
            if constexpr (in_place) {
              decode_panel<Isa>(rows[r], begin, count, to);
            } else {
              decode_inputs(w, rows[r].o, begin, count, to);
              for (std::int64_t k = count; k < padded; ++k) to[k] = 0;
            }
          }
          multiply_all<Isa>(tokens, panel_rows, 0, padded, block);
        }
      }
    }
  }
}

template <class Isa>
void gemm_tile(const GemmTile& tile) {
  const WeightKind kind = tile.w.kind;
  if (kind == WeightKind::f32) return run<Isa, PlainRow<Isa, WeightKind::f32>>(tile);
  if (kind == WeightKind::f16) return run<Isa, PlainRow<Isa, WeightKind::f16>>(tile);
  if (kind == WeightKind::bf16) return run<Isa, PlainRow<Isa, WeightKind::bf16>>(tile);
  if (!has_vector_blocks(tile.w, 4 * Isa::lanes)) return run<Isa, AnyRow<Isa>>(tile);
  if (kind == WeightKind::f8_block) return run<Isa, F8Row<Isa>>(tile);
  if (tile.w.block_columns >= 8 * Isa::lanes) return run<Isa, Int4Row<Isa, true>>(tile);
  return run<Isa, Int4Row<Isa, false>>(tile);
}

}  // namespace motley::kernels::cpu::gemm_body
