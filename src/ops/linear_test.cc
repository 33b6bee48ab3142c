#include "ops/linear.h"

#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/number_types.h"
#include "base/system/thread_pool.h"
#include "kernels/elementary.h"
#include "tensor/device/cpu_device.h"

namespace motley::ops {
namespace {

float number(std::int64_t seed) {
  return static_cast<float>((seed * 2654435761 + 12345) % 2003) / 1001.5F - 1.0F;
}

template <class T>
tensor::Tensor view(std::vector<T>& values, const tensor::Shape& shape) {
  return tensor::Tensor(reinterpret_cast<std::byte*>(values.data()), tensor::dtype_of<T>, shape);
}

class LinearTest : public testing::Test {
 protected:
  Context context(bool exact = true) {
    return {.kernels = &kernels::cpu_table(), .stream = {&pool_}, .exact = exact};
  }
  ThreadPool pool_{{.threads = 3}};
  tensor::CpuDevice device_{{.threads = 1}};
};

quant::Weight int4_weight(tensor::Allocator& device, std::int64_t out, std::int64_t in) {
  const quant::Format format{
      .element = DType::i8, .bits = 4, .scales = quant::Format::Scales::group, .block_columns = 32};
  const std::int64_t groups = (in + 31) / 32;
  tensor::Buffer data = device.allocate(static_cast<std::size_t>(out * ((in + 1) / 2))).value();
  tensor::Buffer scales = device.allocate(static_cast<std::size_t>(out * groups) * 4).value();
  for (std::size_t i = 0; i < data.size(); ++i)
    data.data()[i] = static_cast<std::byte>(i * 37 + i / 5);
  for (std::int64_t i = 0; i < out * groups; ++i)
    reinterpret_cast<float*>(scales.data())[i] = 0.01F * static_cast<float>(i % 9 + 1);
  return quant::Weight::own(format, {out, in}, std::move(data), std::move(scales));
}

TEST_F(LinearTest, EqualsTheDecodedWeightAndTheBitsOfEachRowAlone) {
  constexpr std::int64_t out = 75;
  constexpr std::int64_t in = 140;
  constexpr std::int64_t rows = 17;
  const quant::Weight weight = int4_weight(device_, out, in);
  std::vector<float> decoded(out * in);
  weight.decode(0, out, decoded.data());
  std::vector<bf16> x;
  for (std::int64_t i = 0; i < rows * in; ++i) x.push_back(bf16::from(number(i)));
  for (const bool exact : {true, false}) {
    std::vector<float> y(rows * out, -1e30F);
    linear(context(exact), view(x, {rows, in}), weight, view(y, {rows, out}));
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t o = 0; o < out; ++o) {
        double expected = 0;
        for (std::int64_t k = 0; k < in; ++k) {
          expected += static_cast<double>(x[static_cast<std::size_t>(row * in + k)].to_float()) *
                      static_cast<double>(decoded[static_cast<std::size_t>(o * in + k)]);
        }
        ASSERT_NEAR(y[static_cast<std::size_t>(row * out + o)], expected, 1e-4);
      }
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<float> alone(out, -1e30F);
      const Context one_thread{.kernels = &kernels::cpu_table(), .exact = exact};
      linear(one_thread, tensor::ConstTensor(view(x, {rows, in})).slice(0, row, row + 1), weight,
             view(alone, {1, out}));
      for (std::size_t o = 0; o < out; ++o) {
        const float together = y[static_cast<std::size_t>(row * out) + o];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(alone[o]), std::bit_cast<std::uint32_t>(together));
      }
    }
  }
}

TEST_F(LinearTest, HeadsHaveRowsOfTheirOwn) {
  // Two heads of 3 + 2 rows: keys, then values.
  std::vector<float> numbers;
  for (int i = 0; i < 10 * 4; ++i) numbers.push_back(number(i));
  const quant::Weight weight = quant::Weight::borrow(view(numbers, {10, 4}));
  std::vector<float> latent;
  for (int i = 0; i < 2 * 4; ++i) latent.push_back(number(100 + i));
  std::vector<float> values(4, -1e30F);
  linear_per_head(context(), view(latent, {1, 2, 4}), weight, {.rows_per_head = 5, .first = 3},
                  view(values, {1, 2, 2}));
  std::vector<float> query;
  for (int i = 0; i < 2 * 3; ++i) query.push_back(number(200 + i));
  std::vector<float> into(8, -1e30F);
  linear_per_head_transposed(context(), view(query, {1, 2, 3}), weight, {.rows_per_head = 5},
                             view(into, {1, 2, 4}));
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t j = 0; j < 2; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 4; ++k)
        sum += static_cast<double>(latent[head * 4 + k]) * numbers[(head * 5 + 3 + j) * 4 + k];
      EXPECT_NEAR(values[head * 2 + j], sum, 1e-6);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      double sum = 0;
      for (std::size_t j = 0; j < 3; ++j)
        sum += static_cast<double>(query[head * 3 + j]) * numbers[(head * 5 + j) * 4 + k];
      EXPECT_NEAR(into[head * 4 + k], sum, 1e-6);
    }
  }
}

TEST_F(LinearTest, NoRowsAreNoWork) {
  std::vector<float> numbers(8);
  const quant::Weight weight = quant::Weight::borrow(view(numbers, {2, 4}));
  linear(context(), view(numbers, {0, 4}), weight, view(numbers, {0, 2}));
}

TEST(LinearDeathTest, RefusesOtherSizes) {
  const Context context{.kernels = &kernels::cpu_table()};
  std::vector<float> numbers(8);
  const quant::Weight weight = quant::Weight::borrow(view(numbers, {2, 4}));
  EXPECT_DEATH(linear(context, view(numbers, {1, 3}), weight, view(numbers, {1, 2})),
               "sizes of the weight");
  EXPECT_DEATH(linear_per_head(context, view(numbers, {1, 1, 4}), weight,
                               {.rows_per_head = 2, .first = 1}, view(numbers, {1, 1, 2})),
               "rows that the weight has");
}

}  // namespace
}  // namespace motley::ops
