#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/list/match.h"
#include "ops/list/memory_plan.h"
#include "ops/list/op_list.h"

namespace motley::ops {
namespace {

using testing::ElementsAre;

template <OpKind own>
struct Plain {
  static constexpr OpKind kind = own;
};

constexpr std::array patterns{
    Pattern{"three",
            {one(OpKind::add), one(OpKind::norm), some(bit(OpKind::linear), 1, 2),
             optional(OpKind::bias)}},
    Pattern{"two",
            {one(OpKind::add), one(OpKind::norm)},
            // The launch does not write the sum.
            [](const OpList& list, std::span<const LiveOp> ops, ValueId value) {
              return !list.overlap(value, ops[0].op->writes[0]);
            }},
    Pattern{"of one", {one(OpKind::round), some_of_one(bit(OpKind::linear), 1, 3)}}};

class OpLists : public testing::Test {
 protected:
  template <OpKind kind>
  ValueId op(std::initializer_list<ValueId> reads, std::int64_t width = 8) {
    const ValueId out = list.add_value({.name = "value", .width = width});
    list.append({.reads = reads, .writes = {out}}, Plain<kind>{});
    return out;
  }
  // The patterns of the launches, if all ops are live except those in `gone`.
  std::vector<int> match_all(std::initializer_list<std::size_t> gone = {}, bool fits = true) {
    Schedule schedule;
    for (std::size_t i = 0; i < list.ops().size(); ++i) {
      if (std::ranges::find(gone, i) == gone.end())
        schedule.ops.push_back({&list.ops()[i], list.ops()[i].kind});
    }
    match(list, patterns, [&](int, std::span<const LiveOp>) { return fits; }, schedule);
    std::vector<int> found;
    std::size_t covered = 0;
    for (const Launch& launch : schedule.launches) {
      EXPECT_EQ(static_cast<std::size_t>(launch.first), covered) << "in order, without gaps";
      covered += static_cast<std::size_t>(launch.count);
      found.push_back(launch.pattern);
    }
    EXPECT_EQ(covered, schedule.ops.size());
    return found;
  }

  OpList list;
};

TEST_F(OpLists, TheLongestPatternThatFitsIsTaken) {
  const ValueId x = op<OpKind::norm>({op<OpKind::add>({})});
  op<OpKind::linear>({x});
  op<OpKind::linear>({x});
  op<OpKind::linear>({x});
  EXPECT_THAT(match_all(), ElementsAre(0, -1));
  EXPECT_THAT(match_all({}, false), ElementsAre(-1, -1, -1, -1, -1));
}

// Maps that follow but read something else keep none of the others from their pattern.
TEST_F(OpLists, APatternOfOneXEndsWhereAnotherIsRead) {
  const ValueId x = op<OpKind::clip>({});
  const ValueId rounded = op<OpKind::round>({x});
  op<OpKind::linear>({rounded});
  op<OpKind::linear>({rounded});
  op<OpKind::linear>({x});
  EXPECT_THAT(match_all(), ElementsAre(-1, 2, -1));
}

TEST_F(OpLists, AnOpInBetweenKeepsThemApart) {
  const ValueId sum = op<OpKind::add>({});
  op<OpKind::norm>({op<OpKind::clip>({sum})});
  EXPECT_THAT(match_all(), ElementsAre(-1, -1, -1));
  // Unless it is absent in this step.
  EXPECT_THAT(match_all({1}), ElementsAre(1));
}

TEST_F(OpLists, AValueWithASecondReaderSurvives) {
  const ValueId sum = op<OpKind::add>({});
  op<OpKind::norm>({sum});
  EXPECT_THAT(match_all(), ElementsAre(1));
  op<OpKind::clip>({sum});
  EXPECT_THAT(match_all(), ElementsAre(-1, -1, -1)) << "the fusion would lose the sum";
}

TEST_F(OpLists, ReadersOfOtherColumnsAreNone) {
  const ValueId sum = list.add_value({.name = "sum", .width = 12});
  const ValueId written = list.columns(sum, 0, 4);
  list.append({.writes = {written}}, Plain<OpKind::add>{});
  op<OpKind::norm>({written});
  op<OpKind::clip>({list.columns(sum, 4, 8)});
  EXPECT_THAT(match_all(), ElementsAre(1, -1));
  op<OpKind::clip>({list.columns(sum, 3, 2)});
  EXPECT_THAT(match_all(), ElementsAre(-1, -1, -1, -1));
}

TEST_F(OpLists, ColumnsOfHeadsOverlapByHead) {
  const ValueId all = list.add_value({.name = "all", .width = 30});
  const ValueId heads = list.split_heads(list.columns(all, 6, 24), 3);
  const ValueId front = list.head_columns(heads, 0, 5);
  const ValueId back = list.head_columns(heads, 5, 3);
  EXPECT_TRUE(list.overlap(heads, front));
  EXPECT_TRUE(list.overlap(heads, all));
  EXPECT_FALSE(list.overlap(front, back));
  EXPECT_TRUE(list.overlap(front, list.head_columns(heads, 4, 2)));
  EXPECT_FALSE(list.overlap(back, list.columns(all, 0, 6)));
}

TEST_F(OpLists, OtherFormsWorkOnOtherRows) {
  list.serve(first_form);
  const ValueId sum = op<OpKind::add>({});
  op<OpKind::norm>({sum});
  list.serve(second_form);
  op<OpKind::clip>({sum});
  EXPECT_THAT(match_all(), ElementsAre(1, -1));
  list.serve(all_forms);
  op<OpKind::clip>({sum});
  EXPECT_THAT(match_all(), ElementsAre(-1, -1, -1, -1));
}

TEST_F(OpLists, NoPatternCrossesIntoAnotherForm) {
  list.serve(first_form);
  const ValueId sum = op<OpKind::add>({});
  list.serve(second_form);
  op<OpKind::norm>({sum});
  EXPECT_THAT(match_all(), ElementsAre(-1, -1));
}

class MemoryPlans : public OpLists {
 protected:
  static constexpr std::int64_t rows = 64;
  // 64 rows of 8 float32 numbers.
  static constexpr std::size_t bytes = 2048;

