#include "model/shard.h"

#include <gtest/gtest.h>

namespace motley::model {
namespace {

Config config_of(std::int64_t dense, std::int64_t heads) {
  Config config;
  config.vocabulary = 512;
  config.dense_intermediate = dense;
  config.moe_layers = {false};
  config.attention.heads = heads;
  config.attention.kv_heads = 1;
  return config;
}

// Every rank computes the same, whatever it has itself.
TEST(Shard, UnitsDivideWhereEveryRankBegins) {
  for (int rank = 0; rank < 4; ++rank) {
    const Shard even =
        shard_of(config_of(768, 8), {.count = 4, .rank = rank, .in_pieces = true}).value();
    EXPECT_EQ(even.dense.begin, 192 * rank);
    EXPECT_EQ(even.units.dense, 192);
    EXPECT_EQ(even.units.heads, 2);
    // 6 pieces of 32 are 2, 2, 1, 1; 6 heads, too.
    const Shard uneven =
        shard_of(config_of(192, 6), {.count = 4, .rank = rank, .in_pieces = true}).value();
    EXPECT_EQ(uneven.units.dense, 32);
    EXPECT_EQ(uneven.units.heads, 1);
  }
  EXPECT_EQ(shard_of(config_of(768, 8), {.count = 1}).value().units.dense, 0);
}

}  // namespace
}  // namespace motley::model
