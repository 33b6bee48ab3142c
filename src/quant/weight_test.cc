#include "quant/weight.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"

namespace motley::quant {
namespace {

TEST(Weight, NamesItsFormat) {
  EXPECT_EQ(to_string(Format{}), "f32");
  EXPECT_EQ(to_string(Format{.element = DType::bf16, .bits = 16}), "bf16");
  EXPECT_EQ(
      to_string(Format{
          .element = DType::i8, .bits = 4, .scales = Format::Scales::group, .block_columns = 128}),
      "int4 group 128");
  EXPECT_EQ(to_string(Format{.element = DType::f8_e4m3,
                             .bits = 8,
                             .scales = Format::Scales::block,
                             .block_rows = 128,
                             .block_columns = 64}),
            "fp8 block 128x64");
}

TEST(Weight, OwnsWhatWasMadeAndMovesWhole) {
  tensor::CpuDevice device({.threads = 1});
  tensor::Buffer data = device.allocate(8).value();
  tensor::Buffer scales = device.allocate(2 * sizeof(float)).value();
  const std::vector<unsigned char> bytes = {0x98, 0xF0, 0x12, 0x34, 0, 0, 0, 0};
  std::memcpy(data.data(), bytes.data(), 8);
  const std::vector<float> factors = {2, 10};
  std::memcpy(scales.data(), factors.data(), 8);
  const Format format{
      .element = DType::i8, .bits = 4, .scales = Format::Scales::group, .block_columns = 32};
  Weight made = Weight::own(format, {2, 4}, std::move(data), std::move(scales));
  const Weight weight = std::move(made);
  EXPECT_EQ(weight.format(), format);
  std::vector<float> numbers(8);
  weight.decode(0, 2, numbers.data());
  EXPECT_EQ(numbers, (std::vector<float>{0, 2, -16, 14, -60, -70, -40, -50}));
}

TEST(Weight, BorrowsAMatrixAtAnyByte) {
  std::vector<std::byte> bytes(1 + 6 * sizeof(float));
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::memcpy(bytes.data() + 1, values.data(), 6 * sizeof(float));
  const Weight weight = Weight::borrow(tensor::ConstTensor(bytes.data() + 1, DType::f32, {3, 2}));
  std::vector<float> numbers(4);
  weight.decode(1, 3, numbers.data());
  EXPECT_EQ(numbers, (std::vector<float>{3, 4, 5, 6}));
}

}  // namespace
}  // namespace motley::quant
