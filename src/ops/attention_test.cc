#include "ops/attention.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/elementary.h"

namespace motley::ops {
namespace {

template <class T>
tensor::Tensor view(std::vector<T>& values, const tensor::Shape& shape) {
  return tensor::Tensor(reinterpret_cast<std::byte*>(values.data()), tensor::dtype_of<T>, shape);
}

// Two sequences of one head in pages of two positions; MLA's latent is both key and value.
TEST(OpsAttention, StoresAndReadsPagesThroughTheirTable) {
  ThreadPool pool({.threads = 2});
  const Context context{.kernels = &kernels::cpu_table(), .stream = {&pool}};
  constexpr std::int64_t width = 3;
  std::vector<float> pages(24, NAN);
  const tensor::Tensor k = view(pages, {4, 2, 1, width});
  const tensor::Tensor v = k.slice(3, 0, 2);

  std::vector<std::int32_t> table = {3, 0, 1, -1};  // sequence 1 needs only one page
  const std::vector<std::int32_t> seq_begin = {0, 3, 5};
  const std::vector<std::int32_t> positions = {0, 1, 2, 0, 1};
  const PagedRows rows{.sequences = 2,
                       .seq_begin = seq_begin.data(),
                       .positions = positions.data(),
                       .block_table = view(table, {2, 2})};
  std::vector<float> x;
  for (int i = 0; i < 15; ++i) x.push_back(static_cast<float>(i % 7) * 0.3F - 0.8F);
  const kernels::Heads stored{
      .heads = 1,
      .width = width,
      .x = x.data(),
      .x_stride = width,
      .pages = {.data = pages.data(), .page_stride = 2 * width, .token_stride = width}};
  context.kernels->prepare_heads(
      {.rows = 5,
       .all = &stored,
       .count = 1,
       .sequences = {.count = 2, .seq_begin = seq_begin.data(), .positions = positions.data()},
       .table = {.pages = table.data(), .stride = 2, .page_tokens = 2}},
      context.stream);
  for (std::size_t i = 0; i < width; ++i) {
    EXPECT_EQ(pages[18 + i], x[i]) << "position 0 of sequence 0 is in page 3";
    EXPECT_EQ(pages[i], x[6 + i]) << "position 2 of sequence 0 is in page 0";
    EXPECT_EQ(pages[9 + i], x[12 + i]);
  }

  std::vector<float> q;
  for (int i = 0; i < 30; ++i) q.push_back(static_cast<float>(i % 5) * 0.4F - 0.7F);
  std::vector<float> out(20, NAN);
  attention(context, rows, view(q, {5, 2, width}), {k, v}, {.scale = 0.5F}, view(out, {5, 2, 2}));
  for (std::size_t row = 0; row < 5; ++row) {
    const std::size_t first = row < 3 ? 0 : 3;
    for (std::size_t head = 0; head < 2; ++head) {
      double total = 0;
      double sums[2] = {};
      for (std::size_t p = first; p <= row; ++p) {
        double dot = 0;
        for (std::size_t i = 0; i < width; ++i)
          dot += static_cast<double>(q[(row * 2 + head) * width + i]) * x[p * width + i];
        const double weight = std::exp(0.5 * dot);
        total += weight;
        for (std::size_t i = 0; i < 2; ++i) sums[i] += weight * x[p * width + i];
      }
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(out[(row * 2 + head) * 2 + i], sums[i] / total, 1e-6) << "row " << row;
    }
  }
}

// A latent as codes with its last columns in bf16: what is gathered is what attention reads.
TEST(OpsAttention, CodesHaveTheirExponentsAndTailInTheSamePages) {
  const Context context{.kernels = &kernels::cpu_table()};
  // 2 pages of [2 codes of 3, 2 tails of 2, 2 exponents].
  std::vector<std::uint8_t> memory(2 * 16);
  const tensor::Tensor bytes = view(memory, {2, 16});
  const auto part = [&](DType type, std::int64_t begin, std::int64_t end) {
    const std::int64_t each = bits(type) / 8;
    return tensor::Tensor(bytes.bytes(), type, {2, 16 / each}).slice(1, begin / each, end / each);
  };
  KvPages keys = part(DType::f8_e4m3, 0, 6).split(1, 3).split(2, 3);
  keys.tail = part(DType::bf16, 6, 14).split(1, 2).split(2, 2);
  keys.exponents = part(DType::u8, 14, 16).split(1, 2);
  EXPECT_EQ(keys.width(), 5);

  std::vector<std::int32_t> table = {1, 0};
  const std::vector<std::int32_t> seq_begin = {0, 3};
  const std::vector<std::int32_t> positions = {0, 1, 2};
  const PagedRows rows{.sequences = 1,
                       .seq_begin = seq_begin.data(),
                       .positions = positions.data(),
                       .block_table = view(table, {1, 2})};
  std::vector<float> x = {1, -0.5F, 448, 3, 1, 0, 0.25F, -1000, 2, 2, 100, 50, 25, 7, -8};
  const PreparedHeads heads{.x = view(x, {3, 1, 5}), .pages = keys};
  prepare_heads(context, {context, rows, {}, std::span(&heads, 1)});
  std::vector<bf16> gathered(15);
  gather_kv(context, rows, keys, {.begin = seq_begin.data(), .out = view(gathered, {3, 5})});
  // -1000 needs a factor of 4, of which it is 250, between 240 and 256.
  const std::vector<float> wanted = {1, -0.5F, 448, 3,  1,  0, 0.25F, -1024,
                                     2, 2,     104, 48, 26, 7, -8};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    // The third row's factor is 1/4: 100 and 50 are 400 and 200, between codes 16 apart.
    if (i >= 10 && i < 13) {
      EXPECT_NEAR(gathered[i].to_float(), x[i], x[i] / 16);
    } else {
      EXPECT_EQ(gathered[i].to_float(), wanted[i]) << i;
    }
  }

