#include "lora/pages/memory.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/test_clock.h"
#include "base/test_waits.h"
#include "lora/pages/pool.h"
#include "lora/pages/test_pool.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

// Adapter memory that is committed piece by piece, on a device that fails on request.
namespace motley::lora {
namespace {

using test::holds;
using test::make_adapter;

constexpr std::size_t piece = 8192;
constexpr std::size_t size = std::size_t{2} << 20;

void wait_until_committed(const PageMemory& memory, std::size_t bytes) {
  motley::test::wait_for(cat(bytes, " bytes are committed"),
                         [&] { return memory.committed() >= bytes; });
}
// PageMemory::wait_for() has no bound.
void wait_for_bytes(PageMemory& memory, std::size_t bytes) {
  motley::test::call_within_bound(cat(bytes, " bytes are committed, or all there are"),
                                  [&] { memory.wait_for(bytes); });
}

class PiecewiseMemory : public testing::Test {
 protected:
  PiecewiseMemory() {
    script_.set_pinned_pieces(piece);
    log::configure({.sink = [this](std::string_view line) { log_ += line; }});
  }
  ~PiecewiseMemory() override { log::configure({}); }

  std::unique_ptr<tensor::Reservation> reserve() {
    return script_.pinned_memory().reserve(size).value();
  }
  // Pages of 1 KiB, 8 per piece.
  std::unique_ptr<Pool> make_pool(std::uint64_t pages, std::uint64_t spare_bytes = 0) {
    return Pool::create(script_.pinned_memory(), {.bytes = pages * 1024,
                                                  .page_bytes = 1024,
                                                  .poison = true,
                                                  .spare_bytes = spare_bytes})
        .value();
  }

