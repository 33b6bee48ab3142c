#include "lora/pages/pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/test_waits.h"
#include "lora/pages/test_pool.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

namespace motley::lora {
namespace {

using test::holds;
using test::make_adapter;

tensor::CpuDevice& device() {
  static tensor::CpuDevice cpu({.threads = 1});
  return cpu;
}

std::unique_ptr<Pool> make_pool(std::uint64_t pages, DType dtype = DType::f32,
                                std::uint64_t page_bytes = 1024) {
  return Pool::create(device(), {pages * page_bytes, page_bytes, dtype}).value();
}

constexpr Pool::Options small_pages{.page_bytes = 1024};

TEST(Pool, HoldsWhatWasLoaded) {
  const auto pool = make_pool(64);
  const Adapter adapter = make_adapter(3, 17, 9, 1);
  const Handle handle = pool->load("a", adapter).value();
  EXPECT_TRUE(holds(*handle, adapter));
  EXPECT_EQ(handle->name(), "a");
  EXPECT_EQ(handle->version(), adapter.version);
  EXPECT_EQ(handle->find({0, Projection::q})->factors[0].split, 8);
  EXPECT_EQ(handle->find({0, Projection::k}), nullptr);
  EXPECT_EQ(handle->find({5, Projection::k}), nullptr);
  EXPECT_EQ(pool->state("a"), State::ready);
  EXPECT_EQ(pool->state("b"), State::absent);
  EXPECT_EQ(pool->usage().pinned_adapters, 1);
  EXPECT_EQ(pool->usage().pages - pool->usage().free_pages, Pool::pages_of(adapter, small_pages));
  const auto entries = pool->entries();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].pins, 1);
}

TEST(Pool, RoomThatIsFreeEvictsNone) {
  const Adapter adapter = make_adapter(3, 17, 9, 1);
  const auto pool = make_pool(Pool::pages_of(adapter, small_pages), DType::f32);
  ASSERT_TRUE(pool->load("idle", adapter, Pool::Room::free).ok());
  const auto refused = pool->load("other", make_adapter(3, 17, 9, 2), Pool::Room::free);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(pool->state("idle"), State::ready);
  EXPECT_TRUE(pool->load("other", make_adapter(3, 17, 9, 2)).ok());
  EXPECT_EQ(pool->state("idle"), State::absent);
}

TEST(Pool, RoundsToBf16) {
  const auto pool = make_pool(64, DType::bf16);
  const Adapter adapter = make_adapter(2, 5, 3, 1);
  const Handle handle = pool->load("a", adapter).value();
  const kernels::FactorEntry& factor = handle->find({0, Projection::q})->factors[0];
  const auto* const a = static_cast<const bf16*>(factor.a);
  for (std::int64_t i = 0; i < 10; ++i)
    EXPECT_EQ(a[i].bits, bf16::from(adapter.matrices[0].values[static_cast<std::size_t>(i)]).bits);
  EXPECT_EQ(a[10].bits, 0);
}

TEST(Pool, SmallBlobsShareAPageAndLargeOnesTakeARun) {
  EXPECT_EQ(Pool::pages_of(make_adapter(1, 8, 8, 1), small_pages), 1U);  // 2 x 256 bytes
  EXPECT_EQ(Pool::pages_of(make_adapter(8, 100, 4, 1), small_pages),
            4U);  // 3200 and 128 in its tail
  EXPECT_EQ(Pool::pages_of(make_adapter(8, 100, 100, 1), small_pages), 8U);
}

TEST(Pool, EvictsTheAdapterUsedLongestAgo) {
  const auto pool = make_pool(3);
  for (const char* name : {"a", "b", "c"})
    ASSERT_TRUE(pool->load(name, make_adapter(1, 8, 8, 1)).ok());
  ASSERT_TRUE(pool->acquire("a").ok());
  const Handle pinned = pool->acquire("b").value();
  ASSERT_TRUE(pool->load("d", make_adapter(1, 8, 8, 2)).ok());
  EXPECT_EQ(pool->state("c"), State::absent);
  ASSERT_TRUE(pool->load("e", make_adapter(1, 8, 8, 3)).ok());
  EXPECT_EQ(pool->state("a"), State::absent);
  EXPECT_EQ(pool->state("b"), State::ready);
  EXPECT_EQ(pool->usage().evictions, 2U);
}

