#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/function_ref.h"
#include "gpu/grouped_expectations.h"

// Expert layers whose weights and inputs are codes of one type: the grouped kernels multiply code
// by code. Where h differs in its last bit, its code may be the next one.
namespace motley::gpu_tests {
namespace {

using kernels::InputRounding;
using kernels::WeightKind;
using kernels::cuda::ExpertActivation;
using kernels::cuda::GroupedTiles;
using Scales = InputRounding::Scales;

struct Case {
  std::string name;
  WeightKind kind;
  InputRounding inputs;
  // Of weights: what shares a scale.
  int rows = 1;
  int columns = 128;

  WorldShape shape() const {
    return {.kind = kind, .scale_rows = rows, .scale_columns = columns, .inputs = inputs};
  }
};

std::vector<Case> cases() {
  constexpr DType f8 = DType::f8_e4m3;
  return {
      {"fp8_block", WeightKind::f8_e4m3, {.scales = Scales::row_block, .type = f8, .columns = 128}},
      {"fp8_block_powers_of_two",
       WeightKind::f8_e4m3,
       {.scales = Scales::row_block, .type = f8, .power_of_two = true, .columns = 128}},
      {"fp8_squares",
       WeightKind::f8_e4m3,
       {.scales = Scales::row_block, .type = f8, .columns = 128},
       128},
      {"fp8_blocks_of_64_rows",
       WeightKind::f8_e4m3,
       {.scales = Scales::row_block, .type = f8, .columns = 128},
       64},
      {"fp8_channels_row", WeightKind::f8_e4m3, {.scales = Scales::row, .type = f8}, 1, 0},
      {"fp8_row", WeightKind::f8_e4m3, {.scales = Scales::row, .type = f8}},
      {"fp8_fixed", WeightKind::f8_e4m3, {.scales = Scales::fixed, .type = f8, .scale = 0.01F}},
      {"int8_row", WeightKind::i8, {.scales = Scales::row, .type = DType::i8}, 1, 0},
      {"int8_fixed",
       WeightKind::i8,
       {.scales = Scales::fixed, .type = DType::i8, .scale = 0.02F},
       1,
       0},
      {"int8_tensor_row", WeightKind::i8, {.scales = Scales::row, .type = DType::i8}, 100000, 0},
  };
}

class ExpertCodes : public testing::TestWithParam<Case> {};

bool takes_codes(const WorldShape& shape) {
  const WorldLayer layer = make_layer(shape, 1);
  const PackedLayer packed(layer);
  const GroupedBatch batch(layer, packed, make_rows(shape, 1, WorldRoutes::spread, 0, 1), nullptr);
  const GroupedTiles tiles = kernels::cuda::choose_grouped_tiles(batch.params);
  return kernels::cuda::grouped_kernel_of(tiles, batch.params).arithmetic ==
         kernels::cuda::coded_arithmetic;
}

TEST_P(ExpertCodes, AreMultipliedAsTheyAre) {
  WorldShape shape = GetParam().shape();
  EXPECT_TRUE(takes_codes(shape));
  shape.hidden = 104;  // rows of codes are not whole pieces of 16
  EXPECT_FALSE(takes_codes(shape));
}

TEST_P(ExpertCodes, ActivationsAndRoutings) {
  for (const auto activation : {ExpertActivation::silu_mul, ExpertActivation::clamped_swiglu}) {
    for (const WorldRoutes routes :
         {WorldRoutes::spread, WorldRoutes::strange, WorldRoutes::hot, WorldRoutes::few}) {
      SCOPED_TRACE(cat("activation ", int(activation), " routes ", int(routes)));
      WorldShape shape = GetParam().shape();
      shape.activation = activation;
      shape.biases = activation == ExpertActivation::clamped_swiglu;
      expect_all_alike(make_layer(shape, 2), make_rows(shape, 7, routes, 0, 3));
      if (HasFailure()) return;
    }
  }
}

TEST_P(ExpertCodes, OddSizesAndBatches) {
  for (const std::int64_t tokens : {0, 1, 7, 171, 1000}) {
    SCOPED_TRACE(cat(tokens, " tokens"));
    WorldShape shape = GetParam().shape();
    shape.experts_per_token = 3;
    shape.hidden = 144;
    shape.intermediate = 80;
    expect_all_alike(make_layer(shape, 9), make_rows(shape, tokens, WorldRoutes::strange, 0, 5));
    if (HasFailure()) return;
  }
  WorldShape wide = GetParam().shape();
  wide.experts = 3;
  wide.hidden = 2880;
  wide.intermediate = 272;
  expect_all_alike(make_layer(wide, 4), make_rows(wide, 33, WorldRoutes::hot, 0, 6));
  wide.hidden = 256;
  expect_all_alike(make_layer(wide, 4), make_rows(wide, 700, WorldRoutes::hot, 0, 6));
}

// Adapters take inputs as they are.
TEST_P(ExpertCodes, Adapters) {
  const WorldShape shape = GetParam().shape();
  const WorldLayer layer = make_layer(shape, 5);
  const std::vector<WorldAdapter> adapters{
      make_adapter(shape, {.rank = 16, .shared_outer = true, .coarse = true}, 1),
      make_adapter(shape, {.rank = 8, .fused_gate_up = true, .holes = true, .coarse = true}, 2),
      make_adapter(shape, {.rank = 33, .no_down = true, .coarse = true}, 3)};
  const WorldMixes mixes{
      {{0, 1.0F}}, {{1, 0.5F}, {2, 2.0F}}, {{2, 1.0F}, {1, 1.0F}, {0, -1.0F}}, {}};
  for (const std::int64_t tokens : {1, 40, 400}) {
    for (const lora::PageFormat& format : {packed_bf16, packed_f8}) {
      SCOPED_TRACE(cat(tokens, " tokens, pages of ", name(format.dtype)));
      expect_all_alike(layer, make_rows(shape, tokens, WorldRoutes::strange, 4, 8), adapters, mixes,
                       format);
      if (HasFailure()) return;
    }
  }
}

TEST_P(ExpertCodes, NeighboursZeroAdaptersAndBatchesChangeNoBit) {
  WorldShape shape = GetParam().shape();
  shape.hidden = 256;
  shape.intermediate = 128;
  const WorldLayer layer = make_layer(shape, 6);
  const PackedLayer packed(layer);
  const std::vector<WorldAdapter> adapters{make_adapter(shape, {.rank = 12, .zero = true}, 1),
                                           make_adapter(shape, {.rank = 24}, 2)};
  const AdapterPages zero(shape, adapters, {{{0, 1.0F}}, {{0, 2.0F}}}, packed_bf16);
  const AdapterPages other(shape, adapters, {{{1, 1.0F}}, {{1, 0.5F}}}, packed_bf16);
  const WorldRows rows = make_rows(shape, 900, WorldRoutes::strange, 2, 3);
  WorldRows unlabelled = rows;
  unlabelled.labels.clear();
  const auto width = std::size_t(shape.hidden);
  const auto base = GroupedBatch(layer, packed, unlabelled, nullptr).run();
  expect_bits(GroupedBatch(layer, packed, rows, &zero).run(), base);
  const auto mixed = GroupedBatch(layer, packed, rows, &other).run();
  for (std::size_t i = 0; i < base.size(); ++i) {
    if (rows.labels[i / width] >= 0) continue;
    ASSERT_EQ(mixed[i], base[i]) << "element " << i;
  }
  for (const std::size_t count : {1, 4, 30, 100, 400}) {
    std::vector<std::int64_t> which(count);
    std::iota(which.begin(), which.end(), 13);
    const auto alone = GroupedBatch(layer, packed, pick_rows(rows, shape, which), &other).run();
    expect_bits(alone, std::vector<float>(mixed.begin() + std::ptrdiff_t(13 * width),
                                          mixed.begin() + std::ptrdiff_t((13 + count) * width)));
  }
}

// A NaN stays in its row, in INT8 too, which has no code for it.
TEST_P(ExpertCodes, RowsWithNan) {
  const WorldShape shape = GetParam().shape();
  const WorldLayer layer = make_layer(shape, 6);
  const PackedLayer packed(layer);
  for (const std::int64_t tokens : {9, 2000}) {
    WorldRows rows = make_rows(shape, tokens, WorldRoutes::spread, 0, 3);
    const auto clean = GroupedBatch(layer, packed, rows, nullptr).run();
    const auto width = std::size_t(shape.hidden);
    rows.x[4 * width + 5] = std::numeric_limits<float>::quiet_NaN();
    GroupedBatch batch(layer, packed, rows, nullptr);
    for (const GroupedTiles& tiles : kernels::cuda::all_grouped_tiles) {
      if (!kernels::cuda::grouped_supports(tiles, batch.params)) continue;
      const auto got = batch.run(tiles);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (i / width == 4)
          ASSERT_TRUE(std::isnan(got[i])) << "element " << i;
        else
          ASSERT_EQ(got[i], clean[i]) << "element " << i;
      }
    }
  }
}

// Of rows of h that ranks cut. Maxima are found by pair, and read by place: with those of the own
// rows alone nothing changes, and larger ones change every row that has an expert.
TEST_P(ExpertCodes, RowsOfHThatRanksCutAreRoundedByTheirMaxima) {
  const InputRounding& inputs = GetParam().inputs;
  if (inputs.scales == Scales::fixed) return;
  for (const int hidden : {256, 104}) {  // codes, and numbers that mean codes
    for (const std::int64_t tokens : {1, 13, 600}) {
      SCOPED_TRACE(cat("hidden ", hidden, ", ", tokens, " tokens"));
      WorldShape shape = GetParam().shape();
      shape.hidden = hidden;
      shape.intermediate = 272;
      const WorldLayer layer = make_layer(shape, 6);
      const PackedLayer packed(layer);
      const WorldRows rows = make_rows(shape, tokens, WorldRoutes::strange, 0, 3);
      GroupedBatch batch(layer, packed, rows, nullptr);
      const std::vector<float> whole = batch.run();
      const std::int64_t scales =
          inputs.scales == Scales::row ? 1 : (shape.intermediate + 127) / 128;
      DeviceArray<float> maxima(
          static_cast<std::size_t>(tokens * shape.experts_per_token * scales));
      batch.params.cut = {.scales = scales, .maxima = maxima.data()};
      const auto nothing = [] {};
      const FunctionRef<void()> own_alone = nothing;
      batch.params.cut.over_ranks = &own_alone;
      expect_bits(batch.run(), whole);
      // Scales of powers of two round alike until numbers are too small for the type.
      const float larger_by = inputs.power_of_two ? 20000.0F : 5.0F;
      const auto enlarge = [&] {
        std::vector<float> larger = maxima.read();
        for (float& each : larger) {
          EXPECT_GE(each, 0);
          each *= larger_by;
        }
        maxima.write(larger);
      };
      const FunctionRef<void()> of_others = enlarge;
      batch.params.cut.over_ranks = &of_others;
      const std::vector<float> other = batch.run();
      const auto width = static_cast<std::size_t>(hidden);
      for (std::size_t row = 0; row < whole.size() / width; ++row) {
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(row * width);
        const bool has_expert = std::any_of(begin, begin + std::ptrdiff_t(width),
                                            [](float number) { return number != 0; });
        const bool equal = std::equal(begin, begin + std::ptrdiff_t(width),
                                      other.begin() + static_cast<std::ptrdiff_t>(row * width));
        EXPECT_EQ(equal, !has_expert) << "row " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, ExpertCodes, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace motley::gpu_tests
