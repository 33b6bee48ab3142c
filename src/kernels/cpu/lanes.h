#pragma once

#include <cstdint>

#include "base/dtype.h"

// Sixteen float32 numbers as one value, on any instruction set: the compiler splits what the
// machine's vectors can't hold. Templates over Isa, a type that each including file keeps to
// itself, so that no machine code is shared between files with different flags.
namespace motley::kernels::cpu {

template <class Isa>
struct Lanes {
  static constexpr std::int64_t count = 16;
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::int32_t Ints __attribute__((vector_size(64)));
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  typedef std::uint16_t Halves __attribute__((vector_size(32)));
  typedef float Floats8 __attribute__((vector_size(32)));
  typedef float Floats4 __attribute__((vector_size(16)));

  [[gnu::always_inline]] static Floats all(float value) { return Floats{} + value; }

  // bf16 stands as its bits. Reads through memcpy: any byte will do.
  [[gnu::always_inline]] static Floats widen(Halves halves) {
    return __builtin_bit_cast(Floats, __builtin_convertvector(halves, Words) << 16);
  }
  // Nearest, ties to even; a NaN stays one.
  [[gnu::always_inline]] static Halves narrow(Floats value) {
    const auto bits = __builtin_bit_cast(Words, value);
    const Words rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const Words quiet = (bits >> 16) | 0x0040U;
    return __builtin_convertvector((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded, Halves);
  }
  [[gnu::always_inline]] static Floats round_bf16(Floats value) { return widen(narrow(value)); }

  // Numbers [at, at + 16) of a row of `size`; zeros behind its end.
  template <class T>
  [[gnu::always_inline]] static Floats read(const T* row, std::int64_t at, std::int64_t size) {
    if constexpr (sizeof(T) == 4) {
      Floats value{};
      if (at + count <= size) {
        __builtin_memcpy(&value, row + at, sizeof value);
      } else {
        __builtin_memcpy(&value, row + at, std::size_t(size - at) * sizeof(T));
      }
      return value;
    } else {
      Halves value{};
      if (at + count <= size) {
        __builtin_memcpy(&value, row + at, sizeof value);
      } else {
        __builtin_memcpy(&value, row + at, std::size_t(size - at) * sizeof(T));
      }
      return widen(value);
    }
  }
  template <class T>
  [[gnu::always_inline]] static void write(T* row, std::int64_t at, std::int64_t size,
                                           Floats value) {
    const std::int64_t left = size - at < count ? size - at : count;
    if constexpr (sizeof(T) == 4) {
      if (left == count) {
        __builtin_memcpy(row + at, &value, sizeof value);
      } else {
        __builtin_memcpy(row + at, &value, std::size_t(left) * sizeof(T));
      }
    } else {
      const Halves narrowed = narrow(value);
      if (left == count) {
        __builtin_memcpy(row + at, &narrowed, sizeof narrowed);
      } else {
        __builtin_memcpy(row + at, &narrowed, std::size_t(left) * sizeof(T));
      }
    }
  }

  [[gnu::always_inline]] static float sum(Floats value) {
    Floats8 eight[2];
    __builtin_memcpy(eight, &value, sizeof eight);
    const Floats8 folded = eight[0] + eight[1];
    Floats4 four[2];
    __builtin_memcpy(four, &folded, sizeof four);
    const Floats4 quad = four[0] + four[1];
    return (quad[0] + quad[2]) + (quad[1] + quad[3]);
  }
  [[gnu::always_inline]] static float largest(Floats value) {
    float most = value[0];
    for (int i = 1; i < count; ++i) most = value[i] > most ? value[i] : most;
    return most;
  }
  [[gnu::always_inline]] static Floats max(Floats a, Floats b) { return a > b ? a : b; }

  // e^x within 2 units of the last place; 0 below the smallest normal number, held at e^88.37
  // above. x = n ln 2 + r with |r| <= ln 2 / 2, so seven terms of e^r's series are exact enough.
  [[gnu::always_inline]] static Floats exp(Floats x) {
    const Floats held = x > 88.37F ? all(88.37F) : x;
    const Floats bounded = held < -87.3F ? all(-87.3F) : held;
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    const Floats shifted = bounded * 1.44269504F + 12582912.0F;
    const Floats n = shifted - 12582912.0F;
    // ln 2 in two parts: products with the first are exact.
    const Floats r = (bounded - n * 0.693359375F) - n * -2.12194440e-4F;
    Floats series = all(1.0F / 5040);
    series = series * r + 1.0F / 720;
    series = series * r + 1.0F / 120;
    series = series * r + 1.0F / 24;
    series = series * r + 1.0F / 6;
    series = series * r + 0.5F;
    series = series * r + 1.0F;
    series = series * r + 1.0F;
    const auto power =
        __builtin_bit_cast(Floats, (__builtin_bit_cast(Words, shifted) + 127U) << 23);
    const Floats value = series * power;
    return held < -87.3F ? Floats{} : value;
  }
  [[gnu::always_inline]] static Floats sigmoid(Floats x) { return 1.0F / (1.0F + exp(-x)); }
};

}  // namespace motley::kernels::cpu
