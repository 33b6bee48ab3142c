#include <atomic>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/test_waits.h"
#include "engine/residency/pool_store.h"
#include "engine/residency/residency.h"
#include "lora/pages/test_rank_pools.h"
#include "lora/test_base.h"

// A store over the devices of several ranks with the host behind them.
namespace motley::engine {
namespace {

using lora::test::RankPools;
using Task = AdapterStore::Task;

class StoreOfRanks : public testing::TestWithParam<int> {
 protected:
  // Each device holds one adapter with its directory, the host twelve and more.
  explicit StoreOfRanks(std::uint64_t pages = 14)
      : pools_({.ranks = GetParam(), .pages = pages, .host_pages = 128}) {
    const auto source = [this](const AdapterSpec& spec, const lora::BaseView&) {
      ++reads_;
      const std::string number = spec.path.empty() ? spec.name : spec.path.string();
      return Result<lora::Adapter>(adapter(std::stoi(number)));
    };
    store_ = std::make_unique<PoolStore>(PoolStore::Options{.base = &base_,
                                                            .pool = &pools_.pool(),
                                                            .host_pool = &pools_.host(),
                                                            .source = source,
                                                            .loaders = 1});
    store_->set_wake([this] { monitor_.change([this] { done_ = true; }); });
  }
  ~StoreOfRanks() override { store_->set_wake({}); }

  static lora::Adapter adapter(int number) {
    return RankPools::adapter(static_cast<std::uint32_t>(number));
  }
  void wait_for_job() {
    monitor_.wait("the job is done", [this] { return done_; });
    monitor_.change([this] { done_ = false; });
  }
  AdapterStore::Done run(Task task, int number) {
    store_->begin(
        {.task = task, .spec = {.name = cat(number)}, .version = adapter(number).version});
    wait_for_job();
    return store_->take_done().value();
  }
  void place(int number) {
    const AdapterStore::Done done = run(Task::place, number);
    ASSERT_FALSE(done.error) << done.error->message();
    EXPECT_TRUE(pools_.hold(done.handle, adapter(number))) << "adapter " << number;
  }

  RankPools pools_;
  lora::test::FakeBase base_;
  std::atomic<int> reads_{0};
  motley::test::Monitor monitor_;
  bool done_ = false;
  std::unique_ptr<PoolStore> store_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, StoreOfRanks, testing::Values(1, 2, 3),
                         [](const auto& ranks) { return cat("of", ranks.param); });

TEST_P(StoreOfRanks, WhatTheHostKeepsIsNotReadAgain) {
  for (int number = 0; number < 4; ++number) run(Task::read, number);
  EXPECT_EQ(reads_, 4);
  for (const int number : {0, 1, 2, 3, 0, 2, 1}) place(number);
  EXPECT_EQ(reads_, 4);
  EXPECT_GT(store_->usage().evictions, 4U);
}

TEST_P(StoreOfRanks, CountsTheHostsMemoryOfAllRanks) {
  EXPECT_EQ(store_->usage().host_bytes, 0U);
  EXPECT_EQ(store_->usage().host_limit_bytes,
            static_cast<std::uint64_t>(pools_.ranks()) * 128 * RankPools::page);
  run(Task::read, 0);
  std::uint64_t committed = 0;
  for (int rank = 0; rank < pools_.ranks(); ++rank) {
    EXPECT_GT(pools_.host(rank).usage().committed_bytes, 0U);
    committed += pools_.host(rank).usage().committed_bytes;
  }
  EXPECT_EQ(store_->usage().host_bytes, committed);
}

TEST_P(StoreOfRanks, AFailedCopyOnOneRankIsThePlacesErrorAndTheNextOneWorks) {
  for (int number = 0; number < 2; ++number) run(Task::read, number);
  for (int faulty = 0; faulty < pools_.ranks(); ++faulty) {
    place(1);
    pools_.device(faulty).fail_after(0);
    const AdapterStore::Done failed = run(Task::place, 0);
    pools_.device(faulty).fail_after(std::numeric_limits<int>::max());
    EXPECT_TRUE(failed.error.has_value());
    EXPECT_FALSE(failed.handle);
    for (int rank = 0; rank < pools_.ranks(); ++rank)
      EXPECT_EQ(pools_.pool(rank).state("0"), lora::State::absent) << "rank " << rank;
    pools_.check_invariants();
    place(0);
  }
  EXPECT_EQ(reads_, 2);
}

// Pages of an adapter without requests do not count as in use, on any rank.
TEST_P(StoreOfRanks, IdleAdaptersAreNotInUse) {
  place(0);
  EXPECT_EQ(store_->usage().pinned_pages, 0U);
  EXPECT_LT(store_->usage().free_pages, store_->usage().pages);
  const lora::Handle handle = store_->acquire("0", adapter(0).version);
  EXPECT_GT(store_->usage().pinned_pages, 0U);
}

// One name whose content is replaced, on devices with pages for both contents.
class ReplacedOnRanks : public StoreOfRanks {
 protected:
  ReplacedOnRanks() : StoreOfRanks(64) {}

