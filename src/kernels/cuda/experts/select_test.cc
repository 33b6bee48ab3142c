#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/thresholds.h"
#include "kernels/cuda/tuned_thresholds.h"

// Which tiles are chosen for an expert layer. Needs no GPU.
namespace motley::kernels::cuda {
namespace {

using testing::HasSubstr;

enum class Weights { bf16, int4, fp8_and_inputs };

// A layer of Qwen3-30B-A3B; adapters have one term per label.
GroupedExperts problem(Weights weights, bool adapters, std::int64_t tokens) {
  static constexpr std::int32_t some_labels = 0;
  GroupedExperts p;
  p.shape = {.experts = 128, .hidden = 2048, .intermediate = 768};
  p.experts_per_token = 8;
  p.tokens = tokens;
  p.weights.format = weights == Weights::bf16   ? ExpertFormat::bf16
                     : weights == Weights::int4 ? ExpertFormat::int4
                                                : ExpertFormat::fp8_rows;
  if (weights == Weights::fp8_and_inputs) {
    static constexpr ExpertInputs some_inputs{};
    for (GroupedInputs& inputs : p.inputs) {
      inputs.each = &some_inputs;
      inputs.rounding = {.scales = InputRounding::Scales::row, .type = DType::f8_e4m3};
    }
  }
  p.deltas.max_terms = 1;
  if (adapters) p.deltas.labels = &some_labels;
  return p;
}

struct Case {
  std::int64_t tokens;
  std::string_view bf16, bf16_adapters, int4, int4_adapters;
};

TEST(ExpertSelection, FollowsTheThresholds) {
  const Case table[] = {
      {1, "64x8 boxes sort sum", "128x8 boxes sort sum", "64x8 boxes sort sum",
       "64x8 boxes sort sum"},
      {2, "128x8 boxes sort sum", "128x8 boxes sort sum", "64x8 boxes sort", "128x8 boxes sort"},
      {8, "128x8 boxes sort sum", "128x8 boxes sort sum", "128x8 boxes sort", "128x8 boxes sort"},
      {16, "128x8 boxes sort sum", "128x8 boxes sort sum", "256x16 boxes sort",
       "256x16 boxes sort"},
      {32, "128x16 boxes sort sum", "128x16 boxes sum", "256x16 boxes sort", "256x16 boxes"},
      {64, "256x64 copies", "128x16 boxes sum", "256x16 boxes", "256x16 boxes"},
      {96, "256x64 copies", "128x16 boxes", "256x16 boxes", "256x16 boxes"},
      {128, "256x64 copies", "128x16 boxes", "256x16 copies", "256x16 boxes"},
      {256, "256x64 copies", "256x64 copies", "256x64 copies", "256x64 copies"},
      {1024, "256x128 copies", "256x128 copies", "256x128 copies", "256x128 copies"},
      {2048, "256x160 copies", "256x128 copies", "256x128 permuted", "256x128 permuted"},
      {2319, "256x128 copies", "256x128 copies", "256x128 permuted", "256x128 permuted"},
      {8192, "256x128 permuted", "256x128 permuted", "256x128 permuted", "256x128 permuted"},
  };
  const auto choice = [](Weights weights, bool adapters, std::int64_t tokens) {
    return name_of(choose_grouped_tiles(problem(weights, adapters, tokens)));
  };
  for (const Case& row : table) {
    SCOPED_TRACE(cat(row.tokens, " tokens"));
    EXPECT_EQ(choice(Weights::bf16, false, row.tokens), row.bf16);
    EXPECT_EQ(choice(Weights::bf16, true, row.tokens), row.bf16_adapters);
    EXPECT_EQ(choice(Weights::int4, false, row.tokens), row.int4);
    EXPECT_EQ(choice(Weights::int4, true, row.tokens), row.int4_adapters);
  }
}

// Every number of tokens has a kernel; whether rows have adapters never changes the arithmetic.
TEST(ExpertSelection, AdaptersKeepTheArithmetic) {
  for (const Weights weights : {Weights::bf16, Weights::int4, Weights::fp8_and_inputs}) {
    for (const int experts : {1, 8, 128, 512}) {
      for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 7) {
        GroupedExperts base = problem(weights, false, tokens);
        base.shape.experts = experts;
        GroupedExperts adapted = problem(weights, true, tokens);
        adapted.shape.experts = experts;
        adapted.deltas.max_terms = 3;
        const GroupedTiles base_tiles = choose_grouped_tiles(base);
        const GroupedTiles tiles = choose_grouped_tiles(adapted);
        ASSERT_TRUE(grouped_supports(base_tiles, base));
        ASSERT_TRUE(grouped_supports(tiles, adapted));
        EXPECT_EQ(grouped_kernel_of(base_tiles, base).arithmetic,
                  grouped_kernel_of(tiles, adapted).arithmetic);
      }
    }
  }
}

// What ranks share are the launches of shrinks, which all of them must have.
TEST(ExpertSelection, SharedShrinksNeedTallTiles) {
  for (const Weights weights : {Weights::bf16, Weights::int4, Weights::fp8_and_inputs}) {
    for (const std::int64_t intermediate : {8, 192, 768}) {
      for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 7) {
        GroupedExperts p = problem(weights, true, tokens);
        p.shape.intermediate = static_cast<int>(intermediate);
        p.shared_shrink = {.rank = 1, .ranks = 2, .columns = 32};
        const GroupedTiles tiles = choose_grouped_tiles(p);
        EXPECT_TRUE(tiles.tall()) << name_of(tiles);
        EXPECT_TRUE(grouped_supports(tiles, p)) << name_of(tiles);
      }
    }
  }
}

