#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/attention_world.h"
#include "kernels/cuda/thresholds.h"

namespace motley::gpu_tests {
namespace {

using Pieces = std::vector<AttentionPiece>;

// Largest difference, with NaN as infinite.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = difference <= most ? most : std::isnan(difference) ? INFINITY : difference;
  }
  return most;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Queries, keys and values hold bf16's numbers, so only weights are rounded: each by 2^-9 of itself
// at most, and so is their mean of values within [-1, 1] (latents: [-2, 2]). An output in bf16 is
// rounded once more. The rest is float32's.
double tolerance(const AttentionCase& shape) {
  const double rounding = 1.0 / 512;
  const double largest = shape.values_in_keys ? 2 : 1;
  return (rounding + (shape.out_type == DType::bf16 ? rounding : 0) + 1e-5) * largest;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                  const AttentionCase& shape, double most) {
  EXPECT_LE(largest_difference(got, expected), most);
  EXPECT_LE(relative_error_of_heads(got, expected, shape.value_width), largest_relative_error);
}
void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                  const AttentionCase& shape) {
  expect_close(got, expected, shape, tolerance(shape));
}

std::vector<AttentionCase> tile_cases() {
  return {
      {.heads = 8, .kv_heads = 2, .lengths = {1, 70, 300, 64, 17}},
      {.heads = 6,
       .kv_heads = 2,
       .q_type = DType::bf16,
       .out_type = DType::bf16,
       .page_tokens = 64},
      {.heads = 3,
       .kv_heads = 3,
       .window = 100,
       .sinks = true,
       .page_tokens = 32,
       .lengths = {5, 700}},
      {.heads = 16,
       .kv_heads = 2,
       .key_width = 64,
       .value_width = 64,
       .window = 128,
       .sinks = true,
       .lengths = {400, 33, 129}},
      {.heads = 7, .kv_heads = 1, .key_width = 64, .value_width = 64, .out_type = DType::bf16},
      {.heads = 8, .kv_heads = 2, .gated = true, .lengths = {1, 70, 300, 17}},
      {.heads = 4, .kv_heads = 4, .key_width = 192, .value_width = 128, .lengths = {200, 65}},
      {.heads = 2,
       .kv_heads = 2,
       .key_width = 192,
       .value_width = 128,
       .page_tokens = 301,
       .lengths = {301, 77}},
      {.heads = 4,
       .kv_heads = 4,
       .key_width = 192,
       .value_width = 128,
       .out_type = DType::bf16,
       .shared_width = 64,
       .lengths = {200, 65, 3}},
      {.heads = 16, .kv_heads = 2, .key_width = 256, .value_width = 256, .lengths = {300, 70, 17}},
      {.heads = 16,
       .kv_heads = 8,
       .key_width = 256,
       .value_width = 256,
       .q_type = DType::bf16,
       .out_type = DType::bf16,
       .window = 100,
       .gated = true,
       .page_tokens = 32,
       .lengths = {5, 700, 64}},
      {.heads = 27,
       .kv_heads = 1,
       .key_width = 256,
       .value_width = 256,
       .sinks = true,
       .lengths = {150, 65}},
      {.heads = 16,
       .kv_heads = 2,
       .key_width = 512,
       .value_width = 512,
       .gated = true,
       .lengths = {300, 70, 17}},
      {.heads = 5,
       .kv_heads = 1,
       .key_width = 512,
       .value_width = 512,
       .q_type = DType::bf16,
       .out_type = DType::bf16,
       .window = 200,
       .sinks = true,
       .page_tokens = 64,
       .lengths = {350, 6}},
      {.heads = 40,
       .kv_heads = 1,
       .key_width = 512,
       .value_width = 512,
       .values_in_keys = true,
       .lengths = {90, 300}},
      {.heads = 16,
       .kv_heads = 1,
       .key_width = 576,
       .value_width = 512,
       .values_in_keys = true,
       .lengths = {90, 300, 3}},
      {.heads = 128,
       .kv_heads = 1,
       .key_width = 576,
       .value_width = 512,
       .out_type = DType::bf16,
       .values_in_keys = true,
       .lengths = {70, 9}},
  };
}

