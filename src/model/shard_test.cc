#include "model/shard.h"

#include <gtest/gtest.h>

namespace motley::model {
namespace {

Config config_of(std::int64_t dense, std::int64_t heads) {
  Config config;
  config.vocabulary = 512;
  config.dense_intermediate = dense;
  config.moe_layers = {false};
  config.mixers = {GroupedConfig{.heads = heads, .kv_heads = 1}};
  return config;
}

// Every rank computes the same, whatever it has itself.
TEST(Shard, UnitsDivideWhereEveryRankBegins) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto unit_of_heads = [](const Config& config, const Shard& shard) {
      return heads_of(std::get<GroupedConfig>(config.mixers.front()), shard).unit;
    };
    const Config eight = config_of(768, 8);
    const Shard even = shard_of(eight, {.count = 4, .rank = rank, .in_pieces = true}).value();
    EXPECT_EQ(even.dense.begin, 192 * rank);
    EXPECT_EQ(even.units.dense, 192);
    EXPECT_EQ(unit_of_heads(eight, even), 2);
    // 6 pieces of 32 are 2, 2, 1, 1; 6 heads, too.
    const Config six = config_of(192, 6);
    const Shard uneven = shard_of(six, {.count = 4, .rank = rank, .in_pieces = true}).value();
    EXPECT_EQ(uneven.units.dense, 32);
    EXPECT_EQ(unit_of_heads(six, uneven), 1);
  }
  EXPECT_EQ(shard_of(config_of(768, 8), {.count = 1}).value().units.dense, 0);
}

// Layers may differ in their heads: each kind is dealt by itself, and named once.
TEST(Shard, MixersHaveHeadsOfTheirOwn) {
  Config config = config_of(768, 8);
  config.mixers = {GroupedConfig{.heads = 8, .kv_heads = 4},
                   GroupedConfig{.heads = 8, .kv_heads = 4},
                   GroupedConfig{.heads = 2, .kv_heads = 1}, LatentConfig{.heads = 8}};
  const Shard shard = shard_of(config, {.count = 4, .rank = 1}).value();
  EXPECT_EQ(describe(shard, config),
            "heads 2-3 of 8, KV heads 1 of 4, heads 1 of 2, KV heads 0 of 1, dense columns "
            "192-383 of 768, tokens 128-255 of 512");
  config.mixers.emplace_back(DeltaNetConfig{.key_heads = 2, .value_heads = 8});
  EXPECT_EQ(describe(shard, config),
            "heads 2-3 of 8, KV heads 1 of 4, heads 1 of 2, KV heads 0 of 1, value heads 2-3 of 8, "
            "key heads 0 of 2, dense columns 192-383 of 768, tokens 128-255 of 512");
  EXPECT_TRUE(has_heads(config, shard));
  EXPECT_FALSE(has_heads(config, shard_of(config, {.count = 4, .rank = 2}).value()))
      << "two heads for four ranks";
}

}  // namespace
}  // namespace motley::model