  std::vector<float> q = {0, 0, 0, 0, 0, 0.01F, 0.02F, -0.01F, 0.3F, 0.1F, 1, 0, 0, 0, 0};
  std::vector<float> out(9, NAN);
  attention(context, rows, view(q, {3, 1, 5}), {keys, values_in_keys(keys, 3)}, {.scale = 0.5F},
            view(out, {3, 1, 3}));
  for (std::size_t row = 0; row < 3; ++row) {
    double total = 0;
    double sums[3] = {};
    for (std::size_t p = 0; p <= row; ++p) {
      double dot = 0;
      for (std::size_t i = 0; i < 5; ++i)
        dot += double{q[row * 5 + i]} * double{gathered[p * 5 + i].to_float()};
      const double weight = std::exp(0.5 * dot);
      total += weight;
      for (std::size_t i = 0; i < 3; ++i) sums[i] += weight * gathered[p * 5 + i].to_float();
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(out[row * 3 + i], sums[i] / total, 1e-3) << "row " << row;
  }
}

TEST(OpsAttentionDeathTest, RefusesShapesThatDoNotFit) {
  const Context context{.kernels = &kernels::cpu_table()};
  std::vector<float> numbers(256);
  std::vector<std::int32_t> table = {0};
  const std::vector<std::int32_t> seq_begin = {0, 1};
  const std::vector<std::int32_t> positions = {0};
  const PagedRows rows{.sequences = 1,
                       .seq_begin = seq_begin.data(),
                       .positions = positions.data(),
                       .block_table = view(table, {1, 1})};
  const tensor::Tensor k = view(numbers, {1, 4, 2, 8});
  EXPECT_DEATH(
      attention(context, rows, view(numbers, {1, 3, 8}), {k, k}, {}, view(numbers, {1, 3, 8})),
      "whole groups");
  EXPECT_DEATH(
      attention(context, rows, view(numbers, {2, 4, 8}), {k, k}, {}, view(numbers, {2, 4, 8})),
      "for every row");
  EXPECT_DEATH(
      attention(context, rows, view(numbers, {1, 4, 7}), {k, k}, {}, view(numbers, {1, 4, 8})),
      "widths");
}

}  // namespace
}  // namespace motley::ops