std::string name(const AttentionCase& shape) {
  return cat(shape.heads, "/", shape.kv_heads, " heads of ", shape.key_width, "/",
             shape.value_width, ", window ", shape.window, ", pages of ", shape.page_tokens);
}

TEST(GpuAttention, TilesAgreeWithTheCpu) {
  std::uint64_t seed = 1;
  for (const AttentionCase& shape : tile_cases()) {
    SCOPED_TRACE(name(shape));
    AttentionWorld world(shape, seed++);
    for (const Pieces& pieces : {world.last(), world.whole()}) {
      const std::vector<float> expected = world.expected(pieces);
      for (const bool batch_invariant : {false, true}) {
        for (const bool scratch : {false, true}) {
          SCOPED_TRACE(cat(pieces.back().end - pieces.back().begin, " rows, batch-invariant ",
                           batch_invariant, ", scratch ", scratch));
          expect_close(world.run(pieces, {.batch_invariant = batch_invariant, .scratch = scratch}),
                       expected, shape);
        }
      }
    }
  }
}

TEST(GpuAttention, PlainAgreesWithTheCpu) {
  std::uint64_t seed = 20;
  std::vector<AttentionCase> cases = tile_cases();
  cases.push_back({.heads = 4,
                   .kv_heads = 2,
                   .key_width = 24,
                   .value_width = 20,
                   .kv_type = DType::f32,
                   .window = 70,
                   .sinks = true,
                   .page_tokens = 5});
  cases.push_back(
      {.heads = 2, .kv_heads = 1, .key_width = 1024, .value_width = 1001, .kv_type = DType::f32});
  cases.push_back({.heads = 3, .kv_heads = 1, .key_width = 33, .value_width = 7, .page_tokens = 7});
  for (AttentionCase shape : cases) {
    shape.out_type = DType::f32;
    SCOPED_TRACE(name(shape));
    AttentionWorld world(shape, seed++);
    // Sums of up to 1024 products of numbers below 4, in two orders, and two exponentials.
    EXPECT_LE(largest_difference(world.run(world.whole(), {.plain = true}),
                                 world.expected(world.whole())),
              4e-6);
  }
}

// A part of a step: rows ahead of its sequences are another part's, at positions that these have no
// pages for.
TEST(GpuAttention, RowsAheadOfThePartAreLeftAlone) {
  AttentionWorld world({.lengths = {300, 9, 40}}, 30);
  const Pieces all = world.whole();
  const Pieces part(all.begin() + 1, all.end());
  for (const bool plain : {false, true}) {
    EXPECT_TRUE(same_bits(world.run(all, {.plain = plain, .skipped = 1}),
                          world.run(part, {.plain = plain})))
        << "plain " << plain;
  }
}

// Every row's bits, in whatever company, and cut as it comes, where it is asked for.
TEST(GpuAttention, OneOrderServesPromptsAndDecoding) {
  std::uint64_t seed = 40;
  for (AttentionCase shape : tile_cases()) {
    shape.lengths = {530, 70, 260};
    if (shape.page_tokens == 301) shape.page_tokens = 600;
    SCOPED_TRACE(name(shape));
    AttentionWorld world(shape, seed++);
    const std::vector<float> whole = world.run(world.whole(), {.batch_invariant = true});
    const std::int64_t width = shape.heads * shape.value_width;
    std::vector<std::int64_t> first(shape.lengths.size(), 0);
    for (std::size_t s = 1; s < first.size(); ++s) first[s] = first[s - 1] + shape.lengths[s - 1];
    const auto rows_of = [&](const Pieces& pieces) {
      std::vector<float> rows;
      for (const AttentionPiece& piece : pieces) {
        const auto at = whole.begin() + (first[piece.sequence] + piece.begin) * width;
        rows.insert(rows.end(), at, at + (piece.end - piece.begin) * width);
      }
      return rows;
    };
    const std::vector<Pieces> steps = {
        world.last(),
        {{0, 529, 530}},
        {{0, 511, 513}, {1, 5, 5}, {2, 100, 260}},
        {{2, 259, 260}, {0, 0, 0}, {1, 0, 70}, {0, 257, 258}},
        {{0, 300, 530}, {2, 3, 4}},
    };
    for (const Pieces& pieces : steps) {
      for (const bool scratch : {false, true}) {
        EXPECT_TRUE(same_bits(world.run(pieces, {.batch_invariant = true, .scratch = scratch}),
                              rows_of(pieces)))
            << pieces.size() << " sequences, scratch " << scratch;
      }
    }
  }
}

