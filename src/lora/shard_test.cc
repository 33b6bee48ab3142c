#include "lora/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lora/pages/pool.h"
#include "tensor/device/cpu_device.h"

namespace motley::lora {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Matrix counting(std::int64_t rows, std::int64_t columns, float first) {
  Matrix matrix{rows, columns, {}};
  for (std::int64_t i = 0; i < rows * columns; ++i)
    matrix.values.push_back(first + static_cast<float>(i));
  return matrix;
}

constexpr Site q{0, Projection::q};
constexpr Site o{0, Projection::o};
constexpr Site router{0, Projection::router};

// q: 2 -> 4, o: 4 -> 2, router: 2 -> 3, all with rank 1; q and the router share A.
Adapter example() {
  Adapter adapter;
  adapter.version = {1, 2};
  adapter.matrices = {counting(1, 2, 0),  counting(4, 1, 10), counting(1, 4, 20),
                      counting(2, 1, 30), counting(3, 1, 40), counting(1, 2, 50),
                      counting(1, 4, 60)};
  const auto site = [](Site at, std::int64_t in, std::int64_t out, int a, int b) {
    SiteDelta delta;
    delta.site = at;
    delta.in = in;
    delta.out = out;
    delta.factors = {{.a = a, .b = b, .rank = 1, .scale = 1}};
    return delta;
  };
  adapter.sites = {site(q, 2, 4, 0, 1), site(o, 4, 2, 2, 3), site(router, 2, 3, 0, 4)};
  adapter.sites[0].gain = 6;
  adapter.sites[1].lora_bias = 5;
  adapter.largest_rank = 1;
  return adapter;
}

std::vector<SiteShard> shards(int rank) {
  const dist::Range own = rank == 0 ? dist::Range{0, 3} : dist::Range{3, 4};
  return {{.site = q, .out = own, .in = {0, 2}},
          {.site = o, .out = {0, 2}, .in = own, .has_biases = rank == 0}};
}

const std::vector<float>& values(const Adapter& adapter, int index) {
  return adapter.matrices[static_cast<std::size_t>(index)].values;
}

TEST(Shard, OutputsCutBAndInputsCutA) {
  const Adapter first = shard_of(example(), shards(0));
  const Adapter second = shard_of(example(), shards(1));
  EXPECT_THAT(values(first, first.find(q)->factors[0].b), ElementsAre(10, 11, 12));
  EXPECT_THAT(values(second, second.find(q)->factors[0].b), ElementsAre(13));
  EXPECT_THAT(values(first, first.find(q)->gain), ElementsAre(60, 61, 62));
  EXPECT_THAT(values(first, first.find(o)->factors[0].a), ElementsAre(20, 21, 22));
  EXPECT_THAT(values(second, second.find(o)->factors[0].a), ElementsAre(23));
  EXPECT_THAT(values(second, second.find(o)->factors[0].b), ElementsAre(30, 31));
  EXPECT_EQ(second.find(q)->out, 1);
  EXPECT_EQ(second.find(o)->in, 1);
  EXPECT_EQ(first.version, example().version);
}

TEST(Shard, ABiasOfASumOverRanksIsAddedOnce) {
  EXPECT_GE(shard_of(example(), shards(0)).find(o)->lora_bias, 0);
  EXPECT_EQ(shard_of(example(), shards(1)).find(o)->lora_bias, -1);
}

TEST(Shard, SharedFactorsStaySharedAndOtherSitesWhole) {
  const Adapter first = shard_of(example(), shards(0));
  EXPECT_EQ(first.find(q)->factors[0].a, first.find(router)->factors[0].a);
  EXPECT_THAT(values(first, first.find(router)->factors[0].b), ElementsAre(40, 41, 42));
}

TEST(Shard, ARankWithoutAPartHasNoSite) {
  std::vector<SiteShard> none = shards(1);
  none[0].out = {4, 4};
  EXPECT_EQ(shard_of(example(), none).find(q), nullptr);
}

// Two ranks' pools with room for `pages` pages each.
struct Pools {
  explicit Pools(std::uint64_t pages, std::uint64_t second_pages)
      : first_shards(shards(0)), second_shards(shards(1)) {
    second =
        Pool::create(device,
                     {.bytes = second_pages * page, .page_bytes = page, .shards = second_shards})
            .value();
    first = Pool::create(device, {.bytes = pages * page,
                                  .page_bytes = page,
                                  .shards = first_shards,
                                  .other_ranks = {second.get()}})
                .value();
  }

