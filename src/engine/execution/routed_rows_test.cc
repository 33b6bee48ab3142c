#include "engine/execution/routed_rows.h"

#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"

namespace motley::engine {
namespace {

std::vector<std::uint8_t> experts_of(const RoutedRows& rows, std::int64_t first,
                                     std::int64_t last) {
  std::vector<std::uint8_t> all = {9};
  rows.append_to(all, first, last);
  return all;
}

TEST(RoutedRows, AreByTokenWithZerosForLayersWithoutExperts) {
  tensor::CpuDevice device({.threads = 1});
  const auto stream = device.create_stream().value();
  const RoutedExpertsSizes sizes{.layers = 3, .top_k = 2, .experts = 256};
  const auto reader = RoutedRowsReader::create(
                          device, {.sizes = sizes, .has_experts = {true, false, true}, .rows = 8})
                          .value();
  // [layers, 4 rows, top_k]
  const std::int64_t numbers = 24;
  const tensor::Buffer memory = device.allocate(numbers * sizeof(std::int32_t)).value();
  const tensor::Tensor choices = memory.view(DType::i32, {3, 4, 2});
  for (std::int32_t i = 0; i < numbers; ++i) choices.data<std::int32_t>()[i] = 200 + i;
  reader->queue(choices, *stream).value();
  stream->synchronize().value();
  EXPECT_EQ(experts_of(reader->from(0), 0, 1),
            (std::vector<std::uint8_t>{9, 200, 201, 0, 0, 216, 217}));
  // The last two rows of a chunk that begins at row 1.
  EXPECT_EQ(experts_of(reader->from(1), 1, 3),
            (std::vector<std::uint8_t>{9, 204, 205, 0, 0, 220, 221, 206, 207, 0, 0, 222, 223}));
  EXPECT_EQ(experts_of(reader->from(1), 2, 2), std::vector<std::uint8_t>{9});
}

TEST(RoutedRows, OfManyExpertsHaveTwoBytesEach) {
  const std::vector<std::int32_t> ids = {256, 511, 3, 1023};
  const RoutedExpertsSizes sizes{.layers = 2, .top_k = 2, .experts = 1024};
  EXPECT_EQ(sizes.bytes_of_token(), 8U);
  EXPECT_EQ(experts_of({.ids = ids.data(), .layer_stride = 2, .sizes = sizes}, 0, 1),
            (std::vector<std::uint8_t>{9, 0, 1, 255, 1, 3, 0, 255, 3}));
}

}  // namespace
}  // namespace motley::engine