struct KernelCase {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t key_width;
  std::int64_t value_width;
  std::int64_t rows;  // of a sequence
};

class GpuAttentionKernels : public testing::TestWithParam<KernelCase> {};

INSTANTIATE_TEST_SUITE_P(
    Shapes, GpuAttentionKernels,
    testing::Values(KernelCase{8, 2, 128, 128, 1}, KernelCase{8, 2, 128, 128, 2},
                    KernelCase{7, 1, 64, 64, 1}, KernelCase{4, 4, 192, 128, 5},
                    KernelCase{16, 2, 128, 128, 2}, KernelCase{16, 1, 128, 128, 2},
                    KernelCase{16, 2, 256, 256, 1}, KernelCase{5, 1, 256, 256, 3},
                    KernelCase{16, 1, 256, 256, 2}, KernelCase{8, 1, 512, 512, 2},
                    KernelCase{16, 1, 576, 512, 1}, KernelCase{2, 1, 576, 512, 7}),
    [](const auto& of) {
      const KernelCase& each = of.param;
      return cat("heads_", each.heads, "_", each.kv_heads, "_widths_", each.key_width, "_",
                 each.value_width, "_rows_", each.rows);
    });

// All kernels of one arithmetic that take a problem, whose rows each has a tile for, give the same
// bits where nothing is cut by the load.
TEST_P(GpuAttentionKernels, OfOneArithmeticGiveTheSameBits) {
  const KernelCase& of = GetParam();
  const bool latent = of.key_width == 576;
  const bool wide = !kernels::cuda::tiles::keeps_units(of.value_width);
  AttentionWorld world({.heads = of.heads,
                        .kv_heads = of.kv_heads,
                        .key_width = of.key_width,
                        .value_width = of.value_width,
                        .values_in_keys = latent,
                        .lengths = {530, 70, 260}},
                       90);
  Pieces pieces = world.last();
  for (AttentionPiece& piece : pieces) piece.begin = piece.end - of.rows;
  const kernels::Arithmetic arithmetic =
      wide ? kernels::cuda::attention_of_wide_values : kernels::cuda::attention_in_units;
  std::vector<float> first;
  int ran = 0;
  for (const kernels::cuda::AttentionThreshold& row : kernels::cuda::attention_thresholds) {
    const kernels::cuda::AttentionKernel& kernel = *row.kernel;
    // Those of codes read other pages: kv_codes_test.cc.
    if (kernel.supports == kernels::cuda::supports_codes) continue;
    if (kernel.info.arithmetic != arithmetic || kernel.key_width != of.key_width ||
        of.rows * (of.heads / of.kv_heads) > row.max_packed)
      continue;
    SCOPED_TRACE(kernel.info.name);
    const std::vector<float> got = world.run(pieces, {.batch_invariant = true, .kernel = &kernel});
    if (ran++ == 0) first = got;
    EXPECT_TRUE(same_bits(got, first));
  }
  EXPECT_GE(ran, 2);
}

