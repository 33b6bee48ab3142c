#include "dist/layout.h"

#include <tuple>

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

}  // namespace
}  // namespace motley::dist
