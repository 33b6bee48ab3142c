#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_variants.h"
#include "kernels/cpu/pack_inputs.h"
#include "kernels/cpu/weight_rows.h"

// gemm_tile of int8 inputs by int8 weights (has_integer_products), for the Isa of the including
// file. Blocks of inputs in which no scale changes are summed in int32, which is exact:
//   sum of (x code - x zero) (w code - w zero) = products - z sum(x) - x zero (sum(w) - count z)
// where instructions take weights as unsigned, w is w + 128 here, and z is the zero point so moved.
// A block adds float(sum) * (x scale * w scale) to y, in the order of blocks, nothing fused. So the
// bits are the same on every instruction set.
namespace motley::kernels::cpu::integer_body {

using gemm_body::chunk_inputs;
using gemm_body::RowGroup;
using gemm_body::rows_at_once;
using gemm_body::smaller;
using gemm_body::Span;
using gemm_body::weight_rows;

inline constexpr std::int64_t max_blocks = chunk_inputs / integer_block;  // of a chunk

typedef std::int32_t Ints4 __attribute__((vector_size(16)));
typedef float Floats4 __attribute__((vector_size(16)));

// Codes of `count` inputs of that scale, and zeros up to a whole vector; returns their sum. `nan`
// is set where an input is none.
template <class Isa>
std::int32_t encode(const InputRounding& rounding, float scale, std::int64_t count, const float* x,
                    typename Isa::Code* to, bool& nan) {
  using L = gemm_body::InputCodes<Isa>;
  // Sums of so few codes are exact, and have what is NaN.
  typename L::Floats sums{};
  for (std::int64_t k = 0; k < count; k += L::count) {
    typename L::Floats code = L::i8(L::read(x, k, count) / scale, rounding.zero);
    if (count - k < L::count) {
      alignas(64) float part[L::count] = {};
      L::write(part, 0, count - k, code);
      code = L::read(part, 0, L::count);
    }
    sums += code;
    const auto codes = __builtin_convertvector(code, typename L::Ints);
    Isa::store_codes(__builtin_bit_cast(typename Isa::Words, codes), to + k);
  }
  float sum = 0;
  for (std::int64_t i = 0; i < L::count; ++i) sum += sums[i];
  nan = nan || __builtin_isnan(sum);
  return nan ? 0 : static_cast<std::int32_t>(sum);
}

// Inputs of a block: where no scale changes, and a chunk at most.
inline std::int64_t inputs_of_block(const WeightView& w) __attribute__((always_inline));
inline std::int64_t inputs_of_block(const WeightView& w) {
  std::int64_t inputs = chunk_inputs;
  if (w.block_columns < w.in) inputs = smaller(inputs, w.block_columns);
  const bool by_block = w.inputs.scales == InputRounding::Scales::row_block;
  if (by_block && w.inputs.columns < w.in) inputs = smaller(inputs, w.inputs.columns);
  return inputs;
}

// A row of x in a chunk.
struct InputBlocks {
  float scales[max_blocks];
  std::int32_t sums[max_blocks];  // of codes
};

// Only the parts that are written are read.
// NOLINTBEGIN(cppcoreguidelines-pro-type-member-init)
template <class Isa>
struct Buffers {
  using Code = typename Isa::Code;

  alignas(64) Code x[rows_at_once * chunk_inputs];  // [chunks, tokens, padded inputs of a chunk]
  InputBlocks blocks[rows_at_once];                 // [chunks, tokens]
  alignas(64) Code ones[chunk_inputs];

  static std::int64_t padded(std::int64_t count) {
    return (count + Isa::integer_step - 1) / Isa::integer_step * Isa::integer_step;
  }

