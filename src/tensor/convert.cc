#include "tensor/convert.h"

#include <cstring>

#include "base/check.h"
#include "base/number_types.h"

namespace motley::tensor {
namespace {

// Reads by memcpy, because tensors of a file have any alignment.
template <class Stored, class ToFloat>
void widen_each(const std::byte* from, std::int64_t first, std::span<float> out, ToFloat to_float) {
  const std::byte* next = from + first * static_cast<std::int64_t>(sizeof(Stored));
  for (float& value : out) {
    Stored stored{};
    std::memcpy(&stored, next, sizeof stored);
    value = to_float(stored);
    next += sizeof stored;
  }
}

template <class Small>
void widen_small(const std::byte* from, std::int64_t first, std::span<float> out) {
  widen_each<Small>(from, first, out, [](Small small) { return small.to_float(); });
}

template <class Integer>
void widen_integer(const std::byte* from, std::int64_t first, std::span<float> out) {
  widen_each<Integer>(from, first, out, [](Integer value) { return static_cast<float>(value); });
}

void widen_f4(const std::byte* from, std::int64_t first, std::span<float> out) {
  std::int64_t element = first;
  for (float& value : out) {
    const auto pair = std::to_integer<unsigned>(from[element / 2]);
    const unsigned code = element % 2 == 0 ? pair & 15U : pair >> 4;
    value = f4_e2m1{static_cast<std::uint8_t>(code)}.to_float();
    ++element;
  }
}

template <class Small>
void narrow_each(std::span<const float> from, std::byte* to) {
  for (const float value : from) {
    const Small small = Small::from(value);
    std::memcpy(to, &small, sizeof small);
    to += sizeof small;
  }
}

}  // namespace

bool can_widen(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
    case DType::u64:
    case DType::u32:
    case DType::u16:
      return false;
    default:
      return true;
  }
}

void widen(DType dtype, const std::byte* from, std::int64_t first, std::span<float> out) {
  switch (dtype) {
    case DType::f32:
      return widen_each<float>(from, first, out, [](float value) { return value; });
    case DType::f16:
      return widen_small<f16>(from, first, out);
    case DType::bf16:
      return widen_small<bf16>(from, first, out);
    case DType::f8_e4m3:
      return widen_small<f8_e4m3>(from, first, out);
    case DType::f8_e5m2:
      return widen_small<f8_e5m2>(from, first, out);
    case DType::f8_e8m0:
      return widen_small<f8_e8m0>(from, first, out);
    case DType::f4:
      return widen_f4(from, first, out);
    case DType::i32:
      return widen_integer<std::int32_t>(from, first, out);
    case DType::i16:
      return widen_integer<std::int16_t>(from, first, out);
    case DType::i8:
      return widen_integer<std::int8_t>(from, first, out);
    case DType::u8:
      return widen_integer<std::uint8_t>(from, first, out);
    case DType::boolean:
      return widen_each<std::uint8_t>(from, first, out,
                                      [](std::uint8_t value) { return value != 0 ? 1.0F : 0.0F; });
    case DType::f64:
    case DType::i64:
    case DType::u64:
    case DType::u32:
    case DType::u16:
      break;
  }
  MOTLEY_CHECK(false, "widen() of a type that can_widen()");
}

void narrow(DType dtype, std::span<const float> from, std::byte* to) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from.data(), from.size_bytes());
      return;
    case DType::f16:
      return narrow_each<f16>(from, to);
    case DType::bf16:
      return narrow_each<bf16>(from, to);
    case DType::f8_e4m3:
      return narrow_each<f8_e4m3>(from, to);
    case DType::f8_e5m2:
      return narrow_each<f8_e5m2>(from, to);
    default:
      MOTLEY_CHECK(false, "narrow() to a floating-point type of at least 8 bits");
  }
}

}  // namespace motley::tensor