TEST(ExpertSelection, WiderRowsInRankSpaceAreSharedEarlier) {
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  for (const int columns : {16, 32, 48, 64, 128, 1024}) {
    const std::int64_t pairs = min_shared_shrink_pairs(columns);
    EXPECT_GT(pairs, 0);
    EXPECT_LE(pairs, before);
    before = pairs;
  }
}

// Arranged inputs come in the order of places, from a launch between the plan and the tiles.
TEST(ExpertSelection, ArrangedInputsNeedTheirOwnLaunches) {
  static constexpr ExpertInputs some_inputs{};
  for (const Weights weights : {Weights::bf16, Weights::int4}) {
    for (const bool adapters : {false, true}) {
      for (const int arranged : {0, 1}) {
        for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 7) {
          GroupedExperts p = problem(weights, adapters, tokens);
          const GroupedTiles as_they_are = choose_grouped_tiles(p);
          p.inputs[arranged].each = &some_inputs;
          const GroupedTiles tiles = choose_grouped_tiles(p);
          ASSERT_TRUE(grouped_supports(tiles, p)) << name_of(tiles);
          EXPECT_EQ(tiles.rows, as_they_are.rows);
          EXPECT_EQ(tiles.width, as_they_are.width);
          EXPECT_FALSE(tiles.sort_inside || tiles.sum_inside) << name_of(tiles);
          EXPECT_NE(tiles.gather, GroupedTiles::Gather::copies) << name_of(tiles);
        }
      }
    }
  }
}

// Codes are multiplied as they are where both sides have one type, and by one arithmetic at every
// number of tokens.
TEST(ExpertSelection, InputsAreCodesWhereTheirTypeIsTheWeights) {
  const auto arithmetic = [](const GroupedExperts& p) {
    return grouped_kernel_of(choose_grouped_tiles(p), p).arithmetic;
  };
  for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 7)
    EXPECT_EQ(arithmetic(problem(Weights::fp8_and_inputs, false, tokens)), coded_arithmetic);
  const auto format = [](const auto& change) {
    GroupedExperts p = problem(Weights::fp8_and_inputs, false, 1);
    p.weights.format = ExpertFormat::fp8;
    change(p);
    return format_for_inputs(p.weights, p.inputs, p.shape);
  };
  EXPECT_EQ(format([](auto&) {}), ExpertFormat::fp8_rows);
  const auto keeps = [&](const auto& change) { EXPECT_EQ(format(change), ExpertFormat::fp8); };
  keeps([](auto& p) { p.inputs[1].rounding.type = DType::i8; });
  keeps([](auto& p) { p.inputs[0].ordered = true; });
  keeps([](auto& p) { p.inputs[0].rounding.zero = 3; });
  keeps([](auto& p) { p.inputs[0] = {}; });
  keeps([](auto& p) { p.shape.hidden = 2056; });
  keeps([](auto& p) {
    p.inputs[1].rounding = {
        .scales = InputRounding::Scales::row_block, .type = DType::f8_e4m3, .columns = 64};
  });
  const auto integers = [](bool scales_of_rows) {
    return [scales_of_rows](auto& p) {
      p.weights.format = ExpertFormat::int8;
      p.weights.scales_of_rows = scales_of_rows;
      for (GroupedInputs& inputs : p.inputs) inputs.rounding.type = DType::i8;
    };
  };
  EXPECT_EQ(format(integers(true)), ExpertFormat::int8_rows);
  EXPECT_EQ(format(integers(false)), ExpertFormat::int8);
}

// Codes with more than one scale for 128 inputs, or with zero points, stand for numbers in bf16
// even where inputs are codes.
TEST(ExpertSelection, FineGroupsAndZeroPointsAreDecoded) {
  for (const ExpertFormat format :
       {ExpertFormat::int8_any_fine, ExpertFormat::fp8_fine, ExpertFormat::mxfp8}) {
    for (const DType type : {DType::i8, DType::f8_e4m3}) {
      for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 7) {
        GroupedExperts p = problem(Weights::fp8_and_inputs, false, tokens);
        p.weights.format = format;
        p.weights.scales_of_rows = true;
        for (GroupedInputs& inputs : p.inputs) inputs.rounding.type = type;
        EXPECT_EQ(format_for_inputs(p.weights, p.inputs, p.shape), format);
        EXPECT_EQ(grouped_kernel_of(choose_grouped_tiles(p), p).arithmetic, grouped_arithmetic);
      }
    }
  }
}