  // Row m of x, at `place` of what is held of that chunk.
  void pack(const GemmTile& tile, const RowGroup& group, const Span& span, std::int64_t m, Code* to,
            InputBlocks& row) {
    alignas(64) float wide[chunk_inputs];
    const InputRounding& rounding = tile.w.inputs;
    const std::int64_t each = inputs_of_block(tile.w);
    gemm_body::widen_x<Isa>(tile, group.first + m, span.begin, span.count, wide);
    gemm_body::for_input_scales<Isa>(
        tile, group.first + m, span, wide, group.largest[m],
        [&](float scale, std::int64_t from, std::int64_t end) {
          // An infinite scale is no number's, nor is that of a NaN.
          bool nan = scale - scale != 0;
          for (std::int64_t k = from; k < end; k += each) {
            const std::int64_t count = smaller(each, end - k);
            if (scale == 0) {
              __builtin_memset(to + k, 0, std::size_t(count) * sizeof(Code));
              row.sums[k / each] = 0;
            } else {
              row.sums[k / each] = encode<Isa>(rounding, scale, count, wide + k, to + k, nan);
            }
          }
          for (std::int64_t k = from; k < end; k += each)
            row.scales[k / each] = nan ? __builtin_nanf("") : scale;
        });
    const std::int64_t width = padded(span.count);
    for (std::int64_t k = span.count; k < width; ++k) to[k] = 0;
  }
  void fill_ones() {
    for (Code& one : ones) one = 1;
  }
};

// NOLINTEND(cppcoreguidelines-pro-type-member-init)

// A block of four weight rows.
struct WeightBlock {
  const std::byte* codes[weight_rows];
  std::int64_t row_bytes;
  std::int64_t count;  // inputs
  Floats4 scales;
  Ints4 zeros;
  Ints4 input_zero_sums;  // what the zero point of x adds
};

template <class Isa, int tokens>
void multiply(const WeightBlock& w, const typename Isa::Code* x, std::int64_t x_stride, Ints4* to) {
  using Sums = typename Isa::Sums;
  constexpr std::int64_t step = Isa::integer_step;
  Sums sums[tokens][weight_rows];
  for (auto& row : sums) {
    for (Sums& sum : row) sum = Sums{};
  }
  const auto add_step = [&](const std::byte* const(&codes)[weight_rows], std::int64_t k)
                            __attribute__((always_inline)) {
                              const auto w0 = Isa::open_codes(codes[0]);
                              const auto w1 = Isa::open_codes(codes[1]);
                              const auto w2 = Isa::open_codes(codes[2]);
                              const auto w3 = Isa::open_codes(codes[3]);
#pragma GCC unroll 16
                              for (int m = 0; m < tokens; ++m) {
                                const auto* const xs = x + m * x_stride + k;
                                sums[m][0] = Isa::add_products(sums[m][0], w0, xs);
                                sums[m][1] = Isa::add_products(sums[m][1], w1, xs);
                                sums[m][2] = Isa::add_products(sums[m][2], w2, xs);
                                sums[m][3] = Isa::add_products(sums[m][3], w3, xs);
                              }
                            };
  const std::byte* const w0 = w.codes[0];
  const std::byte* const w1 = w.codes[1];
  const std::byte* const w2 = w.codes[2];
  const std::byte* const w3 = w.codes[3];
  std::int64_t k = 0;
  for (; k + step <= w.count; k += step) {
    // As fetch_ahead of gemm_body's rows.
    __builtin_prefetch(w0 + k + weight_rows * w.row_bytes);
    __builtin_prefetch(w1 + k + weight_rows * w.row_bytes);
    __builtin_prefetch(w2 + k + weight_rows * w.row_bytes);
    __builtin_prefetch(w3 + k + weight_rows * w.row_bytes);
    add_step({w0 + k, w1 + k, w2 + k, w3 + k}, k);
  }
  if (k < w.count) {
    // Behind the last input stands what opens as zero.
    alignas(64) std::byte rest[weight_rows][step];
    __builtin_memset(rest, Isa::integer_bias, sizeof rest);
    for (int r = 0; r < weight_rows; ++r)
      __builtin_memcpy(rest[r], w.codes[r] + k, std::size_t(w.count - k));
    add_step({rest[0], rest[1], rest[2], rest[3]}, k);
  }
  for (int m = 0; m < tokens; ++m)
    to[m] = Isa::fold_integers(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
}

template <class Isa>
void multiply_tokens(std::int64_t tokens, const WeightBlock& w, const typename Isa::Code* x,
                     std::int64_t x_stride, Ints4* to) {
  if (tokens == 1) return multiply<Isa, 1>(w, x, x_stride, to);
  if (tokens == 2) return multiply<Isa, 2>(w, x, x_stride, to);
  if constexpr (Isa::block_tokens >= 6) {
    if (tokens == 3) return multiply<Isa, 3>(w, x, x_stride, to);
    if (tokens == 4) return multiply<Isa, 4>(w, x, x_stride, to);
    if (tokens == 5) return multiply<Isa, 5>(w, x, x_stride, to);
    if (tokens == 6) return multiply<Isa, 6>(w, x, x_stride, to);
  }
}

// Where the results of a chunk go.
struct Results {
  float* y;
  std::int64_t y_stride;
  int outs;  // how many of the four are wanted
  bool add;
};

[[gnu::always_inline]] inline void finish(Ints4 products, const WeightBlock& w, float x_scale,
                                          std::int32_t x_sum, const Results& results) {
  const Ints4 sum = products - w.zeros * x_sum - w.input_zero_sums;
  const Floats4 value = __builtin_convertvector(sum, Floats4) * (w.scales * x_scale);
  Floats4 total{};
  const std::size_t bytes = std::size_t(results.outs) * sizeof(float);
  if (results.outs == weight_rows) [[likely]] {
    if (results.add) __builtin_memcpy(&total, results.y, sizeof total);
    total = results.add ? total + value : value;
    __builtin_memcpy(results.y, &total, sizeof total);
    return;
  }
  if (results.add) __builtin_memcpy(&total, results.y, bytes);
  total = results.add ? total + value : value;
  __builtin_memcpy(results.y, &total, bytes);
}

// Scales and zero points of four rows in a chunk.
template <class Isa>
struct WeightScales {
  // Decoding writes whole vectors of 16.
  alignas(64) float scales[weight_rows][(max_blocks + 15) / 16 * 16];
  alignas(64) float zeros[weight_rows][(max_blocks + 15) / 16 * 16];
  int block_log;

  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
  WeightScales(const RowLayout& layout, const std::int64_t (&rows)[weight_rows], const Span& span)
      : block_log(layout.block_log) {
    const std::int64_t groups = ((span.count - 1) >> block_log) + 1;
    for (int r = 0; r < weight_rows; ++r) {
      const std::int64_t first =
          gemm_body::first_scale(layout, rows[r]) + (span.begin >> block_log);
      gemm_body::decode_scales<Isa>(*layout.w, first, groups, scales[r]);
      if (layout.w->zero_points != nullptr)
        gemm_body::decode_zeros<Isa>(*layout.w, first, groups, zeros[r]);
    }
  }
  void set(const RowLayout& layout, std::int64_t k, WeightBlock& block) const {
    const std::int64_t at = k >> block_log;
    for (int r = 0; r < weight_rows; ++r) {
      block.scales[r] = scales[r][at];
      const bool moved = layout.w->zero_points != nullptr;
      block.zeros[r] = Isa::integer_bias + (moved ? static_cast<std::int32_t>(zeros[r][at]) : 0);
    }
  }
};

// A chunk of rows of x: codes, and each row's blocks.
template <class Isa>
struct PackedChunk {
  const typename Isa::Code* x;
  const InputBlocks* blocks;
  const typename Isa::Code* ones;
  std::int64_t tokens;
  std::int64_t stride;
};

// Adds a chunk of four weight rows to all rows of x.
template <class Isa>
void add_chunk(const RowLayout& layout, const std::int64_t (&rows)[weight_rows], const Span& span,
               const PackedChunk<Isa>& packed, Results results) {
  const WeightScales<Isa> scales(layout, rows, span);
  const std::int64_t each = inputs_of_block(*layout.w);
  const auto x_zero = static_cast<std::int32_t>(layout.w->inputs.zero);
  const std::int64_t parts = (packed.tokens + Isa::block_tokens - 1) / Isa::block_tokens;
  WeightBlock block{};
  block.row_bytes = layout.row_bytes;
  float* const y = results.y;
  for (std::int64_t k = 0; k < span.count; k += each, results.add = true) {
    for (int r = 0; r < weight_rows; ++r)
      block.codes[r] = gemm_body::codes_at(layout, rows[r], span) + k;
    block.count = smaller(each, span.count - k);
    scales.set(layout, k, block);
    if (x_zero != 0) {
      multiply<Isa, 1>(block, packed.ones, 0, &block.input_zero_sums);
      const Ints4 zeros = block.zeros * static_cast<std::int32_t>(block.count);
      block.input_zero_sums = (block.input_zero_sums - zeros) * x_zero;
    }
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t first = packed.tokens * part / parts;
      const std::int64_t end = packed.tokens * (part + 1) / parts;
      Ints4 products[Isa::block_tokens];
      multiply_tokens<Isa>(end - first, block, packed.x + first * packed.stride + k, packed.stride,
                           products);
      for (std::int64_t m = first; m < end; ++m) {
        const InputBlocks& inputs = packed.blocks[m];
        results.y = y + m * results.y_stride;
        finish(products[m - first], block, inputs.scales[k / each], inputs.sums[k / each], results);
      }
    }
  }
}

template <class Isa>
void multiply_weight(const GemmTile& tile, const RowLayout& layout, const RowGroup& group,
                     std::int64_t first_chunk, std::int64_t end_chunk,
                     const Buffers<Isa>& buffers) {
  for (std::int64_t o = tile.out_begin; o < tile.out_end; o += weight_rows) {
    const std::int64_t outs = smaller(weight_rows, tile.out_end - o);
    const std::int64_t rows[weight_rows] = {o, o + smaller(1, outs - 1), o + smaller(2, outs - 1),
                                            o + outs - 1};
    for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
      const Span span = gemm_body::chunk_at(tile.w, chunk);
      const std::int64_t at = (chunk - first_chunk) * group.tokens;
      const PackedChunk<Isa> packed{buffers.x + at * chunk_inputs, buffers.blocks + at,
                                    buffers.ones, group.tokens, buffers.padded(span.count)};
      add_chunk<Isa>(layout, rows, span, packed,
                     {.y = tile.y + group.first * tile.y_stride + (o - tile.out_begin),
                      .y_stride = tile.y_stride,
                      .outs = static_cast<int>(outs),
                      .add = chunk != 0});
    }
  }
}

template <class Isa>
void gemm_tile(const GemmTile& tile) {
  Buffers<Isa> buffers;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const RowLayout layout = layout_of(tile.w);
  const std::int64_t chunks = gemm_body::chunks_of(tile.w);
  if (tile.w.inputs.zero != 0) buffers.fill_ones();
  for (std::int64_t first = 0; first < tile.rows; first += rows_at_once) {
    const RowGroup group = gemm_body::row_group<Isa>(tile, first);
    const std::int64_t held = rows_at_once / group.tokens;
    for (std::int64_t first_chunk = 0; first_chunk < chunks; first_chunk += held) {
      const std::int64_t end_chunk = smaller(first_chunk + held, chunks);
      for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
        const Span span = gemm_body::chunk_at(tile.w, chunk);
        const std::int64_t at = (chunk - first_chunk) * group.tokens;
        for (std::int64_t m = 0; m < group.tokens; ++m) {
          buffers.pack(tile, group, span, m,
                       buffers.x + at * chunk_inputs + m * buffers.padded(span.count),
                       buffers.blocks[at + m]);
        }
      }
      multiply_weight<Isa>(tile, layout, group, first_chunk, end_chunk, buffers);
    }
  }
}

}  // namespace motley::kernels::cpu::integer_body
