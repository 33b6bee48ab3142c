#pragma once

#include <cstddef>
#include <cstdint>

// One vector of an Isa's own width as numbers that can be computed with, where the same expressions
// serve every instruction set: all operations here round alike, so that bits are the same.
namespace motley::kernels::cpu {

template <int lanes>
struct LaneTypes;
template <>
struct LaneTypes<4> {
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::int32_t Ints __attribute__((vector_size(16)));
  typedef std::uint32_t Words __attribute__((vector_size(16)));
};
template <>
struct LaneTypes<8> {
  typedef float Floats __attribute__((vector_size(32)));
  typedef std::int32_t Ints __attribute__((vector_size(32)));
  typedef std::uint32_t Words __attribute__((vector_size(32)));
};
template <>
struct LaneTypes<16> {
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::int32_t Ints __attribute__((vector_size(64)));
  typedef std::uint32_t Words __attribute__((vector_size(64)));
};

template <class Isa>
struct IsaLanes {
  static constexpr std::int64_t count = Isa::lanes;
  using Floats = typename LaneTypes<Isa::lanes>::Floats;
  using Ints = typename LaneTypes<Isa::lanes>::Ints;
  using Words = typename LaneTypes<Isa::lanes>::Words;

  [[gnu::always_inline]] static Floats all(float value) { return Floats{} + value; }
  [[gnu::always_inline]] static Floats floats(Words bits) {
    return __builtin_bit_cast(Floats, bits);
  }
  [[gnu::always_inline]] static Words bits(Floats value) {
    return __builtin_bit_cast(Words, value);
  }
  [[gnu::always_inline]] static Floats number(Words integer) {
    const Ints value = __builtin_bit_cast(Ints, integer);
    return __builtin_convertvector(value, Floats);
  }
  // x, or the bound that it is beyond; a NaN stays one.
  [[gnu::always_inline]] static Floats at_most(Floats x, float bound) {
    return __builtin_bit_cast(Floats, Isa::min(native(all(bound)), native(x)));
  }
  [[gnu::always_inline]] static Floats at_least(Floats x, float bound) {
    return __builtin_bit_cast(Floats, Isa::max(native(all(bound)), native(x)));
  }
  // The larger; y where x is NaN.
  [[gnu::always_inline]] static Floats larger(Floats x, Floats y) {
    return __builtin_bit_cast(Floats, Isa::max(native(x), native(y)));
  }
  [[gnu::always_inline]] static typename Isa::Floats native(Floats x) {
    return __builtin_bit_cast(typename Isa::Floats, x);
  }
  // Bytes without a sign.
  [[gnu::always_inline]] static Words bytes(const std::byte* from) {
    return __builtin_bit_cast(Words, Isa::widen_u8(from));
  }

  // x[at] and those behind it; zeros behind the last of `size`.
  [[gnu::always_inline]] static Floats read(const float* x, std::int64_t at, std::int64_t size) {
    Floats value{};
    if (at + count <= size) {
      __builtin_memcpy(&value, x + at, sizeof value);
    } else {
      __builtin_memcpy(&value, x + at, std::size_t(size - at) * sizeof(float));
    }
    return value;
  }
  [[gnu::always_inline]] static void write(float* x, std::int64_t at, std::int64_t size,
                                           Floats value) {
    if (at + count <= size) {
      __builtin_memcpy(x + at, &value, sizeof value);
    } else {
      __builtin_memcpy(x + at, &value, std::size_t(size - at) * sizeof(float));
    }
  }

  // In any order: the largest is what it is.
  [[gnu::always_inline]] static float largest(Floats value) {
    float each[count];
    __builtin_memcpy(each, &value, sizeof each);
#pragma GCC unroll 4
    for (std::int64_t half = count / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < half; ++i)
        each[i] = each[i + half] > each[i] ? each[i + half] : each[i];
    }
    return each[0];
  }
};

}  // namespace motley::kernels::cpu
