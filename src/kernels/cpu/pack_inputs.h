#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_lanes.h"
#include "kernels/cpu/weight_rows.h"

// Rows of x as products take them, for the Isa of the including file: float32, rounded where the
// weight's file says so, padded with zeros.
namespace motley::kernels::cpu::gemm_body {

// Inputs order[i] of a row in float32.
template <class Isa>
void gather_inputs(DType type, const std::byte* row, const std::int32_t* order, std::int64_t count,
                   float* to) {
  std::int64_t i = 0;
  if (type == DType::f32) {
    const auto* const numbers = reinterpret_cast<const float*>(row);
    for (; i + Isa::lanes <= count; i += Isa::lanes) {
      const typename Isa::Floats some = Isa::gather(numbers, order + i);
      __builtin_memcpy(to + i, &some, sizeof some);
    }
    for (; i < count; ++i) to[i] = numbers[order[i]];
    return;
  }
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(row);
  for (; i < count; ++i) to[i] = __builtin_bit_cast(float, std::uint32_t{halves[order[i]]} << 16);
}

// What columns [begin, begin + count) of the weight multiply of row m of x, in float32.
template <class Isa>
void widen_x(const GemmTile& tile, std::int64_t m, std::int64_t begin, std::int64_t count,
             float* to) {
  const std::int64_t row = tile.x_rows != nullptr ? tile.x_rows[m] : m;
  const std::int64_t element_bytes = tile.x_type == DType::f32 ? 4 : 2;
  const std::byte* from =
      static_cast<const std::byte*>(tile.x) + row * tile.x_stride * element_bytes;
  if (tile.w.input_order != nullptr)
    return gather_inputs<Isa>(tile.x_type, from, tile.w.input_order + begin, count, to);
  from += begin * element_bytes;
  if (tile.x_type == DType::f32) {
    __builtin_memcpy(to, from, std::size_t(count) * sizeof(float));
    return;
  }
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

// The largest magnitude, NaNs left out.
template <class Isa>
float largest_of(const float* x, std::int64_t count) {
  using L = IsaLanes<Isa>;
  typename L::Floats largest{};
  for (std::int64_t k = 0; k < count; k += L::count) {
    const auto magnitude = L::floats(L::bits(L::read(x, k, count)) & 0x7FFFFFFFU);
    largest = L::larger(magnitude, largest);
  }
  return L::largest(largest);
}

// The same of inputs [begin, end) of row m of x.
template <class Isa>
float largest_input(const GemmTile& tile, std::int64_t m, std::int64_t begin, std::int64_t end) {
  alignas(64) float x[chunk_inputs];
  float largest = 0;
  for (; begin < end; begin += chunk_inputs) {
    const std::int64_t count = smaller(chunk_inputs, end - begin);
    widen_x<Isa>(tile, m, begin, count, x);
    const float part = largest_of<Isa>(x, count);
    if (part > largest) largest = part;
  }
  return largest;
}

// Codes of inputs, as float32.
template <class Isa>
struct InputCodes : IsaLanes<Isa> {
  using L = IsaLanes<Isa>;
  using Floats = typename L::Floats;
  using Words = typename L::Words;

  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits, ties to even. A NaN stays one.
  [[gnu::always_inline]] static Floats i8(Floats x, float zero) {
    const Floats bounded = L::at_least(L::at_most(x, 1024), -1024);
    const Floats code = (bounded + 12582912.0F) - 12582912.0F + zero;
    return L::at_least(L::at_most(code, 127), -128);
  }

  // Adding the power of two whose last place is that of the code's leaves the nearest code: three
  // bits behind the first one, but 2^-9 at least.
  [[gnu::always_inline]] static Floats f8(Floats x) {
    const Floats bounded = L::at_most(L::floats(L::bits(x) & 0x7FFFFFFFU), 448);
    const Words power = (L::bits(bounded) & 0x7F800000U) + (20U << 23);
    const Floats places = L::at_least(L::floats(power), 16384);
    const Floats rounded = (bounded + places) - places;
    return L::floats(L::bits(rounded) | (L::bits(x) & 0x80000000U));
  }
};

// Inputs of that scale as what their codes mean.
template <class Isa>
void round_inputs(const InputRounding& rounding, float scale, std::int64_t count, float* x) {
  using Codes = InputCodes<Isa>;
  using Floats = typename Codes::Floats;
  if (scale == 0) {
    __builtin_memset(x, 0, std::size_t(count) * sizeof(float));
    return;
  }
  const auto replace = [&](const auto& rounded) __attribute__((always_inline)) {
    for (std::int64_t k = 0; k < count; k += Codes::count)
      Codes::write(x, k, count, rounded(Codes::read(x, k, count) / scale) * scale);
  };
  const float zero = rounding.zero;
  if (rounding.type == DType::i8) {
    replace([zero](Floats ratio)
                __attribute__((always_inline)) { return Codes::i8(ratio, zero) - zero; });
  } else {
    replace([](Floats ratio) __attribute__((always_inline)) { return Codes::f8(ratio); });
  }
}

// Calls body(scale, from, end) for the parts of inputs [begin, begin + count) of row m that share a
// scale, counted from `begin`. x has those inputs; `row_largest` is of the whole row, where the
// rounding asks for it.
template <class Isa, class Body>
void for_input_scales(const GemmTile& tile, std::int64_t m, const Span& span, const float* x,
                      float row_largest, const Body& body) {
  const InputRounding& rounding = tile.w.inputs;
  if (rounding.scales != InputRounding::Scales::row_block) {
    body(input_scale(rounding, row_largest), std::int64_t{0}, span.count);
    return;
  }
  const std::int64_t columns = rounding.columns;
  const std::int64_t span_end = span.begin + span.count;
  for (std::int64_t number = (rounding.first + span.begin) / columns;; ++number) {
    // The first block may have begun on another rank.
    const std::int64_t begin = number * columns - rounding.first;
    if (begin >= span_end) break;
    const std::int64_t block = begin < 0 ? 0 : begin;
    const std::int64_t block_end = smaller(begin + columns, tile.w.in);
    const std::int64_t from = block < span.begin ? 0 : block - span.begin;
    const std::int64_t end = smaller(block_end, span_end) - span.begin;
    const bool whole = block >= span.begin && block_end <= span_end;
    const float largest = tile.maxima.data != nullptr
                              ? tile.maxima.data[m * tile.maxima.stride + number]
                          : whole ? largest_of<Isa>(x + from, end - from)
                                  : largest_input<Isa>(tile, m, block, block_end);
    body(input_scale(rounding, largest), from, end);
  }
}

// Inputs of a span of row m as the weight's products take them, zeros up to `padded`.
template <class Isa>
void pack_x(const GemmTile& tile, std::int64_t m, const Span& span, std::int64_t padded,
            float row_largest, float* to) {
  widen_x<Isa>(tile, m, span.begin, span.count, to);
  for (std::int64_t k = span.count; k < padded; ++k) to[k] = 0;
  const InputRounding& rounding = tile.w.inputs;
  if (rounding.scales == InputRounding::Scales::none) return;
  for_input_scales<Isa>(tile, m, span, to, row_largest,
                        [&](float scale, std::int64_t from, std::int64_t end) {
                          round_inputs<Isa>(rounding, scale, end - from, to + from);
                        });
}

// Splits 8 vectors into those whose lane l is element 8 l + v: three rounds of even and odd. `x`
// has numbers of 32 bits of any kind.
template <class Isa>
void arrange_for_nibbles(void* x) {
  using Floats = typename Isa::Floats;
  auto* const bytes = static_cast<std::byte*>(x);
  Floats a[8];
  Floats b[8];
  for (std::size_t i = 0; i < 8; ++i) a[i] = Isa::load(bytes + i * sizeof(Floats));
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
  for (std::size_t v = 0; v < 8; ++v) {
    const std::size_t from = 4 * (v & 1) + (v & 2) + (v >> 2);
    __builtin_memcpy(bytes + v * sizeof(Floats), &b[from], sizeof(Floats));
  }
}

// Rows of x that are packed together.
struct RowGroup {
  std::int64_t first;
  std::int64_t tokens;
  float largest[rows_at_once];  // magnitude of each row, where inputs are rounded by it
};

template <class Isa>
RowGroup row_group(const GemmTile& tile, std::int64_t first) {
  RowGroup group;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  group.first = first;
  group.tokens = smaller(rows_at_once, tile.rows - first);
  const bool by_row = tile.w.inputs.scales == InputRounding::Scales::row;
  const InputMaxima& maxima = tile.maxima;
  for (std::int64_t m = 0; m < group.tokens; ++m)
    group.largest[m] = !by_row                  ? 0
                       : maxima.data != nullptr ? maxima.data[(first + m) * maxima.stride]
                                                : largest_input<Isa>(tile, first + m, 0, tile.w.in);
  return group;
}

// A weight without inputs still has a chunk, which gives zeros.
[[gnu::always_inline]] inline std::int64_t chunks_of(const WeightView& w) {
  return w.in <= chunk_inputs ? 1 : (w.in + chunk_inputs - 1) / chunk_inputs;
}
[[gnu::always_inline]] inline Span chunk_at(const WeightView& w, std::int64_t chunk) {
  const std::int64_t begin = chunk * chunk_inputs;
  return {begin, smaller(chunk_inputs, w.in - begin)};
}

}  // namespace motley::kernels::cpu::gemm_body