TEST(Pool, SaysWhatIsInUseWhenThereIsNoRoom) {
  const auto pool = make_pool(3);
  const Handle a = pool->load("a", make_adapter(1, 8, 8, 1)).value();
  ASSERT_TRUE(pool->load("b", make_adapter(1, 8, 8, 1)).ok());
  const auto large = pool->load("large", make_adapter(8, 64, 8, 1));
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code(), ErrorCode::out_of_memory);
  const std::string message = large.error().message();
  EXPECT_NE(message.find("'large' takes 3.0 KiB"), std::string::npos) << message;
  EXPECT_NE(message.find("of 3.0 KiB for adapters 1.0 KiB are in use by 1 adapter"),
            std::string::npos)
      << message;
  EXPECT_EQ(pool->state("b"), State::ready) << "evicted in vain";
}

TEST(Pool, SameContentIsNotLoadedTwice) {
  const auto pool = make_pool(8);
  const Adapter adapter = make_adapter(1, 8, 8, 1);
  const Handle first = pool->load("a", adapter).value();
  const Handle second = pool->load("a", adapter).value();
  EXPECT_EQ(first.get(), second.get());
  EXPECT_EQ(pool->usage().adapters, 1);
}

TEST(Pool, ReplacementLeavesOldHandlesTheirContent) {
  const auto pool = make_pool(8);
  const Adapter before = make_adapter(1, 8, 8, 1);
  const Adapter after = make_adapter(2, 8, 8, 2);
  std::optional<Handle> old = pool->load("a", before).value();
  const Handle now = pool->load("a", after).value();
  EXPECT_TRUE(holds(**old, before));
  EXPECT_TRUE(holds(*now, after));
  EXPECT_EQ(pool->acquire("a").value().get(), now.get());
  EXPECT_EQ(pool->entries().size(), 1U);
  EXPECT_EQ(pool->usage().adapters, 2);
  old.reset();
  EXPECT_EQ(pool->usage().adapters, 1);
  pool->check_invariants();
}

TEST(Pool, UnloadWaitsForTheLastHandle) {
  const auto pool = make_pool(8);
  std::optional<Handle> handle = pool->load("a", make_adapter(1, 8, 8, 1)).value();
  std::atomic<bool> done{false};
  std::thread unloader([&] {
    pool->unload("a").value();
    done = true;
  });
  motley::test::wait_for("the adapter unloads", [&] { return pool->state("a") == State::closing; });
  EXPECT_FALSE(done);
  EXPECT_EQ(pool->acquire("a").error().code(), ErrorCode::busy);
  EXPECT_EQ(pool->load("a", make_adapter(1, 8, 8, 2)).error().code(), ErrorCode::busy);
  EXPECT_EQ(pool->unload("a").error().code(), ErrorCode::busy);
  Handle copy = *handle;
  handle.reset();
  EXPECT_EQ(pool->state("a"), State::closing);
  copy = Handle();
  unloader.join();
  EXPECT_EQ(pool->state("a"), State::absent);
  EXPECT_EQ(pool->usage().free_pages, 8U);
  EXPECT_EQ(pool->unload("a").error().code(), ErrorCode::not_found);
  EXPECT_EQ(pool->acquire("a").error().code(), ErrorCode::not_found);
}

#ifdef MOTLEY_DEBUG
TEST(Pool, FreedPagesAreNaN) {
  const auto pool = make_pool(2);
  std::optional<Handle> handle = pool->load("a", make_adapter(1, 8, 8, 1)).value();
  const auto* const a =
      static_cast<const float*>((*handle)->find({0, Projection::q})->factors[0].a);
  EXPECT_FALSE(std::isnan(a[0]));
  handle.reset();
  pool->unload("a").value();
  EXPECT_TRUE(std::isnan(a[0]));
}
#endif

// Host memory, pinned memory, and a device whose streams run late.
enum class Place : std::uint8_t { host, pinned, device };

class PoolInArena : public testing::TestWithParam<Place> {
 protected:
  std::unique_ptr<Pool> make(std::uint64_t pages) {
    const Pool::Options options{.bytes = pages * 1024,
                                .page_bytes = 1024,
                                .poison = GetParam() != Place::host,
                                .spare_bytes = 0,
                                .staging = {.piece_bytes = PageWriter::max_bytes, .pieces = 2}};
    if (GetParam() == Place::host) return Pool::create(device(), options).value();
    script_.set_pinned_pieces(4096);
    if (GetParam() == Place::pinned) return Pool::create(script_.pinned_memory(), options).value();
    return Pool::create(script_, options).value();
  }

