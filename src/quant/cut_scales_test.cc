#include "quant/cut_scales.h"

#include <gtest/gtest.h>

namespace motley::quant {
namespace {

using kernels::InputRounding;
using Scales = InputRounding::Scales;

constexpr InputRounding by_128{.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128};

TEST(CutScales, OfWholeRowsThereIsOne) {
  const CutScales scales =
      cut_scales({.scales = Scales::row}, {.whole = 768, .begin = 384, .unit = 384});
  EXPECT_EQ(scales.count, 1);
  EXPECT_EQ(scales.first, 0);
}

TEST(CutScales, OfBlocksAreSharedWhereAnyRankCutsOne) {
  // Rank 2 of 4 begins with a block, but its neighbours cut some.
  const CutScales scales = cut_scales(by_128, {.whole = 768, .begin = 384, .unit = 192});
  EXPECT_EQ(scales.count, 6);
  EXPECT_EQ(scales.first, 3);
  EXPECT_EQ(cut_scales(by_128, {.whole = 700, .begin = 192, .unit = 192}).count, 6);
  EXPECT_EQ(cut_scales(by_128, {.whole = 700, .begin = 192, .unit = 192}).first, 1);
}

TEST(CutScales, OfBlocksThatStayWholeAreEachRanksOwn) {
  EXPECT_EQ(cut_scales(by_128, {.whole = 768, .begin = 384, .unit = 384}).count, 0);
  EXPECT_EQ(cut_scales(by_128, {.whole = 700, .begin = 0, .unit = 0}).count, 0);
}

TEST(CutScales, OfTheFileNeedNoOtherRank) {
  EXPECT_EQ(cut_scales({}, {.whole = 768, .begin = 100, .unit = 4}).count, 0);
  EXPECT_EQ(cut_scales({.scales = Scales::fixed}, {.whole = 768, .begin = 100, .unit = 4}).count,
            0);
}

}  // namespace
}  // namespace motley::quant