// A graph is told bounds only.
TEST(GpuAttention, FewRowsKeepTheirBitsInAnyCompany) {
  for (const std::int64_t width : {128, 256}) {
    SCOPED_TRACE(width);
    AttentionWorld world({.heads = 32,
                          .kv_heads = 4,
                          .key_width = width,
                          .value_width = width,
                          .gated = width == 256,
                          .lengths = {1500, 40, 513, 256, 257}},
                         60);
    const Pieces together = world.last();
    const std::vector<float> all = world.run(together, {});
    EXPECT_TRUE(same_bits(all, world.run(together, {.scratch = false})));
    EXPECT_TRUE(same_bits(all, world.run(together, {.more_rows = 200})));
    EXPECT_TRUE(same_bits(all, world.run(together, {.max_rows = 500})));
    std::vector<float> alone;
    for (const AttentionPiece& piece : together) {
      const std::vector<float> row = world.run({piece}, {});
      alone.insert(alone.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(same_bits(all, alone));
  }
}

// Units grow with the position; their cuts at 8192 and 65536 are passed here.
TEST(GpuAttention, LongSequencesAreCutWhereverItSuits) {
  for (const std::int64_t width : {64, 256}) {
    SCOPED_TRACE(width);
    const AttentionCase shape{.heads = 4,
                              .kv_heads = 1,
                              .key_width = width,
                              .value_width = width,
                              .lengths = {70'000, 9000}};
    AttentionWorld world(shape, 70);
    const Pieces last = {{0, 69'999, 70'000}, {1, 8999, 9000}};
    const std::vector<float> cut = world.run(last, {});
    EXPECT_TRUE(same_bits(cut, world.run(last, {.scratch = false})));
    expect_close(cut, world.expected(last), shape, 1.0 / 512);
  }
}

// More items than blocks, of which a tile's last joins all; then fewer, that wait for each other.
TEST(GpuAttention, FewRowsOfWideValuesAreCutWhereverItSuits) {
  for (const bool latent : {false, true}) {
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>(100, 300), std::vector<std::int64_t>{12'000, 65, 700}}) {
      SCOPED_TRACE(cat(latent ? "latents, " : "", lengths.size(), " sequences"));
      const AttentionCase shape{.heads = 2,
                                .kv_heads = 1,
                                .key_width = latent ? 576 : 512,
                                .value_width = 512,
                                .values_in_keys = latent,
                                .lengths = lengths};
      AttentionWorld world(shape, 72);
      const std::vector<float> expected = world.expected(world.last());
      const std::vector<float> cut = world.run(world.last(), {});
      expect_close(cut, expected, shape);
      EXPECT_TRUE(same_bits(cut, world.run(world.last(), {})));
      expect_close(world.run(world.last(), {.scratch = false}), expected, shape);
    }
  }
}

// A window begins anywhere in a unit: what lies before it in the unit is in no chunk.
TEST(GpuAttention, WindowsFarFromTheBeginningAreSplitAnywhere) {
  struct Far {
    std::int64_t heads, width, length;
  };
  for (const auto& [heads, width, length] :
       {Far{16, 64, 9000}, Far{8, 64, 66'100}, Far{8, 256, 9000}, Far{8, 512, 9000}}) {
    const AttentionCase shape{.heads = heads,
                              .kv_heads = heads / 8,
                              .key_width = width,
                              .value_width = width,
                              .window = 128,
                              .sinks = true,
                              .lengths = {length}};
    AttentionWorld world(shape, 75);
    for (const std::int64_t rows : {1, 8, 20, 64, 128}) {
      const Pieces last = {{0, length - rows, length}};
      const std::vector<float> expected = world.expected(last);
      for (const bool batch_invariant : {false, true}) {
        SCOPED_TRACE(cat(rows, " rows of ", length, ", width ", width, ", batch-invariant ",
                         batch_invariant));
        expect_close(world.run(last, {.batch_invariant = batch_invariant}), expected, shape);
      }
    }
  }
}

TEST(GpuAttention, ManySequencesAreSharedOutOverLaunches) {
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 1500; ++i) lengths.push_back(1 + i % 37);
  const AttentionCase shape{
      .heads = 4, .kv_heads = 2, .key_width = 64, .value_width = 64, .lengths = lengths};
  AttentionWorld world(shape, 80);
  expect_close(world.run(world.last(), {}), world.expected(world.last()), shape, 1.0 / 512);
}

}  // namespace
}  // namespace motley::gpu_tests