 private:
  tensor::test::ScriptedDevice script_{7};
};

INSTANTIATE_TEST_SUITE_P(All, PoolInArena,
                         testing::Values(Place::host, Place::pinned, Place::device),
                         [](const auto& arena) -> std::string {
                           if (arena.param == Place::host) return "host";
                           return arena.param == Place::pinned ? "pinned" : "device";
                         });

// 10^5 random loads, uses, replacements, unloads and evictions: each page belongs to at most one
// adapter, pinned contents stay, and nothing leaks.
TEST_P(PoolInArena, RandomLifeNeitherOverlapsNorLeaks) {
  std::mt19937 random(11);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  const auto pool = make(40);
  std::vector<Adapter> adapters;
  for (std::uint32_t i = 0; i < 30; ++i)
    adapters.push_back(make_adapter(pick(1, 17), pick(1, 60), pick(1, 60), i));
  struct Held {
    Handle handle;
    const Adapter* content;
  };
  std::vector<Held> held;
  int loads = 0;
  int refusals = 0;
  for (int step = 0; step < 100'000; ++step) {
    const std::string name = cat("adapter-", pick(0, 11));
    const int action = pick(0, 9);
    if (action < 5) {
      const Adapter& adapter = adapters[static_cast<std::size_t>(pick(0, 29))];
      auto loaded = pool->load(name, adapter);
      if (loaded.ok()) {
        ++loads;
        ASSERT_TRUE(holds(**loaded, adapter));
        if (pick(0, 1) == 0) held.push_back({*std::move(loaded), &adapter});
      } else {
        ++refusals;
        ASSERT_EQ(loaded.error().code(), ErrorCode::out_of_memory) << loaded.error().message();
      }
    } else if (action < 7) {
      auto acquired = pool->acquire(name);
      ASSERT_EQ(acquired.ok(), pool->state(name) == State::ready);
    } else if (action == 7) {
      const bool pinned =
          std::ranges::any_of(held, [&](const Held& one) { return one.handle->name() == name; });
      if (!pinned) static_cast<void>(pool->unload(name).ok());
    }
    while (!held.empty() && (held.size() > 6 || pick(0, 2) == 0)) {
      const auto at = static_cast<std::size_t>(pick(0, static_cast<int>(held.size()) - 1));
      ASSERT_TRUE(holds(*held[at].handle, *held[at].content)) << "in step " << step;
      std::swap(held[at], held.back());
      held.pop_back();
    }
    if (step % 16 == 0) pool->check_invariants();
  }
  held.clear();
  for (const auto& entry : pool->entries()) ASSERT_TRUE(pool->unload(entry.name).ok());
  pool->check_invariants();
  EXPECT_EQ(pool->usage().free_pages, 40U);
  EXPECT_EQ(pool->usage().adapters, 0);
  EXPECT_GT(loads, 10'000);
  EXPECT_GT(refusals, 10);
  EXPECT_GT(pool->usage().evictions, 1000U);
}

TEST_P(PoolInArena, ThreadsLoadUseAndUnloadAtOnce) {
  const auto pool = make(24);
  std::vector<Adapter> adapters;
  for (std::uint32_t i = 0; i < 8; ++i)
    adapters.push_back(make_adapter(static_cast<int>(1 + i), 20, 30, i));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int step = 0; step < 2000; ++step) {
        const std::size_t at = random() % adapters.size();
        const std::string name = cat("adapter-", random() % 5);
        switch (random() % 4) {
          case 0:
            static_cast<void>(pool->unload(name).ok());
            break;
          case 1: {
            auto handle = pool->acquire(name);
            if (!handle.ok()) break;
            const Handle copy = *handle;  // NOLINT(performance-unnecessary-copy-initialization)
            bool any = false;
            for (const Adapter& adapter : adapters) {
              if (adapter.version == copy->version()) any = holds(*copy, adapter);
            }
            if (!any) ++wrong;
            break;
          }
          default: {
            auto handle = pool->load(name, adapters[at]);
            if (handle.ok() && !holds(**handle, adapters[at])) ++wrong;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  pool->check_invariants();
  for (const auto& entry : pool->entries()) pool->unload(entry.name).value();
  EXPECT_EQ(pool->usage().free_pages, 24U);
}

TEST(Pool, RefusesAnArenaWithoutAPage) {
  const auto pool = Pool::create(device(), {.bytes = 100, .page_bytes = 1024});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace motley::lora
