#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/exact_runner.h"

// The float32 kernels against float64. A product of n terms in float32 is off by about
// sqrt(n) / 2^25 of its magnitude; the longest here has 2880.
namespace motley::gpu_tests {
namespace {

using kernels::WeightKind;
using kernels::cuda::ExpertActivation;

constexpr double exact_tolerance = 2e-6;

void expect_near_definition(const WorldLayer& layer, const WorldRows& rows,
                            const std::vector<WorldAdapter>& adapters = {},
                            const WorldMixes& mixes = {}, DType x_type = DType::f32,
                            DType factor_type = DType::f32) {
  const auto got = run_exact(layer, rows, adapters, mixes, x_type, factor_type);
  const auto want = define_layer(layer, rows, adapters, mixes, false);
  const RelativeError error = relative_error(got, want, layer.shape.hidden);
  EXPECT_LT(error.all, exact_tolerance);
  EXPECT_LT(error.worst_row, 4 * exact_tolerance);
}

TEST(ExactExperts, EveryFormatActivationAndRouting) {
  unsigned seed = 1;
  for (const WeightKind kind : {WeightKind::f32, WeightKind::bf16, WeightKind::int4}) {
    for (const auto activation : {ExpertActivation::silu_mul, ExpertActivation::clamped_swiglu}) {
      for (const WorldRoutes routes :
           {WorldRoutes::spread, WorldRoutes::strange, WorldRoutes::hot, WorldRoutes::few}) {
        const WorldShape shape{.kind = kind, .activation = activation, .biases = seed % 2 == 0};
        const WorldLayer layer = make_layer(shape, ++seed);
        expect_near_definition(layer, make_rows(shape, 7, routes, 0, seed), {}, {},
                               seed % 3 == 0 ? DType::bf16 : DType::f32);
      }
    }
  }
}

TEST(ExactExperts, OddSizesAndBatches) {
  for (const std::int64_t tokens : {0, 1, 7, 1000}) {
    const WorldShape shape{.experts = 5, .experts_per_token = 3, .hidden = 136, .biases = true};
    expect_near_definition(make_layer(shape, 9),
                           make_rows(shape, tokens, WorldRoutes::strange, 0, 5));
  }
  const WorldShape wide{.experts = 3, .experts_per_token = 2, .hidden = 2880, .intermediate = 136};
  expect_near_definition(make_layer(wide, 4), make_rows(wide, 3, WorldRoutes::spread, 0, 6));
}

TEST(ExactExperts, AdaptersOfEveryRank) {
  const WorldShape shape{.biases = true};
  const WorldLayer layer = make_layer(shape, 3);
  std::vector<int> ranks(17);
  std::iota(ranks.begin(), ranks.end(), 1);
  ranks.insert(ranks.end(), {64, 255, 256});
  for (const int rank : ranks) {
    SCOPED_TRACE(cat("rank ", rank));
    const std::vector<WorldAdapter> adapters{
        make_adapter(shape, {.rank = rank, .holes = rank % 2 == 0}, unsigned(rank)),
        make_adapter(shape, {.rank = rank, .up_rank = 5, .no_gate = rank % 3 == 0}, 77)};
    const WorldMixes mixes{{{0, 1.0F}}, {{1, -0.75F}}};
    expect_near_definition(layer, make_rows(shape, 13, WorldRoutes::strange, 2, unsigned(rank)),
                           adapters, mixes, DType::f32, rank % 2 == 0 ? DType::bf16 : DType::f32);
  }
}

TEST(ExactExperts, PagesOfFp8) {
  const WorldShape shape;
  const WorldLayer layer = make_layer(shape, 3);
  for (const int rank : {1, 8, 17, 100}) {
    SCOPED_TRACE(cat("rank ", rank));
    const std::vector<WorldAdapter> adapters{
        make_adapter(shape, {.rank = rank, .up_rank = 5, .coarse = true}, unsigned(rank)),
        make_adapter(shape, {.rank = rank, .shared_outer = true, .coarse = true}, 77)};
    const WorldMixes mixes{{{0, 1.0F}}, {{1, -0.75F}, {0, 2.0F}}};
    expect_near_definition(layer, make_rows(shape, 13, WorldRoutes::strange, 2, unsigned(rank)),
                           adapters, mixes, DType::f32, DType::f8_e4m3);
  }
}

TEST(ExactExperts, MixesAndSharedOuterFactors) {
  const WorldShape shape;
  const WorldLayer layer = make_layer(shape, 5);
  const std::vector<WorldAdapter> adapters{
      make_adapter(shape, {.rank = 16, .shared_outer = true}, 1),
      make_adapter(shape, {.rank = 8, .fused_gate_up = true, .holes = true}, 2),
      make_adapter(shape, {.rank = 33, .no_down = true}, 3)};
  const WorldMixes mixes{{{0, 1.0F}}, {{1, 0.5F}, {2, 2.0F}}, {{2, 1.0F}, {1, 1.0F}, {0, -1.0F}}};
  expect_near_definition(layer, make_rows(shape, 100, WorldRoutes::spread, 3, 8), adapters, mixes);
}

TEST(ExactExperts, ZeroAdaptersAndNeighboursChangeNoBit) {
  const WorldShape shape{.biases = true};
  const WorldLayer layer = make_layer(shape, 6);
  const std::vector<WorldAdapter> adapters{make_adapter(shape, {.rank = 12, .zero = true}, 1),
                                           make_adapter(shape, {.rank = 24}, 2)};
  WorldRows rows = make_rows(shape, 40, WorldRoutes::strange, 1, 3);
  const auto zero = run_exact(layer, rows, adapters, {{{0, 1.0F}}});
  const auto mixed = run_exact(layer, rows, adapters, {{{1, 1.0F}}});
  const std::vector<std::int32_t> labels = rows.labels;
  rows.labels.clear();
  const auto base = run_exact(layer, rows, {}, {});
  EXPECT_EQ(zero, base);
  for (std::size_t i = 0; i < base.size(); ++i) {
    if (labels[i / std::size_t(shape.hidden)] >= 0) continue;
    ASSERT_EQ(mixed[i], base[i]) << "element " << i;
  }
}

}  // namespace
}  // namespace motley::gpu_tests
