#include "dist/layout.h"

#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::dist {
namespace {

TEST(Layout, DealsEverythingOnceAndAboutEvenly) {
  for (const std::int64_t count : {0, 1, 3, 7, 8, 100, 151936}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range own = deal(count, ranks, rank);
        EXPECT_EQ(own.begin, next) << count << " over " << ranks;
        EXPECT_LE(own.size(), (count + ranks - 1) / ranks);
        EXPECT_GE(own.size(), count / ranks);
        next = own.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Layout, ARankHoldsTheKvHeadsThatItsHeadsRead) {
  for (const auto& [heads, kv_heads] : {std::tuple(32, 4), std::tuple(4, 2), std::tuple(6, 3),
                                        std::tuple(5, 1), std::tuple(8, 8)}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const std::int64_t group = heads / kv_heads;
      std::int64_t next = 0;
      std::int64_t counted = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadShard own = deal_heads(heads, kv_heads, ranks, rank);
        if (own.heads.empty()) {
          EXPECT_TRUE(own.kv_heads.empty());
          EXPECT_FALSE(own.first_of_kv);
          continue;
        }
        EXPECT_EQ(own.heads.begin, next);
        next = own.heads.end;
        EXPECT_EQ(own.kv_heads.begin, own.heads.begin / group);
        EXPECT_EQ(own.kv_heads.end, (own.heads.end - 1) / group + 1);
        EXPECT_EQ(own.heads.size() % own.kv_heads.size(), 0) << "equally many for each";
        if (own.first_of_kv) counted += own.kv_heads.size();
      }
      EXPECT_EQ(next, heads) << heads << "/" << kv_heads << " over " << ranks;
      EXPECT_EQ(counted, kv_heads) << heads << "/" << kv_heads << " over " << ranks;
    }
  }
}

TEST(Layout, MoreRanksThanHeadsLeaveSomeWithoutAny) {
  EXPECT_EQ(deal_heads(4, 2, 8, 0), (HeadShard{{0, 1}, {0, 1}, true}));
  EXPECT_EQ(deal_heads(4, 2, 8, 1), (HeadShard{{1, 2}, {0, 1}, false}));
  EXPECT_EQ(deal_heads(4, 2, 8, 2), (HeadShard{{}, {}, false}));
  EXPECT_EQ(deal_heads(4, 2, 8, 4), (HeadShard{{2, 3}, {1, 2}, true}));
}

TEST(Layout, GroupsOfRanksHoldWholeExperts) {
  EXPECT_EQ(deal_experts(5, 2, 4, 0), (ExpertShard{{0, 3}, 2, 0}));
  EXPECT_EQ(deal_experts(5, 2, 4, 1), (ExpertShard{{0, 3}, 2, 1}));
  EXPECT_EQ(deal_experts(5, 2, 4, 2), (ExpertShard{{3, 5}, 2, 0}));
  EXPECT_EQ(deal_experts(5, 2, 4, 3), (ExpertShard{{3, 5}, 2, 1}));
  EXPECT_EQ(deal_experts(5, 1, 2, 1), (ExpertShard{{0, 5}, 2, 1}));
  EXPECT_EQ(deal_experts(5, 2, 2, 1), (ExpertShard{{3, 5}, 1, 0}));
}

TEST(Layout, EveryExpertIsOnAllRanksOfOneGroup) {
  for (const std::int64_t experts : {5, 8, 12, 128}) {
    for (const auto& [groups, ranks] :
         {std::tuple(1, 1), std::tuple(1, 3), std::tuple(2, 2), std::tuple(2, 6), std::tuple(3, 3),
          std::tuple(4, 8), std::tuple(5, 5)}) {
      std::vector<int> holders(static_cast<std::size_t>(experts));
      for (int rank = 0; rank < ranks; ++rank) {
        const ExpertShard own = deal_experts(experts, groups, ranks, rank);
        EXPECT_EQ(own.ranks, ranks / groups);
        EXPECT_EQ(own.rank, rank % own.ranks);
        EXPECT_FALSE(own.experts.empty());
        for (std::int64_t e = own.experts.begin; e < own.experts.end; ++e)
          ++holders[static_cast<std::size_t>(e)];
      }
      EXPECT_THAT(holders, testing::Each(ranks / groups)) << experts << " on " << groups;
    }
  }
}

}  // namespace
}  // namespace motley::dist