  tensor::test::ScriptedDevice script_{3};
  std::string log_;
};

TEST_F(PiecewiseMemory, CommitsNothingBeforeItIsAskedFor) {
  PageMemory memory(reserve(), {});
  EXPECT_EQ(memory.committed(), 0);
  EXPECT_EQ(memory.limit(), size);
  wait_for_bytes(memory, 1);
  EXPECT_EQ(memory.committed(), piece);
  wait_for_bytes(memory, piece + 1);
  EXPECT_EQ(memory.committed(), 2 * piece);
}

TEST_F(PiecewiseMemory, CommitsTheSpareWithoutALoadThatWaits) {
  PageMemory memory(reserve(), {.spare = 3 * piece});
  wait_until_committed(memory, 3 * piece);
  memory.use(piece + 5);
  wait_until_committed(memory, 5 * piece);
  memory.use(10);
  wait_for_bytes(memory, 5 * piece);
  EXPECT_EQ(memory.committed(), 5 * piece);
}

// Page-locking may wait for GPUs whose ranks wait for each other's launches.
TEST_F(PiecewiseMemory, CommitsNothingWhileRanksLaunch) {
  dist::LaunchGate gate;
  std::optional<dist::LaunchGate::Pass> launching(gate.enter(dist::LaunchGate::Way::together));
  PageMemory memory(reserve(), {.spare = piece, .gate = &gate});
  motley::test::wait_for("the commit is at the gate",
                         [&] { return gate.waiting() > 0 || memory.committed() > 0; });
  EXPECT_EQ(gate.waiting(), 1U);
  EXPECT_EQ(memory.committed(), 0);
  launching.reset();
  wait_for_bytes(memory, 1);
  EXPECT_EQ(memory.committed(), piece);
}

TEST_F(PiecewiseMemory, CommitsNoMoreThanThereIs) {
  PageMemory memory(reserve(), {});
  wait_for_bytes(memory, 2 * size);
  EXPECT_EQ(memory.committed(), size);
  memory.use(2 * size);
  EXPECT_EQ(memory.limit(), size);
}

TEST_F(PiecewiseMemory, IsSmallerWhereMemoryRunsOutAndWarnsOnce) {
  script_.fail_after_pieces(3);
  {
    PageMemory memory(reserve(), {});
    wait_for_bytes(memory, 5 * piece);
    EXPECT_EQ(memory.committed(), 3 * piece);
    EXPECT_EQ(memory.limit(), 3 * piece);
    wait_for_bytes(memory, 4 * piece);
    memory.use(4 * piece);
  }
  EXPECT_THAT(log_, testing::HasSubstr(cat("adapters.host_memory_smaller bytes=", 3 * piece,
                                           " wanted_bytes=", size)));
  EXPECT_THAT(log_, testing::HasSubstr("--adapter-host-memory"));
  EXPECT_EQ(log_.find("adapters.host"), log_.rfind("adapters.host"));
}

TEST_F(PiecewiseMemory, GrowsAgainWhenThereIsMemoryAgain) {
  script_.fail_after_pieces(3);
  motley::test::ScriptedClock clock;
  constexpr std::chrono::seconds pause(30);
  PageMemory memory(reserve(), {.retry = pause, .clock = &clock});
  wait_for_bytes(memory, 5 * piece);
  EXPECT_EQ(memory.committed(), 3 * piece);
  script_.fail_after_pieces(1000);
  clock.wait_for_threads(1, TimePoint(pause), "the thread pauses before it tries again");
  EXPECT_EQ(memory.committed(), 3 * piece);
  clock.advance(pause);
  wait_until_committed(memory, 5 * piece);
  wait_for_bytes(memory, 7 * piece);
  EXPECT_EQ(memory.limit(), size);
  EXPECT_EQ(memory.committed(), 7 * piece);
}

TEST_F(PiecewiseMemory, EndsWhileTheSpareIsOnItsWay) {
  for (int i = 0; i < 50; ++i) {
    const auto begin_and_end = [&] {
      const PageMemory memory(reserve(), {.spare = size});
      EXPECT_LE(memory.committed(), size);
    };
    motley::test::call_within_bound("the thread ends though the spare is not committed",
                                    begin_and_end);
  }
}

TEST_F(PiecewiseMemory, GivesAPoolWhatItsAdaptersNeedAndItsSpare) {
  const auto pool = make_pool(64, 2 * piece);
  EXPECT_EQ(pool->usage().pages, 64);
  EXPECT_EQ(pool->usage().free_pages, 64);
  const Adapter adapter = make_adapter(8, 100, 100, 1);  // eight pages
  const Handle handle = pool->load("a", adapter).value();
  EXPECT_TRUE(holds(*handle, adapter));
  EXPECT_EQ(pool->usage().free_pages, 56);
  motley::test::wait_for("the spare is committed",
                         [&] { return pool->usage().committed_bytes >= 3 * piece; });
  ASSERT_TRUE(pool->load("a", adapter).ok());
  EXPECT_EQ(pool->usage().committed_bytes, 3 * piece);
}

// With several adapters loaded, memory is committed before one is evicted.
TEST_F(PiecewiseMemory, IsCommittedBeforeAnAdapterIsEvicted) {
  const auto pool = make_pool(40);
  for (int i = 0; i < 5; ++i) {
    const Handle handle =
        pool->load(cat("adapter-", i), make_adapter(8, 100, 100, static_cast<std::uint32_t>(i)))
            .value();
    EXPECT_EQ(pool->usage().committed_bytes, (static_cast<std::size_t>(i) + 1) * piece);
  }
  EXPECT_EQ(pool->usage().evictions, 0);
  ASSERT_TRUE(pool->load("one more", make_adapter(8, 100, 100, 9)).ok());
  EXPECT_EQ(pool->usage().evictions, 1);
  EXPECT_EQ(pool->usage().committed_bytes, 5 * piece);
  pool->check_invariants();
}

TEST_F(PiecewiseMemory, LeavesASmallerPoolThatStillLoads) {
  script_.fail_after_pieces(2);
  const auto pool = make_pool(64);
  for (int i = 0; i < 6; ++i) {
    const Adapter adapter = make_adapter(8, 100, 100, static_cast<std::uint32_t>(i));
    const Handle handle = pool->load(cat("adapter-", i), adapter).value();
    EXPECT_TRUE(holds(*handle, adapter));
  }
  EXPECT_EQ(pool->usage().pages, 16);
  EXPECT_EQ(pool->usage().free_pages, 0);
  EXPECT_EQ(pool->usage().evictions, 4);
  const Handle a = pool->acquire("adapter-5").value();
  const Handle b = pool->acquire("adapter-4").value();
  const auto refused = pool->load("one more", make_adapter(8, 100, 100, 9));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_THAT(
      refused.error().message(),
      testing::HasSubstr("takes 8.0 KiB, and of 16.0 KiB for adapters 16.0 KiB are in use"));
  pool->check_invariants();
}

// Runs across a boundary of pieces are copied in parts that do not cross it: the scripted device
// aborts on copies that do.
TEST_F(PiecewiseMemory, ReachesADeviceAcrossPieces) {
  const auto host = make_pool(256);
  const auto gpu =
      Pool::create(script_, {.bytes = 256 * 1024,
                             .page_bytes = 1024,
                             .staging = {.piece_bytes = PageWriter::max_bytes, .pieces = 2}})
          .value();
  const Handle before = host->load("before", make_adapter(8, 20, 20, 1)).value();
  const Adapter adapter = make_adapter(16, 700, 900, 2);
  const Handle source = host->load("a", adapter).value();
  EXPECT_GT(host->usage().committed_bytes, 12 * piece);
  const Handle copy = gpu->load("a", source).value();
  EXPECT_TRUE(holds(*copy, adapter));
}

TEST_F(PiecewiseMemory, ServesThreadsThatLoadAtOnce) {
  const auto pool = make_pool(256, piece);
  std::vector<std::thread> threads;
  std::vector<Handle> handles(16);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    threads.emplace_back([&, i] {
      const Adapter adapter = make_adapter(8, 100, 100, static_cast<std::uint32_t>(i));
      handles[i] = pool->load(cat("adapter-", i), adapter).value();
      EXPECT_TRUE(holds(*handles[i], adapter));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->usage().free_pages, 128);
  EXPECT_EQ(pool->usage().evictions, 0);
  pool->check_invariants();
}

// Two concurrent loads of one name while memory is committed give one adapter.
TEST_F(PiecewiseMemory, LoadsANameOnceThoughItWaitsForMemory) {
  for (int round = 0; round < 20; ++round) {
    const auto pool = make_pool(64);
    const Adapter adapter = make_adapter(8, 100, 100, 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        const auto loaded = pool->load("a", adapter);
        EXPECT_TRUE(loaded.ok() || loaded.error().code() == ErrorCode::busy);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool->usage().adapters, 1);
    EXPECT_EQ(pool->usage().free_pages, 56);
  }
}

}  // namespace
}  // namespace motley::lora
