#include "tensor/convert.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/number_types.h"

namespace motley::tensor {
namespace {

template <class Stored, std::size_t N>
std::vector<float> widened(DType dtype, const std::array<Stored, N>& stored) {
  // At an odd address, as in a file.
  std::vector<std::byte> bytes(1 + sizeof stored);
  std::memcpy(bytes.data() + 1, stored.data(), sizeof stored);
  std::vector<float> out(N, -1.0F);
  widen(dtype, bytes.data() + 1, 0, out);
  return out;
}

TEST(Widen, ReadsEveryTypeAtAnyByte) {
  using Floats = std::vector<float>;
  EXPECT_EQ(widened(DType::f32, std::array{1.5F, -2.0F}), (Floats{1.5F, -2.0F}));
  EXPECT_EQ(widened(DType::f16, std::array{f16{0x3C00}, f16{0xC000}}), (Floats{1.0F, -2.0F}));
  EXPECT_EQ(widened(DType::bf16, std::array{bf16{0x3F80}, bf16{0xC000}}), (Floats{1.0F, -2.0F}));
  EXPECT_EQ(widened(DType::f8_e4m3, std::array{f8_e4m3{0x7E}}), (Floats{448.0F}));
  EXPECT_EQ(widened(DType::f8_e5m2, std::array{f8_e5m2{0x7B}}), (Floats{57344.0F}));
  EXPECT_EQ(widened(DType::f8_e8m0, std::array{f8_e8m0{130}}), (Floats{8.0F}));
  EXPECT_EQ(widened(DType::i32, std::array{-70000}), (Floats{-70000.0F}));
  EXPECT_EQ(widened(DType::i16, std::array<std::int16_t, 1>{-300}), (Floats{-300.0F}));
  EXPECT_EQ(widened(DType::i8, std::array<std::int8_t, 1>{-128}), (Floats{-128.0F}));
  EXPECT_EQ(widened(DType::u8, std::array<std::uint8_t, 1>{255}), (Floats{255.0F}));
  EXPECT_EQ(widened(DType::boolean, std::array<std::uint8_t, 3>{0, 1, 7}),
            (Floats{0.0F, 1.0F, 1.0F}));
}

TEST(Widen, UnpacksF4LowHalfFirstFromAnyElement) {
  // Codes 1, 2, 3, 4, 13, 15: 0.5, 1, 1.5, 2, -3, -6.
  const std::array bytes = {std::byte{0x21}, std::byte{0x43}, std::byte{0xFD}};
  std::array<float, 4> out{};
  widen(DType::f4, bytes.data(), 1, out);
  EXPECT_EQ(out, (std::array{1.0F, 1.5F, 2.0F, -3.0F}));
}

TEST(Widen, KnowsWhatItCanRead) {
  EXPECT_TRUE(can_widen(DType::f4));
  EXPECT_TRUE(can_widen(DType::boolean));
  EXPECT_FALSE(can_widen(DType::f64));
  EXPECT_FALSE(can_widen(DType::i64));
}

TEST(Narrow, RoundsToNearestEven) {
  // 1 + 2^-8 lies half way between two bf16 neighbours; 1 + 2^-11 between two f16 neighbours.
  const std::array from = {1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F};
  std::array<bf16, 2> to{};
  narrow(DType::bf16, from, reinterpret_cast<std::byte*>(to.data()));
  EXPECT_EQ(to[0].bits, 0x3F80);
  EXPECT_EQ(to[1].bits, 0x3F82);
}

TEST(Narrow, SaturatesEightBitsAndOverflowsSixteen) {
  const std::array from = {1e9F, -1e9F};
  std::array<f8_e4m3, 2> eight{};
  narrow(DType::f8_e4m3, from, reinterpret_cast<std::byte*>(eight.data()));
  EXPECT_EQ(eight[0].to_float(), 448.0F);
  EXPECT_EQ(eight[1].to_float(), -448.0F);
  std::array<f16, 2> sixteen{};
  narrow(DType::f16, from, reinterpret_cast<std::byte*>(sixteen.data()));
  EXPECT_EQ(sixteen[0].to_float(), INFINITY);
  EXPECT_EQ(sixteen[1].to_float(), -INFINITY);
}

}  // namespace
}  // namespace motley::tensor
