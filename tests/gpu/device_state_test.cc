#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/number_types.h"
#include "gpu/device_memory.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/thresholds.h"
#include "kernels/cuda/tuned_thresholds.h"
#include "kernels/elementary.h"
#include "kernels/tuning/tuning.h"

// What kernels keep belongs to a device's table: two tables on one GPU behave as two GPUs would.
namespace motley::gpu_tests {
namespace {

using kernels::ElementaryTable;

// Integers, whose products and sums are exact in any order.
std::vector<bf16> integers(std::int64_t count, std::int64_t period) {
  std::vector<bf16> numbers;
  const std::int64_t middle = period / 2;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(bf16::from(static_cast<float>(i % period - middle)));
  return numbers;
}

// Whether a product of so many rows is right. Of few rows it wants more shared memory than kernels
// have unasked, of many it is cuBLASLt's.
bool multiplies(const ElementaryTable& table, std::int64_t rows) {
  constexpr std::int64_t in = 2048;
  constexpr std::int64_t out = 4096;
  const std::vector<bf16> x = integers(rows * in, 7);
  const std::vector<bf16> w = integers(out * in, 5);
  const DeviceArray<bf16> device_x(x);
  const DeviceArray<bf16> device_w(w);
  const DeviceArray<float> y(static_cast<std::size_t>(rows * out));
  table.linear(
      {.rows = rows,
       .x = device_x.data(),
       .x_type = DType::bf16,
       .x_stride = in,
       .w = {.kind = kernels::WeightKind::bf16, .data = device_w.data(), .out = out, .in = in},
       .w_rows_per_head = out,
       .out = out,
       .y = y.data(),
       .y_stride = out,
       .exact = false},
      table.on({}));
  if (cudaDeviceSynchronize() != cudaSuccess || !kernels::cuda_launches(table).ok()) return false;
  const std::vector<float> results = y.read();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const std::int64_t output : {std::int64_t{0}, std::int64_t{1001}, out - 1}) {
      float expected = 0;
      for (std::int64_t k = 0; k < in; ++k)
        expected += x[static_cast<std::size_t>(row * in + k)].to_float() *
                    w[static_cast<std::size_t>(output * in + k)].to_float();
      if (results[static_cast<std::size_t>(row * out + output)] != expected) return false;
    }
  }
  return true;
}

// More rows than a grid has blocks for.
void fail_to_launch(const ElementaryTable& table) {
  table.linear({.rows = std::int64_t{1} << 23,
                .w = {.kind = kernels::WeightKind::f32, .out = 8, .in = 8},
                .w_rows_per_head = 8,
                .out = 8},
               table.on({}));
  cudaGetLastError();  // or the runtime would report it to the next caller
}

TEST(DeviceState, AnErrorIsKeptWhereItWasMade) {
  const auto first = kernels::cuda_table(0).value();
  const auto second = kernels::cuda_table(0).value();
  fail_to_launch(*first);
  for (int asked = 0; asked < 2; ++asked) {
    const auto launches = kernels::cuda_launches(*first);
    ASSERT_FALSE(launches.ok());
    EXPECT_NE(launches.error().message().find("linear"), std::string::npos)
        << launches.error().message();
  }
  EXPECT_TRUE(kernels::cuda_launches(*second).ok());
  EXPECT_TRUE(multiplies(*second, 1));
  EXPECT_TRUE(kernels::cuda_launches(*second).ok());
}

TEST(DeviceState, TwoWorkSideBySideAndOneOutlivesTheOther) {
  auto first = kernels::cuda_table(0).value();
  const auto second = kernels::cuda_table(0).value();
  EXPECT_NE(first->device, second->device);
  for (const std::int64_t rows : {1, 12, 200}) {
    EXPECT_TRUE(multiplies(*first, rows)) << rows << " rows";
    EXPECT_TRUE(multiplies(*second, rows)) << rows << " rows";
  }
  first.reset();
  for (const std::int64_t rows : {1, 12, 200})
    EXPECT_TRUE(multiplies(*second, rows)) << rows << " rows, behind the other's end";
}

// A table on a device whose tuning names this kernel for the product of multiplies().
std::shared_ptr<const ElementaryTable> tuned_table(std::string kernel) {
  const kernels::Tuning tuning{.file = "test",
                               .dense = {{.shape = {.inputs = 2048, .outputs = {4096}},
                                          .rows = {{.kernel = std::move(kernel)}}}}};
  return kernels::cuda_table(0, &tuning).value();
}

TEST(DeviceState, EachHasThresholdsOfItsOwn) {
  const auto first_of = [](const ElementaryTable& table) {
    EXPECT_TRUE(multiplies(table, 8));
    return static_cast<const kernels::cuda::Device*>(table.device)
        ->thresholds()
        .dense()
        .front()
        .kernel->info.name;
  };
  const auto bulk = tuned_table("gemv_bulk");
  const auto streamed = tuned_table("gemv_streamed");
  EXPECT_EQ(first_of(*bulk), "gemv_bulk");
  EXPECT_EQ(first_of(*streamed), "gemv_streamed");
  EXPECT_EQ(first_of(*kernels::cuda_table(0).value()),
            kernels::cuda::dense_thresholds[0].kernel->info.name);
}

}  // namespace
}  // namespace motley::gpu_tests