  static constexpr std::uint64_t page = 1024;
  std::vector<SiteShard> first_shards;
  std::vector<SiteShard> second_shards;
  tensor::CpuDevice device{{.threads = 1}};
  std::unique_ptr<Pool> second;
  std::unique_ptr<Pool> first;
};

Adapter version(std::uint64_t number) {
  Adapter adapter = example();
  adapter.version = {0, number};
  return adapter;
}

// Gates of four experts, 2 -> 3, of which the third has no factor and all share A.
constexpr Site gate{0, Projection::expert_gate};
Adapter of_experts() {
  Adapter adapter;
  adapter.version = {3, 4};
  adapter.matrices = {counting(1, 2, 0), counting(3, 1, 10), counting(3, 1, 20),
                      counting(3, 1, 30)};
  SiteDelta delta;
  delta.site = gate;
  delta.in = 2;
  delta.out = 3;
  const auto factors = [](int b) { return Factors{.a = 0, .b = b, .rank = 1, .scale = 1}; };
  delta.factors = {factors(1), factors(2), Factors(), factors(3)};
  adapter.sites = {delta};
  adapter.largest_rank = 1;
  return adapter;
}

SiteShard of_gates(dist::Range experts, dist::Range out = {0, 3}) {
  return {.site = gate, .out = out, .in = {0, 2}, .experts = experts};
}

TEST(Shard, ARankHasItsExpertsOnly) {
  const Adapter first = shard_of(of_experts(), std::vector{of_gates({0, 2})});
  const Adapter second = shard_of(of_experts(), std::vector{of_gates({2, 4})});
  ASSERT_EQ(first.find(gate)->factors.size(), 2U);
  EXPECT_THAT(values(first, first.find(gate)->factors[1].b), ElementsAre(20, 21, 22));
  ASSERT_EQ(second.find(gate)->factors.size(), 2U);
  EXPECT_FALSE(second.find(gate)->factors[0].present());
  EXPECT_THAT(values(second, second.find(gate)->factors[1].b), ElementsAre(30, 31, 32));
}

TEST(Shard, AFactorThatExpertsShareIsOnceOnEveryRankThatReadsIt) {
  const Adapter first = shard_of(of_experts(), std::vector{of_gates({0, 2})});
  const Adapter second = shard_of(of_experts(), std::vector{of_gates({2, 4})});
  EXPECT_EQ(first.matrices.size(), 3U);
  EXPECT_EQ(first.find(gate)->factors[0].a, first.find(gate)->factors[1].a);
  EXPECT_EQ(second.matrices.size(), 2U);
  EXPECT_THAT(values(second, second.find(gate)->factors[1].a), ElementsAre(0, 1));
}

TEST(Shard, ExpertsOfAGroupAreCutAsWell) {
  const Adapter own = shard_of(of_experts(), std::vector{of_gates({0, 2}, {1, 3})});
  EXPECT_EQ(own.find(gate)->out, 2);
  EXPECT_THAT(values(own, own.find(gate)->factors[1].b), ElementsAre(21, 22));
}

TEST(Shard, ARankWhoseExpertsAreNotAdaptedHasTheSiteWithoutFactors) {
  const Adapter own = shard_of(of_experts(), std::vector{of_gates({2, 3})});
  ASSERT_NE(own.find(gate), nullptr);
  EXPECT_FALSE(own.find(gate)->factors[0].present());
  EXPECT_TRUE(own.matrices.empty());
}

TEST(ShardedPool, DirectoriesNumberTheRanksExperts) {
  const std::vector<SiteShard> shards{of_gates({2, 4})};
  tensor::CpuDevice device{{.threads = 1}};
  const auto pool = Pool::create(device, {.bytes = 1 << 16,
                                          .page_bytes = 1 << 14,
                                          .dtype = DType::bf16,
                                          .experts = Layout::packed,
                                          .directory = true,
                                          .shards = shards})
                        .value();
  const Handle handle = pool->load("a", of_experts()).value();
  const kernels::AdapterTerm& directory = handle->directory();
  EXPECT_EQ(directory.experts, 2);
  EXPECT_EQ(directory.expert_factors[0].a, nullptr);
  EXPECT_EQ(directory.expert_factors[0].rank, 0);
  EXPECT_NE(directory.expert_factors[1].a, nullptr);
  EXPECT_GT(directory.expert_factors[1].rank, 0);
}

TEST(ShardedPool, AnAdapterIsThereOnRanksThatHaveNoPartOfIt) {
  const std::vector<SiteShard> few{of_gates({0, 3})};
  const std::vector<SiteShard> others{of_gates({2, 3})};
  tensor::CpuDevice device{{.threads = 1}};
  const auto second =
      Pool::create(device, {.bytes = 1024, .page_bytes = 1024, .shards = others}).value();
  const auto first =
      Pool::create(
          device, {.bytes = 1024, .page_bytes = 1024, .shards = few, .other_ranks = {second.get()}})
          .value();
  const Handle handle = first->load("a", of_experts()).value();
  EXPECT_TRUE(handle->shard(1).site_set() == handle->site_set());
  EXPECT_EQ(second->usage().free_pages, 1U);
  EXPECT_EQ(second->usage().pinned_adapters, 1);
  second->check_invariants();
}

TEST(ShardedPool, AnAdapterIsThereOnAllRanks) {
  Pools pools(4, 4);
  const Handle handle = pools.first->load("a", version(1)).value();
  EXPECT_EQ(handle->shard(1).pool(), pools.second.get());
  EXPECT_EQ(handle->shard(1).find(q)->out, 1);
  EXPECT_EQ(handle->find(q)->out, 3);
  EXPECT_EQ(pools.second->usage().pinned_adapters, 1);
}

TEST(ShardedPool, EvictsOnAllRanks) {
  Pools pools(4, 4);
  const std::uint64_t each = Pool::pages_of(version(1), pools.first->options());
  ASSERT_EQ(each, 1U);
  for (std::uint64_t i = 0; i < 20; ++i)
    ASSERT_TRUE(pools.first->load(std::string(1, static_cast<char>('a' + i)), version(i)).ok());
  EXPECT_EQ(pools.first->usage().adapters, 4);
  EXPECT_EQ(pools.second->usage().adapters, 4);
  EXPECT_EQ(pools.second->usage().pinned_adapters, 4);
  EXPECT_FALSE(pools.first->acquire("a").ok());
}

TEST(ShardedPool, ARankWithLessRoomMakesOthersEvict) {
  Pools pools(8, 3);
  for (std::uint64_t i = 0; i < 6; ++i)
    ASSERT_TRUE(pools.first->load(std::string(1, static_cast<char>('a' + i)), version(i)).ok());
  EXPECT_EQ(pools.first->usage().adapters, 3);
}

TEST(ShardedPool, AnAdapterThatDoesNotFitOnOneRankIsOnNone) {
  Pools pools(8, 1);
  const Handle pinned = pools.first->load("a", version(1)).value();
  const auto refused = pools.first->load("b", version(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_THAT(refused.error().message(), HasSubstr("rank 1"));
  EXPECT_EQ(pools.first->state("b"), State::absent);
  EXPECT_EQ(pools.second->state("b"), State::absent);
  pools.first->check_invariants();
}

// Rank 1 has three of four experts, and room for one expert's factors.
TEST(ShardedPool, AnAdapterThatCanNeverFitOnARankEvictsNothing) {
  const std::vector<SiteShard> few{of_gates({0, 1})};
  const std::vector<SiteShard> many{of_gates({1, 4})};
  constexpr std::uint64_t page = 64;
  tensor::CpuDevice device{{.threads = 1}};
  const auto second =
      Pool::create(device, {.bytes = 4 * page, .page_bytes = page, .shards = many}).value();
  const auto first =
      Pool::create(
          device,
          {.bytes = 64 * page, .page_bytes = page, .shards = few, .other_ranks = {second.get()}})
          .value();
  Adapter small = of_experts();
  small.version = {5, 6};
  small.sites[0].factors[3] = {};
  ASSERT_LE(Pool::pages_of(small, second->options()), 4U);
  ASSERT_GT(Pool::pages_of(of_experts(), second->options()), 4U);
  ASSERT_TRUE(first->load("small", small).ok());
  const auto refused = first->load("large", of_experts());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("rank 1"));
  EXPECT_EQ(first->state("small"), State::ready);
  first->check_invariants();
  second->check_invariants();
}

TEST(ShardedPool, UnloadingGivesPagesBackOnAllRanks) {
  Pools pools(4, 4);
  ASSERT_TRUE(pools.first->load("a", version(1)).ok());
  ASSERT_TRUE(pools.first->unload("a").ok());
  EXPECT_EQ(pools.first->usage().adapters, 0);
  EXPECT_EQ(pools.second->usage().adapters, 0);
  EXPECT_EQ(pools.second->usage().free_pages, 4U);
}

TEST(ShardedPool, RoomOnSomeRanksIsGivenBackWhereTheLastHasNone) {
  Pools pools(8, 8);
  tensor::CpuDevice device{{.threads = 1}};
  const auto small =
      Pool::create(device,
                   {.bytes = Pools::page, .page_bytes = Pools::page, .shards = pools.second_shards})
          .value();
  const auto first = Pool::create(device, {.bytes = 8 * Pools::page,
                                           .page_bytes = Pools::page,
                                           .shards = pools.first_shards,
                                           .other_ranks = {pools.second.get(), small.get()}})
                         .value();
  const Handle pinned = first->load("a", version(1)).value();
  const auto refused = first->load("b", version(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("rank 2"));
  EXPECT_EQ(pools.second->state("b"), State::absent);
  EXPECT_EQ(pools.second->usage().adapters, 1);
}

TEST(ShardedPool, NewContentUnderANameReplacesItOnAllRanks) {
  Pools pools(4, 4);
  Handle old = pools.first->load("a", version(1)).value();
  const Handle fresh = pools.first->load("a", version(2)).value();
  EXPECT_EQ(fresh->shard(1).version(), (ContentVersion{0, 2}));
  EXPECT_EQ(old->shard(1).version(), (ContentVersion{0, 1}));
  old = {};
  EXPECT_EQ(pools.second->usage().adapters, 1);
}

}  // namespace
}  // namespace motley::lora
