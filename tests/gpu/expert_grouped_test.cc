#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/grouped_expectations.h"
#include "gpu/ranks_in_turn.h"
#include "gpu/twin.h"

namespace motley::gpu_tests {
namespace {

using kernels::WeightKind;
using kernels::cuda::ExpertActivation;
using kernels::cuda::GroupedTiles;

// Weights in the packed layouts of int4 and of 8 bits that scales and zero points decide; the
// others have tests of their own.
std::vector<WorldShape> all_weights() {
  using enum WeightKind;
  return {{.kind = bf16},
          {.kind = int4, .group = 128},
          {.kind = int4, .group = 64},
          {.kind = int4, .group = 32},
          {.kind = i8},
          {.kind = i8, .scale_columns = 32},
          {.kind = i8, .scale_columns = 64, .zero_points = true},
          {.kind = i8, .zero_points = true},
          {.kind = i8, .scale_columns = 0, .zero_points = true},
          {.kind = f8_e4m3},
          {.kind = f8_e4m3, .scale_columns = 64},
          {.kind = f8_e4m3, .scale_columns = 32, .e8m0_scales = true}};
}
// A few of them: operands from shared memory, in a unit of their own, and of 8 bits.
std::vector<WorldShape> some_weights() {
  return {{.kind = WeightKind::bf16},
          {.kind = WeightKind::int4},
          {.kind = WeightKind::i8, .scale_columns = 64, .zero_points = true},
          {.kind = WeightKind::f8_e4m3, .scale_columns = 32, .e8m0_scales = true}};
}

std::string weights_of(const WorldShape& shape) {
  std::string text(kernels::name(shape.kind));
  if (shape.kind == WeightKind::int4) return cat(text, " group ", shape.group);
  if (shape.kind == WeightKind::bf16) return text;
  return cat(text, " columns ", shape.scale_columns, shape.zero_points ? " zero points" : "",
             shape.e8m0_scales ? " e8m0" : "");
}

// What comes next in the launch that sums: the bits of one after the other. Slots beyond a round of
// loads, tokens that no expert takes, teams of a warp and of a block; no shared expert, one as it
// is, one behind a gate.
enum class SharedExpert { none, plain, gated };
struct SumCase {
  int hidden, top_k;
  SharedExpert shared;
};
class GroupedSum : public testing::TestWithParam<SumCase> {};

TEST_P(GroupedSum, HasTheBitsOfItsParts) {
  const auto& [hidden, top_k, shared] = GetParam();
  const WorldShape shape{
      .experts = 12, .experts_per_token = top_k, .hidden = hidden, .intermediate = 16};
  const WorldLayer layer = make_layer(shape, 31);
  const PackedLayer packed_layer(layer);
  const WorldRows rows = make_rows(shape, 70, WorldRoutes::strange, 0, 32);
  GroupedBatch batch(layer, packed_layer, rows, nullptr);
  kernels::cpu::Numbers numbers(33);
  const TwinRows a(numbers, DType::f32, rows.tokens, hidden, 4, {-4, 4});
  const TwinRows shared_rows(numbers, DType::f32, rows.tokens, hidden, 4, {-4, 4});
  const Twin<float> gates(numbers.floats(rows.tokens, -3, 3));
  const Twin<float> weight(numbers.floats(hidden, 0.5, 1.5));
  const GroupedTiles tiles{.width = 16, .gather = GroupedTiles::Gather::copies};
  std::vector<std::vector<std::byte>> read;
  for (const bool together : {false, true}) {
    const TwinRows sum(DType::f32, rows.tokens, hidden, 4);
    const TwinRows x(DType::bf16, rows.tokens, hidden, 8);
    kernels::AfterExperts next{.rows = {.add = {.rows = rows.tokens,
                                                .width = hidden,
                                                .a = a.device(),
                                                .a_stride = a.stride(),
                                                .b = batch.params.out,
                                                .b_stride = hidden,
                                                .out = sum.device(),
                                                .out_stride = sum.stride()},
                                        .norm = {.size = {rows.tokens, 1, hidden},
                                                 .x = sum.device(),
                                                 .x_stride = sum.stride(),
                                                 .weight = weight.device(),
                                                 .out = x.device(),
                                                 .out_type = DType::bf16,
                                                 .out_stride = x.stride()}}};
    if (shared != SharedExpert::none) {
      next.shared = {.rows = rows.tokens,
                     .width = hidden,
                     .x = shared_rows.device(),
                     .x_stride = shared_rows.stride(),
                     .y = static_cast<float*>(batch.params.out),
                     .y_stride = hidden};
    }
    if (shared == SharedExpert::gated) {
      next.shared.scale = gates.device();
      next.shared.sigmoid = true;
    }
    ASSERT_TRUE(kernels::cuda::grouped_sums_into(next, tiles));
    batch.params.next = together ? &next : nullptr;
    batch.run(tiles);
    if (!together) {
      if (shared != SharedExpert::none) device_table().add_scaled(next.shared, default_stream());
      device_table().add_and_norm(next.rows, default_stream());
    }
    finish();
    read.push_back(sum.read_device());
    read.push_back(x.read_device());
  }
  EXPECT_TRUE(read[0] == read[2]) << "sums";
  EXPECT_TRUE(read[1] == read[3]) << "norms";
}

std::vector<SumCase> sum_cases() {
  std::vector<SumCase> all;
  for (const auto& [hidden, top_k] : {std::pair(96, 2), std::pair(2056, 9)}) {
    for (const auto shared : {SharedExpert::none, SharedExpert::plain, SharedExpert::gated})
      all.push_back({hidden, top_k, shared});
  }
  return all;
}
std::string sum_case_name(const testing::TestParamInfo<SumCase>& one) {
  constexpr const char* names[] = {"none", "plain", "gated"};
  return cat("hidden", one.param.hidden, "_top", one.param.top_k, "_shared_",
             names[int(one.param.shared)]);
}
INSTANTIATE_TEST_SUITE_P(Shapes, GroupedSum, testing::ValuesIn(sum_cases()), sum_case_name);

TEST(GroupedExperts, EveryFormatActivationAndRouting) {
  unsigned seed = 1;
  for (WorldShape shape : all_weights()) {
    for (const auto activation : {ExpertActivation::silu_mul, ExpertActivation::clamped_swiglu}) {
      for (const WorldRoutes routes :
           {WorldRoutes::spread, WorldRoutes::strange, WorldRoutes::hot, WorldRoutes::few}) {
        SCOPED_TRACE(
            cat(weights_of(shape), " activation ", int(activation), " routes ", int(routes)));
        shape.activation = activation;
        shape.biases = seed % 2 == 0;
        const WorldLayer layer = make_layer(shape, ++seed);
        expect_all_alike(layer, make_rows(shape, 7, routes, 0, seed));
        if (HasFailure()) return;
      }
    }
  }
}

// Small enough for racecheck: every kernel, with and without adapters.
TEST(GroupedExperts, SmallBatchThroughEveryCut) {
  for (WorldShape shape : all_weights()) {
    SCOPED_TRACE(weights_of(shape));
    shape.experts = 3;
    shape.hidden = 264;
    const WorldLayer layer = make_layer(shape, 2);
    const std::vector<WorldAdapter> adapters{make_adapter(shape, {.rank = 20}, 1)};
    expect_all_alike(layer, make_rows(shape, 5, WorldRoutes::spread, 0, 4));
    expect_all_alike(layer, make_rows(shape, 5, WorldRoutes::spread, 1, 4), adapters,
                     {{{0, 1.0F}}});
  }
}

// Powers of two beyond what float16 holds, on up and on down, which the output is linear in.
TEST(GroupedExperts, Int4ScalesOfAnySize) {
  const WorldShape shape{.kind = WeightKind::int4, .group = 128};
  const WorldLayer layer = make_layer(shape, 8);
  const WorldRows rows = make_rows(shape, 9, WorldRoutes::spread, 0, 3);
  const GroupedTiles tall{
      .rows = GroupedTiles::Rows::r256, .width = 64, .gather = GroupedTiles::Gather::copies};
  const auto run = [&](const WorldLayer& of, bool tall_tiles) {
    const PackedLayer packed_layer(of);
    GroupedBatch batch(of, packed_layer, rows, nullptr);
    return tall_tiles ? batch.run(tall) : batch.run();
  };
  for (const bool tall_tiles : {false, true}) {
    const std::vector<float> plain = run(layer, tall_tiles);
    for (const auto& [up, down] : {std::pair(-26, 18), std::pair(18, -26)}) {
      WorldLayer scaled = layer;
      for (WorldMatrix& matrix : scaled.up)
        for (float& scale : matrix.scales) scale = std::ldexp(scale, up);
      for (WorldMatrix& matrix : scaled.down)
        for (float& scale : matrix.scales) scale = std::ldexp(scale, down);
      std::vector<float> want = plain;
      for (float& value : want) value = std::ldexp(value, up + down);
      expect_bits(run(scaled, tall_tiles), want);
    }
  }
}

TEST(GroupedExperts, OddSizesAndBatches) {
  for (const WorldShape& weights : all_weights()) {
    for (const std::int64_t tokens : {0, 1, 7, 171, 1000}) {
      SCOPED_TRACE(cat(tokens, " tokens, ", weights_of(weights)));
      WorldShape shape = weights;
      shape.experts_per_token = 3;
      shape.hidden = 136;
      shape.biases = true;
      expect_all_alike(make_layer(shape, 9), make_rows(shape, tokens, WorldRoutes::strange, 0, 5));
      if (HasFailure()) return;
    }
    SCOPED_TRACE(weights_of(weights));
    WorldShape wide = weights;
    wide.experts = 3;
    wide.hidden = 2880;
    wide.intermediate = 136;
    expect_all_alike(make_layer(wide, 4), make_rows(wide, 33, WorldRoutes::hot, 0, 6));
  }
}

// Beside the stages of the tallest tiles there is room to permute one row.
TEST(GroupedExperts, TheWidestRows) {
  for (WorldShape shape : all_weights()) {
    SCOPED_TRACE(weights_of(shape));
    shape.experts = 2;
    shape.hidden = 16384;
    shape.intermediate = 64;
    expect_all_alike(make_layer(shape, 4), make_rows(shape, 20, WorldRoutes::spread, 0, 6));
    if (HasFailure()) return;
  }
}

// Gives codes the nearest scales in bf16, and `numbers` the numbers that they then mean, in bf16.
void round_scales(WorldMatrix& codes, const WorldShape& shape, WorldMatrix& numbers) {
  const auto in = static_cast<std::size_t>(codes.in);
  const std::size_t columns = shape.scale_columns == 0 ? in : std::size_t(shape.scale_columns);
  const std::size_t groups = (in + columns - 1) / columns;
  numbers.bytes.clear();
  for (std::size_t i = 0; i < codes.values.size(); ++i) {
    const float scale = codes.scales[i / in * groups + i % in / columns];
    // A code is exact: the product with its scale is so in float64.
    const double code = codes.values[i] / double(scale);
    codes.values[i] = code * double(bf16_value(bf16_bits(scale)));
    const std::uint16_t bits = bf16_bits(static_cast<float>(codes.values[i]));
    numbers.values[i] = double(bf16_value(bits));
    numbers.bytes.push_back(static_cast<std::uint8_t>(bits));
    numbers.bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  for (float& scale : codes.scales) scale = bf16_value(bf16_bits(scale));
}

// Products of codes of 8 bits, less their zero points, with scales that bf16 holds are rounded
// once.
TEST(GroupedExperts, CodesHaveTheBitsOfTheirRoundedNumbers) {
  for (WorldShape shape : all_weights()) {
    if (shape.kind != WeightKind::i8 && shape.kind != WeightKind::f8_e4m3) continue;
    SCOPED_TRACE(weights_of(shape));
    shape.hidden = 264;
    shape.intermediate = 136;
    WorldLayer codes = make_layer(shape, 12);
    WorldLayer numbers = codes;
    numbers.shape.kind = WeightKind::bf16;
    for (auto projection : {&WorldLayer::gate, &WorldLayer::up, &WorldLayer::down}) {
      for (std::size_t e = 0; e < (codes.*projection).size(); ++e)
        round_scales((codes.*projection)[e], shape, (numbers.*projection)[e]);
    }
    for (const std::int64_t tokens : {3, 200}) {
      const WorldRows rows = make_rows(shape, tokens, WorldRoutes::spread, 0, 3);
      const PackedLayer packed(codes);
      const PackedLayer decoded(numbers);
      expect_bits(GroupedBatch(codes, packed, rows, nullptr).run(),
                  GroupedBatch(numbers, decoded, rows, nullptr).run());
    }
    if (HasFailure()) return;
  }
}

// Codes of fine groups or with zero points stand for numbers, and so do those of inputs beside
// them.
TEST(GroupedExperts, RoundedInputsOfCodesThatAreDecoded) {
  using Scales = kernels::InputRounding::Scales;
  for (WorldShape shape : {WorldShape{.kind = WeightKind::i8,
                                      .scale_columns = 64,
                                      .zero_points = true,
                                      .inputs = {.scales = Scales::row, .type = DType::i8}},
                           WorldShape{.kind = WeightKind::f8_e4m3,
                                      .scale_columns = 64,
                                      .inputs = {.scales = Scales::row, .type = DType::f8_e4m3}}}) {
    SCOPED_TRACE(weights_of(shape));
    shape.hidden = 144;
    shape.intermediate = 80;
    const WorldLayer layer = make_layer(shape, 5);
    const std::vector<WorldAdapter> adapters{make_adapter(shape, {.rank = 12}, 1)};
    for (const std::int64_t tokens : {1, 7, 200}) {
      expect_all_alike(layer, make_rows(shape, tokens, WorldRoutes::strange, 1, 8), adapters,
                       {{{0, 1.0F}}});
    }
  }
}

TEST(GroupedExperts, AdaptersOfEveryRank) {
  std::vector<int> ranks(17);
  std::iota(ranks.begin(), ranks.end(), 1);
  ranks.insert(ranks.end(), {33, 64, 255, 256});
  for (WorldShape shape : some_weights()) {
    shape.biases = true;
    const WorldLayer layer = make_layer(shape, 3);
    for (const int rank : ranks) {
      SCOPED_TRACE(cat("rank ", rank, " ", weights_of(shape)));
      const std::vector<WorldAdapter> adapters{
          make_adapter(shape, {.rank = rank, .holes = rank % 2 == 0}, unsigned(rank)),
          make_adapter(shape, {.rank = rank, .up_rank = 5, .no_gate = rank % 3 == 0}, 77)};
      const WorldMixes mixes{{{0, 1.0F}}, {{1, -0.75F}}};
      expect_all_alike(layer, make_rows(shape, 13, WorldRoutes::strange, 2, unsigned(rank)),
                       adapters, mixes);
      if (HasFailure()) return;
    }
  }
}

TEST(GroupedExperts, MixesAndSharedFactors) {
  for (const WorldShape& shape : some_weights()) {
    SCOPED_TRACE(weights_of(shape));
    const WorldLayer layer = make_layer(shape, 5);
    const std::vector<WorldAdapter> adapters{
        make_adapter(shape, {.rank = 16, .shared_outer = true}, 1),
        make_adapter(shape, {.rank = 8, .fused_gate_up = true, .holes = true}, 2),
        make_adapter(shape, {.rank = 33, .no_down = true}, 3)};
    const WorldMixes mixes{
        {{0, 1.0F}}, {{1, 0.5F}, {2, 2.0F}}, {{2, 1.0F}, {1, 1.0F}, {0, -1.0F}}, {}};
    for (const std::int64_t tokens : {1, 40, 400})
      expect_all_alike(layer, make_rows(shape, tokens, WorldRoutes::spread, 4, 8), adapters, mixes);
  }
}

// Coarse adapters have no rounding in FP8 pages: the same numbers as in bf16, in another order of
// no sum, so the same bits.
TEST(GroupedExperts, PagesOfFp8) {
  for (WorldShape shape : all_weights()) {
    shape.hidden = 200;
    shape.intermediate = 72;
    const WorldLayer layer = make_layer(shape, 7);
    for (const int rank : {1, 8, 17, 100}) {
      SCOPED_TRACE(cat("rank ", rank, " ", weights_of(shape)));
      const std::vector<WorldAdapter> adapters{
          make_adapter(shape, {.rank = rank, .up_rank = 9, .coarse = true}, 1),
          make_adapter(shape, {.rank = rank, .fused_gate_up = true, .holes = true, .coarse = true},
                       2),
          make_adapter(shape, {.rank = 24, .shared_outer = true, .coarse = true}, 3)};
      const WorldMixes mixes{{{0, 1.0F}}, {{1, 0.5F}, {2, 2.0F}}, {{2, 1.0F}}};
      const WorldRows rows = make_rows(shape, 45, WorldRoutes::strange, 3, 8);
      expect_all_alike(layer, rows, adapters, mixes, packed_f8);
      const PackedLayer packed_layer(layer);
      const AdapterPages wide(shape, adapters, mixes, packed_bf16);
      const AdapterPages narrow(shape, adapters, mixes, packed_f8);
      expect_bits(GroupedBatch(layer, packed_layer, rows, &narrow).run(),
                  GroupedBatch(layer, packed_layer, rows, &wide).run());
      if (HasFailure()) return;
    }
  }
}

TEST(GroupedExperts, LayersWithoutFactorsAreTheBase) {
  const WorldShape shape;
  const WorldLayer layer = make_layer(shape, 5);
  const PackedLayer packed_layer(layer);
  const AdapterPages pages(shape, {make_adapter(shape, {}, 1)}, {{{0, 1.0F}}}, packed_bf16);
  const WorldRows rows = make_rows(shape, 40, WorldRoutes::spread, 1, 8);
  WorldRows unlabelled = rows;
  unlabelled.labels.clear();
  const auto base = GroupedBatch(layer, packed_layer, unlabelled, nullptr).run();
  for (const int other : {adapted_layer - 1, adapted_layer + 1, 60}) {
    GroupedBatch batch(layer, packed_layer, rows, &pages);
    batch.params.deltas.layer = other;
    expect_bits(batch.run(), base);
  }
}

// Wherever another kernel or tile takes over: the first rows of a large batch have the same bits
// in a batch of their own.
TEST(GroupedExperts, BatchesBesideEveryThreshold) {
  struct Case {
    WorldShape shape;
    std::vector<std::int64_t> thresholds;  // in pairs, which are tokens here
  };
  for (const WorldShape& weights : some_weights()) {
    const WorldShape tall{.experts = 40, .experts_per_token = 1, .hidden = 64, .intermediate = 256};
    const WorldShape many{.experts = 256, .experts_per_token = 1, .hidden = 64, .intermediate = 64};
    for (Case c : {Case{tall, {33, 40, 64, 80, 160, 320, 1600, 3840, 5120, 5760, 5800}},
                   Case{many, {64, 132, 256, 512, 1024, 2048}}}) {
      c.shape.kind = weights.kind;
      c.shape.scale_columns = weights.scale_columns;
      c.shape.zero_points = weights.zero_points;
      c.shape.e8m0_scales = weights.e8m0_scales;
      const WorldLayer layer = make_layer(c.shape, 3);
      const PackedLayer packed_layer(layer);
      const std::vector<WorldAdapter> adapters{make_adapter(c.shape, {.rank = 16}, 1),
                                               make_adapter(c.shape, {.rank = 5}, 2)};
      const WorldMixes mixes{{{0, 1.0F}}, {{1, 1.0F}, {0, 0.5F}}};
      const AdapterPages pages(c.shape, adapters, mixes, packed_bf16);
      for (const bool lora : {false, true}) {
        WorldRows rows = make_rows(c.shape, c.thresholds.back() + 1, WorldRoutes::spread, 2, 9);
        if (!lora) rows.labels.clear();
        std::vector<std::int64_t> first(rows.x.size() / std::size_t(c.shape.hidden));
        std::iota(first.begin(), first.end(), 0);
        const auto all = GroupedBatch(layer, packed_layer, rows, &pages).run();
        for (const std::int64_t threshold : c.thresholds) {
          for (const std::int64_t tokens : {threshold - 1, threshold, threshold + 1}) {
            SCOPED_TRACE(cat(tokens, " tokens, ", weights_of(weights), " lora ", int(lora)));
            const WorldRows few =
                pick_rows(rows, c.shape, std::span(first).first(std::size_t(tokens)));
            const auto got = GroupedBatch(layer, packed_layer, few, &pages).run();
            expect_bits(got,
                        std::vector<float>(all.begin(), all.begin() + std::ptrdiff_t(got.size())));
            if (HasFailure()) return;
          }
        }
        const WorldRows few = pick_rows(rows, c.shape, std::span(first).first(64));
        expect_near(std::vector<float>(all.begin(), all.begin() + 64 * c.shape.hidden), layer, few,
                    adapters, mixes);
      }
    }
  }
}

TEST(GroupedExperts, RefusesByName) {
  using kernels::cuda::ExpertShape;
  using kernels::cuda::grouped_supports;
  const ExpertShape good{.experts = 512, .hidden = 16384, .intermediate = 8};
  EXPECT_TRUE(grouped_supports(good, 64));
  EXPECT_TRUE(grouped_supports(good, 1));
  const auto why = [](const ExpertShape& shape, int slots) {
    const auto supports = grouped_supports(shape, slots);
    return supports ? std::string("yes") : supports.reason();
  };
  using testing::HasSubstr;
  const auto with = [&](auto change) {
    ExpertShape shape = good;
    change(shape);
    return why(shape, 2);
  };
  EXPECT_THAT(why(good, 0), HasSubstr("not 0"));
  EXPECT_THAT(why(good, 65), HasSubstr("not 65"));
  EXPECT_THAT(with([](ExpertShape& s) { s.experts = 513; }), HasSubstr("not 513"));
  EXPECT_THAT(with([](ExpertShape& s) { s.hidden = 100; }), HasSubstr("not 100"));
  EXPECT_THAT(with([](ExpertShape& s) { s.hidden = 16392; }), HasSubstr("not 16392"));
  EXPECT_THAT(with([](ExpertShape& s) { s.intermediate = 12; }), HasSubstr("not 12"));
}

// Tokens x hidden, and pairs x the vec4 of their widest row, stay below 2^31.
TEST(GroupedExperts, BoundTheTokensOfAStep) {
  using kernels::cuda::grouped_max_tokens;
  EXPECT_EQ(grouped_max_tokens({.experts = 256, .hidden = 7168, .intermediate = 2048}, 8), 149796);
  EXPECT_EQ(grouped_max_tokens({.experts = 8, .hidden = 8192, .intermediate = 64}, 1), 262143);
}

TEST(GroupedExperts, RanksThatShareShrinksHaveTheBitsOfOneThatDoesNot) {
  for (WorldShape shape : all_weights()) {
    SCOPED_TRACE(weights_of(shape));
    shape.hidden = 200;
    shape.intermediate = 72;
    const WorldLayer layer = make_layer(shape, 5);
    const PackedLayer packed_layer(layer);
    const std::vector<WorldAdapter> adapters{
        make_adapter(shape, {.rank = 16, .shared_outer = true}, 1),
        make_adapter(shape, {.rank = 8, .fused_gate_up = true, .holes = true}, 2),
        make_adapter(shape, {.rank = 33, .up_rank = 5, .no_down = true}, 3)};
    const WorldMixes mixes{
        {{0, 1.0F}}, {{1, 0.5F}, {2, 2.0F}}, {{2, 1.0F}, {1, 1.0F}, {0, -1.0F}}, {}};
    for (const lora::PageFormat& format : {packed_bf16, packed_f8}) {
      const AdapterPages pages(shape, adapters, mixes, format);
      for (const std::int64_t tokens : {2, 61, 700}) {
        const WorldRows rows = make_rows(shape, tokens, WorldRoutes::strange, 4, 8);
        const auto own = GroupedBatch(layer, packed_layer, rows, &pages).run();
        for (const int ranks : {2, 3, 8}) {
          GroupedBatch batch(layer, packed_layer, rows, &pages);
          RanksInTurn in_turn(ranks);
          const auto gather = [&](void* parts, std::int64_t bytes) {
            in_turn.gather_parts({.data = static_cast<std::byte*>(parts), .bytes = bytes}).value();
          };
          const FunctionRef<void(void*, std::int64_t)> gather_parts = gather;
          std::vector<float> shared;
          for (; in_turn.rank() >= 0; in_turn.next()) {
            batch.params.shared_shrink = {.rank = in_turn.rank(),
                                          .ranks = ranks,
                                          .columns = pages.max_columns[0],
                                          .gather = &gather_parts};
            shared = batch.run();
          }
          EXPECT_EQ(in_turn.gathered(), ranks);
          expect_bits(shared, own);
        }
      }
    }
  }
}

TEST(GroupedExperts, NeighboursAndZeroAdaptersChangeNoBit) {
  for (WorldShape shape : some_weights()) {
    SCOPED_TRACE(weights_of(shape));
    shape.experts = 8;
    shape.hidden = 256;
    shape.intermediate = 128;
    shape.biases = true;
    const WorldLayer layer = make_layer(shape, 6);
    const PackedLayer packed_layer(layer);
    const std::vector<WorldAdapter> adapters{
        make_adapter(shape, {.rank = 12, .zero = true}, 1), make_adapter(shape, {.rank = 24}, 2),
        make_adapter(shape, {.rank = 40, .fused_gate_up = true}, 3)};
    const AdapterPages zero(shape, adapters, {{{0, 1.0F}}, {{0, 2.0F}}}, packed_bf16);
    const AdapterPages other(shape, adapters, {{{1, 1.0F}}, {{2, 0.5F}}}, packed_bf16);
    const WorldRows rows = make_rows(shape, 300, WorldRoutes::strange, 2, 3);
    WorldRows unlabelled = rows;
    unlabelled.labels.clear();
    const auto base = GroupedBatch(layer, packed_layer, unlabelled, nullptr).run();
    expect_bits(GroupedBatch(layer, packed_layer, rows, &zero).run(), base);
    const auto mixed = GroupedBatch(layer, packed_layer, rows, &other).run();
    for (std::size_t i = 0; i < base.size(); ++i) {
      if (rows.labels[i / std::size_t(shape.hidden)] >= 0) continue;
      ASSERT_EQ(mixed[i], base[i]) << "element " << i;
    }
    // A few of the rows alone.
    const std::vector<std::int64_t> which{0, 17, 18, 130, 299};
    const WorldRows few = pick_rows(rows, shape, which);
    const auto alone = GroupedBatch(layer, packed_layer, few, &other).run();
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const auto width = std::size_t(shape.hidden);
      ASSERT_EQ(alone[i], mixed[std::size_t(which[i / width]) * width + i % width])
          << "element " << i;
    }
  }
}

TEST(GroupedExperts, AgreesWithTheExactKernels) {
  const WorldShape shape{.experts = 16, .experts_per_token = 4, .hidden = 512, .intermediate = 192};
  const WorldLayer layer = make_layer(shape, 8);
  const std::vector<WorldAdapter> adapters{make_adapter(shape, {.rank = 16}, 1),
                                           make_adapter(shape, {.rank = 64}, 2)};
  const WorldMixes mixes{{{0, 1.0F}}, {{1, 1.0F}, {0, 0.5F}}};
  const WorldRows rows = make_rows(shape, 257, WorldRoutes::strange, 2, 5);
  const auto exact = run_exact(layer, rows, adapters, mixes);
  const std::vector<double> want(exact.begin(), exact.end());
  const PackedLayer packed_layer(layer);
  const AdapterPages packed(shape, adapters, mixes, packed_bf16);
  const auto got = GroupedBatch(layer, packed_layer, rows, &packed).run();
  EXPECT_LT(relative_error(got, want, shape.hidden).all, tolerance(shape));
  const auto narrow = GroupedBatch(layer, packed_layer, rows, &packed, DType::bf16).run();
  std::vector<float> rounded;
  for (const float value : got) rounded.push_back(bf16_value(bf16_bits(value)));
  expect_bits(narrow, rounded);
}

}  // namespace
}  // namespace motley::gpu_tests