  MemoryPlan plan(bool fuses = false, std::vector<std::size_t> scratch = {}) {
    scratch.resize(list.ops().size());
    return plan_memory(list,
                       fuses ? std::span<const Pattern>(patterns) : std::span<const Pattern>(),
                       {rows, 0}, scratch);
  }
  static bool apart(const MemoryPlan& plan, ValueId a, ValueId b) {
    const std::size_t x = plan.value_at[static_cast<std::size_t>(a)];
    const std::size_t y = plan.value_at[static_cast<std::size_t>(b)];
    return x + bytes <= y || y + bytes <= x;
  }
};

TEST_F(MemoryPlans, ValuesShareMemoryOnceTheyAreNotReadAnyMore) {
  ValueId value = op<OpKind::embed>({});
  for (int i = 0; i < 20; ++i) value = op<OpKind::clip>({value});
  EXPECT_EQ(plan().bytes, 2 * bytes);
}

TEST_F(MemoryPlans, WhatLivesTogetherLiesApart) {
  const ValueId a = op<OpKind::embed>({});
  const ValueId b = op<OpKind::clip>({a});
  const ValueId c = op<OpKind::clip>({b});
  const ValueId d = op<OpKind::add>({a, c});
  const MemoryPlan made = plan();
  EXPECT_EQ(made.bytes, 3 * bytes);
  for (const auto& [x, y] : {std::pair(a, b), {a, c}, {b, c}, {a, d}, {c, d}})
    EXPECT_TRUE(apart(made, x, y)) << x << " and " << y;
}

// A launch writes its last value while it may still read its first.
TEST_F(MemoryPlans, OpsThatMayRunTogetherCountAsOneMoment) {
  const ValueId a = op<OpKind::embed>({});
  const ValueId sum = op<OpKind::add>({a});
  const ValueId normed = op<OpKind::norm>({sum});
  EXPECT_EQ(plan().bytes, 2 * bytes);
  const MemoryPlan fused = plan(true);
  EXPECT_EQ(fused.bytes, 3 * bytes);
  EXPECT_TRUE(apart(fused, a, normed));
}

// Parts run one after the other, so values that both forms write live through all parts.
TEST_F(MemoryPlans, ValuesOfBothFormsOutliveEitherOnesOwn) {
  const ValueId x = op<OpKind::embed>({});
  const ValueId out = list.add_value({.name = "out", .width = 8});
  std::vector<ValueId> own;
  for (const Form each : {first_form, second_form}) {
    list.serve(each);
    own.push_back(op<OpKind::clip>({x}));
    own.push_back(op<OpKind::clip>({own.back()}));
    list.append({.reads = {own.back()}, .writes = {out}}, Plain<OpKind::round>{});
  }
  list.serve(all_forms);
  op<OpKind::clip>({out});
  const MemoryPlan made = plan();
  for (const ValueId value : own) {
    EXPECT_TRUE(apart(made, value, out)) << value;
    EXPECT_TRUE(apart(made, value, x)) << value;
  }
  EXPECT_FALSE(apart(made, own[0], own[2])) << "those of one form are not the other's";
}

TEST_F(MemoryPlans, ScratchOfAnOpIsThereOnlyWhileItRuns) {
  const ValueId a = op<OpKind::embed>({});
  const ValueId b = op<OpKind::clip>({a});
  const ValueId c = op<OpKind::clip>({b});
  op<OpKind::clip>({c});
  const MemoryPlan made = plan(false, {0, 4 * bytes, 0, 4 * bytes});
  EXPECT_EQ(made.bytes, 6 * bytes);
  const std::size_t scratch = made.scratch_at[1];
  for (const ValueId value : {a, b}) {
    const std::size_t at = made.value_at[static_cast<std::size_t>(value)];
    EXPECT_TRUE(at + bytes <= scratch || scratch + 4 * bytes <= at) << value;
  }
}

}  // namespace
}  // namespace motley::ops
