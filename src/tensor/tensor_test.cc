#include "tensor/tensor.h"

#include <array>
#include <cstddef>
#include <numeric>

#include <gtest/gtest.h>

namespace motley::tensor {
namespace {

// [2, 3, 4] float32, each element its own index.
struct Counted {
  Counted() { std::iota(numbers.begin(), numbers.end(), 0.0F); }
  Tensor view() { return {reinterpret_cast<std::byte*>(numbers.data()), DType::f32, {2, 3, 4}}; }
  std::array<float, 24> numbers{};
};

TEST(Tensor, IsContiguousWhenMade) {
  Counted counted;
  const Tensor tensor = counted.view();
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(tensor.stride(0), 12);
  EXPECT_EQ(tensor.stride(2), 1);
  EXPECT_EQ(tensor.byte_count(), 96);
}

TEST(Tensor, SelectDropsTheOutermostDimension) {
  Counted counted;
  const Tensor row = counted.view().select(1).select(2);
  EXPECT_EQ(row.shape(), (Shape{4}));
  EXPECT_EQ(row.data<float>()[3], 23.0F);
}

TEST(Tensor, SliceOfAnInnerDimensionIsNotContiguous) {
  Counted counted;
  const Tensor columns = counted.view().slice(2, 1, 3);
  EXPECT_EQ(columns.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(columns.data<float>()[0], 1.0F);
  EXPECT_EQ(columns.stride(1), 4);
  EXPECT_FALSE(columns.is_contiguous());
}

TEST(Tensor, SliceOfTheOutermostDimensionIsContiguous) {
  Counted counted;
  const Tensor half = counted.view().slice(0, 1, 2);
  EXPECT_TRUE(half.is_contiguous());
  EXPECT_EQ(half.reshape({12}).data<float>()[0], 12.0F);
}

TEST(Tensor, WritableViewReadsAsReadOnly) {
  Counted counted;
  const ConstTensor tensor = counted.view();
  const float* const data = tensor.data<float>();
  EXPECT_EQ(data[5], 5.0F);
}

TEST(Tensor, PackedF4SelectsWholeBytes) {
  std::array<std::byte, 6> bytes{};
  const Tensor packed(bytes.data(), DType::f4, {3, 4});
  EXPECT_EQ(packed.byte_count(), 6);
  EXPECT_EQ(packed.select(2).bytes(), bytes.data() + 4);
}

TEST(TensorDeathTest, RefusesAnotherType) {
  Counted counted;
  EXPECT_DEATH(static_cast<void>(counted.view().data<bf16>()), "the tensor's own dtype");
}

TEST(TensorDeathTest, RefusesAMisalignedAddress) {
  alignas(8) std::array<std::byte, 16> bytes{};
  const Tensor tensor(bytes.data() + 1, DType::f32, {2});
  EXPECT_FALSE(tensor.is_aligned(4));
  EXPECT_DEATH(static_cast<void>(tensor.data<float>()), "may stand at");
}

TEST(TensorDeathTest, RefusesAPartThatBeginsInsideAByte) {
  std::array<std::byte, 6> bytes{};
  const Tensor packed(bytes.data(), DType::f4, {4, 3});
  EXPECT_DEATH(static_cast<void>(packed.select(1)), "whole byte");
}

}  // namespace
}  // namespace motley::tensor