  Result<void> replace(int number) {
    std::optional<Result<void>> answer;
    residency_.load({.name = "a", .path = cat(number)}, true,
                    [&answer](Result<void> result) { answer = std::move(result); });
    while (!answer) {
      wait_for_job();
      residency_.collect();
    }
    return *std::move(answer);
  }
  // The replacement fails on this rank alone.
  void fail_to_replace(int number, int rank) {
    pools_.device(rank).fail_after(0);
    const Result<void> failed = replace(number);
    pools_.device(rank).fail_after(std::numeric_limits<int>::max());
    ASSERT_FALSE(failed.ok()) << "rank " << rank;
    EXPECT_NE(failed.error().message().find("the script says so"), std::string::npos)
        << failed.error().message();
    pools_.check_invariants();
  }
  AdapterEntry& entry() { return *residency_.find("a"); }
  Claim claim() {
    AdapterEntry* const named = &entry();
    Claim claim = residency_.claim(std::span(&named, 1)).value();
    while (named->is<AdapterEntry::Loading>()) {
      wait_for_job();
      residency_.collect();
    }
    return claim;
  }
  // All ranks have this content.
  void expect_content(int number) {
    ASSERT_NE(entry().handle(), nullptr);
    EXPECT_TRUE(pools_.hold(*entry().handle(), adapter(number))) << "adapter " << number;
    EXPECT_EQ(entry().version, adapter(number).version);
  }

  Residency residency_{store_.get(), {}};
};
INSTANTIATE_TEST_SUITE_P(Ranks, ReplacedOnRanks, testing::Values(1, 2, 3),
                         [](const auto& ranks) { return cat("of", ranks.param); });

TEST_P(ReplacedOnRanks, AFailureOnOneRankLeavesTheOldContentToRequestsThatCome) {
  ASSERT_TRUE(replace(1).ok());
  for (int faulty = 0; faulty < pools_.ranks(); ++faulty) {
    fail_to_replace(2, faulty);
    const Claim request = claim();
    expect_content(1);
  }
  ASSERT_TRUE(replace(2).ok());
  const Claim request = claim();
  expect_content(2);
}

TEST_P(ReplacedOnRanks, AFailureOnOneRankLeavesTheOldContentToRequestsThatRun) {
  ASSERT_TRUE(replace(1).ok());
  const Claim request = claim();
  for (int faulty = 0; faulty < pools_.ranks(); ++faulty) {
    fail_to_replace(2, faulty);
    expect_content(1);
  }
  ASSERT_TRUE(replace(2).ok());
  while (entry().is<AdapterEntry::Loading>()) {
    wait_for_job();
    residency_.collect();
  }
  expect_content(2);
}

}  // namespace
}  // namespace motley::engine
