#include "quant/upload.h"

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/convert.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

// Uploads to a device that copies late and in pieces.
namespace motley::quant {
namespace {

struct Case {
  Format format;
  TrueSize size;
};

constexpr Case cases[] = {
    {{.element = DType::f32, .bits = 32}, {5, 7}},
    {{.element = DType::bf16, .bits = 16}, {300, 129}},
    {{.element = DType::i8, .bits = 4, .scales = Format::Scales::group, .block_columns = 32},
     {6, 71}},
    {{.element = DType::f8_e4m3,
      .bits = 8,
      .scales = Format::Scales::block,
      .block_rows = 4,
      .block_columns = 16},
     {9, 35}},
};

Weight make(const Case& wanted, tensor::Allocator& memory) {
  std::mt19937 random(1);
  const auto bytes =
      static_cast<std::size_t>(wanted.size.out * ((wanted.size.in * wanted.format.bits + 7) / 8));
  tensor::Buffer data = memory.allocate(bytes).value();
  // A byte of 0x30 to 0x3F makes a number of common size in every format.
  for (std::size_t i = 0; i < bytes; ++i) data.data()[i] = std::byte(0x30 + random() % 16);
  std::vector<float> factors(std::size_t{3} * 3 * 9);
  for (float& factor : factors) factor = 0.5F + static_cast<float>(random() % 100) / 64;
  tensor::Buffer scales = memory.allocate(factors.size() * sizeof(float)).value();
  std::memcpy(scales.data(), factors.data(), factors.size() * sizeof(float));
  return Weight::own(wanted.format, wanted.size, std::move(data), std::move(scales));
}

std::vector<float> numbers(const Weight& weight) {
  std::vector<float> all(static_cast<std::size_t>(weight.out() * weight.in()));
  weight.decode(0, weight.out(), all.data());
  return all;
}

TEST(Upload, KeepsFormatAndNumbers) {
  tensor::CpuDevice host({.threads = 1});
  tensor::test::ScriptedDevice device(3);
  const auto to = Uploader::create(device, {.piece_bytes = 256, .pieces = 2}).value();
  for (const Case& wanted : cases) {
    const Weight weight = make(wanted, host);
    const Weight moved = upload(weight, *to).value();
    ASSERT_TRUE(to->finish().ok());
    EXPECT_EQ(moved.format(), wanted.format);
    EXPECT_EQ(numbers(moved), numbers(weight)) << to_string(wanted.format);
  }
}

TEST(Upload, DecodesToAPlainMatrixRoundedOnce) {
  tensor::CpuDevice host({.threads = 1});
  tensor::test::ScriptedDevice device(4);
  const auto to = Uploader::create(device, {.piece_bytes = 256, .pieces = 2}).value();
  for (const Case& wanted : cases) {
    const Weight weight = make(wanted, host);
    const std::vector<float> exact = numbers(weight);
    std::vector<float> rounded;
    for (const float number : exact) rounded.push_back(bf16::from(number).to_float());
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Weight moved = upload_decoded(weight, dtype, *to).value();
      ASSERT_TRUE(to->finish().ok());
      EXPECT_EQ(moved.format(), (Format{.element = dtype, .bits = bits(dtype)}));
      EXPECT_EQ(numbers(moved), dtype == DType::f32 ? exact : rounded) << to_string(wanted.format);
    }
  }
}

}  // namespace
}  // namespace motley::quant
