#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/isa_lanes.h"
#include "kernels/weight_view.h"

// Scales and zero points as float32, which is all that the loops over weights read, for the Isa of
// the including file; the same bits on every instruction set.
namespace motley::kernels::cpu::gemm_body {

// Copies fewer bytes than `room`, a power of two, without a call.
template <std::int64_t room>
[[gnu::always_inline]] inline void copy_few(std::byte* to, const std::byte* from,
                                            std::int64_t bytes) {
#pragma GCC unroll 6
  for (std::int64_t part = room / 2; part > 0; part /= 2) {
    if ((bytes & part) == 0) continue;
    __builtin_memcpy(to, from, std::size_t(part));
    to += part;
    from += part;
  }
}

template <class Isa>
struct ScaleLanes : IsaLanes<Isa> {
  using L = IsaLanes<Isa>;
  using Floats = typename L::Floats;
  using Words = typename L::Words;

  // Subnormal codes are small integers; the others get float32's exponent.
  [[gnu::always_inline]] static Floats e4m3(const std::byte* from) {
    const Words code = L::bytes(from);
    const Words magnitude = code & 0x7FU;
    const Words small = L::bits(L::number(magnitude) * 0x1p-9F);
    const Words value = magnitude < 8U ? small : (magnitude << 20) + (120U << 23);
    const Words bits = magnitude == 0x7FU ? Words{} + 0x7FC00000U : value;
    return L::floats(bits | ((code & 0x80U) << 24));
  }

  // Code 0 is a subnormal float32 and 255 is NaN: both have the bit below the exponent.
  [[gnu::always_inline]] static Floats e8m0(const std::byte* from) {
    const Words code = L::bytes(from);
    const Words edge = ((code + 1U) & 0xFFU) < 2U ? Words{} + 0x00400000U : Words{};
    return L::floats((code << 23) | edge);
  }

  template <DType type>
  [[gnu::always_inline]] static Floats widen(const std::byte* from) {
    if constexpr (type == DType::f8_e4m3) return e4m3(from);
    if constexpr (type == DType::f8_e8m0) return e8m0(from);
    if constexpr (type == DType::f16) return __builtin_bit_cast(Floats, Isa::widen_f16(from));
    if constexpr (type == DType::bf16) return __builtin_bit_cast(Floats, Isa::widen_bf16(from));
    Floats value{};
    __builtin_memcpy(&value, from, sizeof value);
    return value;
  }
};

// Writes what widen(from) makes of each vector of numbers, of so many bytes each. Nothing behind
// the last number is read; floats behind the last are written up to a whole vector.
template <class Isa, std::int64_t bytes, class Widen>
[[gnu::always_inline]] inline void widen_numbers(const std::byte* from, std::int64_t count,
                                                 float* to, const Widen& widen) {
  constexpr std::int64_t lanes = Isa::lanes;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = widen(from + i * bytes);
    __builtin_memcpy(to + i, &value, sizeof value);
  }
  if (i == count) return;
  alignas(64) std::byte rest[lanes * bytes] = {};
  if constexpr (requires { Isa::load_part(from, count); }) {
    const auto part = Isa::load_part(from + i * bytes, (count - i) * bytes);
    __builtin_memcpy(rest, &part, sizeof rest);
  } else {
    copy_few<lanes * bytes>(rest, from + i * bytes, (count - i) * bytes);
  }
  const auto value = widen(rest);
  __builtin_memcpy(to + i, &value, sizeof value);
}

template <class Isa, DType type>
void decode_scales_of(const WeightView& w, std::int64_t first, std::int64_t count, float* to) {
  constexpr bool halves = type == DType::f16 || type == DType::bf16;
  constexpr std::int64_t bytes = type == DType::f32 ? 4 : halves ? 2 : 1;
  const float factor = w.scale_factor;
  widen_numbers<Isa, bytes>(static_cast<const std::byte*>(w.scales) + first * bytes, count, to,
                            [factor](const std::byte* from) __attribute__((always_inline)) {
                              return ScaleLanes<Isa>::template widen<type>(from) * factor;
                            });
}

// Scales [first, first + count) of a weight that has some, with its factor. As with zero points,
// floats behind them are written too, up to a whole vector.
template <class Isa>
void decode_scales(const WeightView& w, std::int64_t first, std::int64_t count, float* to) {
  switch (w.scale_type) {
    case DType::f16:
      return decode_scales_of<Isa, DType::f16>(w, first, count, to);
    case DType::bf16:
      return decode_scales_of<Isa, DType::bf16>(w, first, count, to);
    case DType::f8_e4m3:
      return decode_scales_of<Isa, DType::f8_e4m3>(w, first, count, to);
    case DType::f8_e8m0:
      return decode_scales_of<Isa, DType::f8_e8m0>(w, first, count, to);
    default:
      return decode_scales_of<Isa, DType::f32>(w, first, count, to);
  }
}

template <class Isa>
void decode_zeros(const WeightView& w, std::int64_t first, std::int64_t count, float* to) {
  using L = IsaLanes<Isa>;
  const std::uint32_t offset = w.kind == WeightKind::i8 ? 128 : 0;
  widen_numbers<Isa, 1>(reinterpret_cast<const std::byte*>(w.zero_points + first), count, to,
                        [offset](const std::byte* from) __attribute__((always_inline)) {
                          return L::number(L::bytes(from) - offset);
                        });
}

}  // namespace motley::kernels::cpu::gemm_body