TEST(ExpertSelection, EveryFormatHasTilesForEveryBatch) {
  for (const ExpertFormat format : all_expert_formats) {
    for (const bool adapters : {false, true}) {
      for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 7) {
        GroupedExperts p = problem(Weights::bf16, adapters, tokens);
        p.weights.format = format;
        static constexpr ExpertInputs some_inputs{};
        if (has_coded_inputs(format))
          for (GroupedInputs& inputs : p.inputs) inputs.each = &some_inputs;
        const GroupedTiles tiles = choose_grouped_tiles(p);
        ASSERT_TRUE(grouped_supports(tiles, p)) << name_of(tiles);
        EXPECT_EQ(grouped_kernel_of(tiles, p).arithmetic,
                  has_coded_inputs(format) ? coded_arithmetic : grouped_arithmetic);
      }
    }
  }
}

TEST(ExpertSelection, EveryKernelIsWhole) {
  std::set<std::string> chosen;
  for (const GroupedTiles& tiles : all_grouped_tiles) {
    EXPECT_TRUE(can_run(tiles)) << name_of(tiles);
    for (const Weights weights : {Weights::bf16, Weights::int4}) {
      const GroupedExperts one = problem(weights, false, 1);
      if (!grouped_supports(tiles, one)) continue;
      const KernelInfo& info = grouped_kernel_of(tiles, one);
      EXPECT_FALSE(info.name.empty());
      EXPECT_EQ(info.architecture, Architecture::sm_90a);
      EXPECT_EQ(info.layout, WeightLayout::packed);
      EXPECT_EQ(info.arithmetic, grouped_arithmetic);
      EXPECT_EQ(info.tile.outputs, count_rows(tiles.rows));
      EXPECT_GE(info.tile.rows, tiles.width);
      EXPECT_GT(info.tile.k, 0);
    }
  }
}

TEST(ExpertSelection, RefusesWithAReason) {
  const auto reason = [](const GroupedTiles& tiles, const GroupedExperts& p) {
    const Support support = grouped_supports(tiles, p);
    return support ? std::string("none") : support.reason();
  };
  using enum GroupedTiles::Rows;
  EXPECT_THAT(reason({.rows = r64}, problem(Weights::bf16, true, 1)),
              HasSubstr("no tiles of 64 x 8"));
  EXPECT_THAT(reason({.rows = r256, .width = 16}, problem(Weights::bf16, false, 1)),
              HasSubstr("no tiles of 256 x 16"));
  EXPECT_THAT(reason({.sort_inside = true}, problem(Weights::bf16, true, 17)),
              HasSubstr("its blocks sort 128 pairs, not 136"));
  EXPECT_THAT(reason({.sum_inside = true}, problem(Weights::bf16, false, 65)),
              HasSubstr("its tiles sum 512 pairs, not 520"));
  EXPECT_THAT(reason({.rows = r64, .width = 64}, problem(Weights::bf16, false, 1)),
              HasSubstr("no code for such tiles"));
  GroupedExperts large = problem(Weights::bf16, false, 300'000);
  large.shape = {.experts = 256, .hidden = 7168, .intermediate = 2048};
  EXPECT_THAT(reason({.rows = r256, .width = 128, .gather = GroupedTiles::Gather::copies}, large),
              HasSubstr("tokens in 32 bits, not 300000"));
}

// Each row of the table decides for some problem. The limit of sorting inside is not the row's.
TEST(ExpertSelection, EveryThresholdIsReached) {
  const auto name = [](GroupedTiles tiles) {
    tiles.sort_inside = false;
    return name_of(tiles);
  };
  std::set<std::string> chosen;
  for (const Weights weights : {Weights::bf16, Weights::int4, Weights::fp8_and_inputs}) {
    for (const bool adapters : {false, true}) {
      for (const int experts : {8, 128, 512}) {
        for (std::int64_t tokens = 1; tokens < 4000; ++tokens) {
          GroupedExperts p = problem(weights, adapters, tokens);
          p.shape.experts = experts;
          chosen.insert(name(choose_grouped_tiles(p)));
        }
      }
    }
  }
  for (const ExpertThreshold& row : grouped::expert_thresholds)
    EXPECT_TRUE(chosen.contains(name(row.tiles))) << name_of(row.tiles);
  for (const ExpertThreshold& row : grouped::expert_thresholds)
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(MOTLEY_RECORDS) / row.record));
}

}  // namespace
}  // namespace motley::kernels::cuda
