#include "engine/residency/pool_store.h"

#include <algorithm>
#include <atomic>
#include <string>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/out_of_memory.h"
#include "base/system/temporary_folder.h"
#include "base/test_waits.h"
#include "engine/test_world.h"
#include "lora/pages/test_pool.h"
#include "lora/test_base.h"
#include "tensor/device/scripted_device.h"

// A store over a device's pool with a host pool behind it, whose memory is committed piece by
// piece.
namespace motley::engine {
namespace {

constexpr std::size_t piece = 8192;
constexpr std::uint64_t page = 1024;
constexpr int first_small = 100;

class PoolStoreTest : public testing::Test {
 protected:
  PoolStoreTest() { script_.set_pinned_pieces(piece); }
  ~PoolStoreTest() override {
    if (store_ != nullptr) store_->set_wake({});
  }

  // The device holds one adapter with its directory, the host sixteen.
  void make(int loaders = 1, std::uint64_t max_read_bytes = 1 << 20) {
    lora::Pool::Options options{
        .bytes = 20 * page,
        .page_bytes = page,
        .directory = true,
        .spare_bytes = 0,
        .staging = {.piece_bytes = lora::PageWriter::max_bytes, .pieces = 2}};
    pool_ = lora::Pool::create(script_, options).value();
    options.bytes = 128 * page;
    options.directory = false;
    host_pool_ = lora::Pool::create(script_.pinned_memory(), options).value();
    const auto source = [this](const AdapterSpec& spec,
                               const lora::BaseView&) -> Result<lora::Adapter> {
      ++reads_;
      if (failure_) return *failure_;
      if (spec.name.starts_with("-"))
        return Error(ErrorCode::bad_file, cat("no adapter ", spec.name));
      lora::Adapter made = adapter(std::stoi(spec.name));
      if (on_read_) on_read_(std::stoi(spec.name));
      return made;
    };
    store_ = std::make_unique<PoolStore>(PoolStore::Options{.base = &base_,
                                                            .pool = pool_.get(),
                                                            .host_pool = host_pool_.get(),
                                                            .source = source,
                                                            .loaders = loaders,
                                                            .max_read_bytes = max_read_bytes,
                                                            .clock = &clock_});
    store_->set_wake([this] { monitor_.change([this] { ++done_; }); });
  }

  // 8 pages, or one page from `first_small` on.
  static lora::Adapter adapter(int number) {
    const bool small = number >= first_small;
    const int width = small ? 8 : 100;
    return lora::test::make_adapter(small ? 1 : 8, width, width,
                                    static_cast<std::uint32_t>(number));
  }
  bool on_device(int number) { return pool_->acquire(cat(number)).ok(); }
  // Blocks the first copy to the device, in the middle of its load, until let_copy_go_on().
  void hold_first_copy() {
    script_.before_copies([this] {
      if (held_first_.exchange(true)) return;
      copying_.set();
      go_on_.wait("the test lets the first copy go on");
    });
  }
  void wait_for_copy() { copying_.wait("the first copy to the device begins"); }
  void let_copy_go_on() { go_on_.set(); }

  AdapterStore::Done run(AdapterStore::Task task, int number) {
    AdapterStore::Done done = try_to(task, number);
    EXPECT_FALSE(done.error.has_value()) << done.error->message();
    return done;
  }
  void begin(AdapterStore::Task task, int number) {
    store_->begin({.id = static_cast<std::uint64_t>(number),
                   .task = task,
                   .spec = {.name = cat(number), .path = folder_.path()},
                   .version = adapter(number).version});
  }
  // Waits until this many jobs are done since the last try_to().
  void wait_for_done(int count) {
    monitor_.wait(cat(count, " jobs are done"), [&] { return done_ >= count; });
  }
  AdapterStore::Done try_to(AdapterStore::Task task, int number) {
    monitor_.change([this] { done_ = 0; });
    begin(task, number);
    wait_for_done(1);
    AdapterStore::Done done = store_->take_done().value();
    EXPECT_EQ(done.id, static_cast<std::uint64_t>(number));
    return done;
  }
  void read(int count) {
    for (int i = 0; i < count; ++i) run(AdapterStore::Task::read, i);
  }
  void place(int number) {
    const AdapterStore::Done done = run(AdapterStore::Task::place, number);
    ASSERT_TRUE(done.handle);
    EXPECT_TRUE(lora::test::holds(*done.handle, adapter(number))) << "adapter " << number;
  }

  tensor::test::ScriptedDevice script_{5};
  lora::test::FakeBase base_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<lora::Pool> host_pool_;
  TemporaryFolder folder_;  // with every adapter
  test::ScriptedClock clock_;
  std::atomic<int> reads_{0};
  std::optional<Error> failure_;  // injected into reads, between jobs
  std::function<void(int number)> on_read_;
  std::atomic<bool> held_first_{false};
  motley::test::Event copying_;
  motley::test::Event go_on_;
  motley::test::Monitor monitor_;
  int done_ = 0;
  std::unique_ptr<PoolStore> store_;  // last: its thread uses all of the above
};

TEST_F(PoolStoreTest, TakesMemoryOfTheHostAsAdaptersCome) {
  make();
  EXPECT_EQ(store_->usage().host_bytes, 0);
  EXPECT_EQ(store_->usage().host_limit_bytes, 128 * page);
  read(4);
  EXPECT_EQ(store_->usage().host_bytes, 4 * piece);
  for (const int number : {0, 1, 2, 3, 0, 2}) place(number);
  EXPECT_EQ(reads_, 4) << "what the host keeps is not read again";
}

TEST_F(PoolStoreTest, GoesOnWithLessWhereTheHostHasNoMoreMemory) {
  script_.fail_after_pieces(2);
  make();
  read(4);
  EXPECT_EQ(store_->usage().host_bytes, 2 * piece);
  for (const int number : {0, 1, 2, 3, 0, 2}) place(number);
  EXPECT_EQ(store_->usage().host_limit_bytes, 2 * piece);
  EXPECT_GT(reads_, 4) << "what the host has no room for is read again";
}

TEST_F(PoolStoreTest, GoesOnWithoutMemoryOfTheHost) {
  script_.fail_after_pieces(0);
  make();
  read(4);
  for (const int number : {0, 1, 2, 3, 0}) place(number);
  EXPECT_EQ(store_->usage().host_bytes, 0);
  EXPECT_EQ(store_->usage().host_limit_bytes, 0);
}

// The host cannot hold it, so it is read each time it goes to the device.
TEST_F(PoolStoreTest, ReadsABrokenAdapterAgainAfterAWhileOrWhenItsFilesChange) {
  script_.fail_after_pieces(0);
  make();
  const auto file = folder_.file("adapter_model.safetensors", "as it was");
  folder_.file("adapter_config.json", "{}");
  read(3);
  place(1);
  place(2);  // adapter 0 must be read from disk
  reads_ = 0;
  const auto fail = [&] {
    const auto error = try_to(AdapterStore::Task::place, 0).error;
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->what(), failure_->what());
  };
  failure_ = Error(ErrorCode::bad_file, "it is damaged");
  for (int i = 0; i < 5; ++i) fail();
  EXPECT_EQ(reads_, 1);
  clock_.advance(FailedReads::pause - Duration(1));
  fail();
  EXPECT_EQ(reads_, 1);
  clock_.advance(Duration(1));
  fail();
  EXPECT_EQ(reads_, 2) << "after a while";
  fail();
  EXPECT_EQ(reads_, 2);
  folder_.file("other", "beside it");
  fail();
  EXPECT_EQ(reads_, 2);
  std::filesystem::remove(file);
  fail();
  EXPECT_EQ(reads_, 3) << "files have changed";
  fail();
  EXPECT_EQ(reads_, 3);
  folder_.file("adapter_model.safetensors", "as it was");
  failure_.reset();
  place(0);
  EXPECT_EQ(reads_, 4);
}

TEST_F(PoolStoreTest, WantOfMemoryIsNoFaultOfTheFiles) {
  script_.fail_after_pieces(0);
  make();
  read(3);
  place(1);
  place(2);
  reads_ = 0;
  failure_ = out_of_memory_error();
  EXPECT_TRUE(try_to(AdapterStore::Task::place, 0).error.has_value());
  failure_.reset();
  place(0);
  EXPECT_EQ(reads_, 2);
}

using Task = AdapterStore::Task;

TEST_F(PoolStoreTest, LoadersReadSideBySide) {
  motley::test::Meeting all_read(3);
  on_read_ = [&](int) { all_read.arrive_and_wait("three loaders read at once"); };
  make(3);
  for (int i = 0; i < 6; ++i) begin(Task::read, i);
  wait_for_done(6);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(store_->take_done().value().id, i);
}

TEST_F(PoolStoreTest, ReadsAreReportedInTheOrderInWhichTheyBegan) {
  motley::test::Event go_on;
  on_read_ = [&](int number) {
    if (number == 0) go_on.wait("the test lets the first read go on");
  };
  make(2);
  for (int i = 0; i < 4; ++i) begin(Task::read, i);
  wait_for_done(3);
  EXPECT_FALSE(store_->take_done().has_value());
  go_on.set();
  wait_for_done(4);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(store_->take_done().value().id, i);
}

TEST_F(PoolStoreTest, APlaceDoesNotWaitForTheReadsBeforeIt) {
  motley::test::Event begun;
  motley::test::Event go_on;
  on_read_ = [&](int number) {
    if (number != 0) return;
    begun.set();
    go_on.wait("the test lets the read go on");
  };
  make(2);
  run(Task::read, 1);
  begin(Task::read, 0);
  begun.wait("the read begins");
  place(1);
  EXPECT_EQ(reads_, 2);
  go_on.set();
  wait_for_done(2);
  EXPECT_EQ(store_->take_done().value().id, 0U);
}

TEST_F(PoolStoreTest, JobsOfOneNameFollowOneAnother) {
  std::atomic<int> reads_of_one{0};
  motley::test::Event go_on;
  on_read_ = [&](int number) {
    if (number != 1) return;
    ++reads_of_one;
    go_on.wait("the test lets reads of the name go on");
  };
  script_.fail_after_pieces(0);
  make(4);
  begin(Task::read, 1);
  begin(Task::place, 1);
  begin(Task::read, 1);
  for (int i = 2; i < 8; ++i) begin(Task::read, i);
  // Three loaders have gone past the name's other jobs, which stand first.
  wait_for_done(6);
  EXPECT_EQ(reads_of_one, 1);
  EXPECT_FALSE(store_->take_done().has_value());
  go_on.set();
  wait_for_done(9);
}

TEST_F(PoolStoreTest, ReadsNoMoreAtOnceThanMemoryAllows) {
  constexpr int loaders = 4;
  constexpr int all = 16;
  folder_.file("adapter_model.safetensors", std::string(600, 'x'));
  // Two of them concurrently; then one that exceeds the limit alone.
  for (const auto& [bytes, count] : {std::pair(1200, 2), std::pair(500, 1)}) {
    std::atomic<int> begun{0};
    motley::test::Meeting meeting(count);
    store_.reset();
    done_ = 0;
    on_read_ = [&, count = count](int) {
      ++begun;
      meeting.arrive_and_wait("as many reads as memory allows have begun");
      // All other loaders have a read as well, and wait with it.
      const int reads = begun;
      EXPECT_EQ(reads % count, 0);
      const auto waiting = static_cast<std::uint64_t>(std::min(loaders - count, all - reads));
      motley::test::wait_for("the other loaders wait for memory",
                             [&] { return store_->waiting_reads() == waiting; });
      EXPECT_EQ(begun, reads) << "a read beyond the limit";
      meeting.arrive_and_wait("the reads have been counted");
    };
    make(loaders, static_cast<std::uint64_t>(bytes));
    for (int i = 0; i < all; ++i) begin(Task::read, i);
    wait_for_done(all);
  }
}

// The device holds one adapter and a small one.
TEST_F(PoolStoreTest, ClaimsWaitForSpareLoads) {
  script_.fail_after_pieces(0);
  hold_first_copy();
  make(3);
  begin(Task::read, 1);
  wait_for_copy();  // it has its pages, which cannot be evicted yet
  begin(Task::place, 3);
  // Spare loads are skipped as soon as the claim waits.
  int small = first_small;
  for (bool loaded = true; loaded; ++small) {
    begin(Task::read, small);
    wait_for_done(small - first_small + 1);
    // Results of reads wait for the blocked one, so only the claim's result is seen here.
    if (const auto done = store_->take_done()) {
      ADD_FAILURE() << "a claim beside a spare load: "
                    << (done->error ? done->error->message() : "done");
      break;
    }
    loaded = on_device(small);
    if (loaded) {
      EXPECT_TRUE(pool_->unload(cat(small)).ok());
    }
  }
  let_copy_go_on();
  wait_for_done(small - first_small + 2);
  while (const auto done = store_->take_done())
    EXPECT_FALSE(done->error) << done->id << ": " << done->error->message();
  EXPECT_TRUE(on_device(3));
}

TEST_F(PoolStoreTest, SpareLoadsAreLeftOutBesideClaims) {
  script_.fail_after_pieces(0);
  hold_first_copy();
  make(2);
  begin(Task::place, 3);
  wait_for_copy();
  begin(Task::read, first_small);
  wait_for_done(1);
  EXPECT_FALSE(on_device(first_small));
  let_copy_go_on();
  wait_for_done(2);
  while (const auto done = store_->take_done())
    EXPECT_FALSE(done->error) << done->id << ": " << done->error->message();
  run(Task::read, first_small + 1);
  EXPECT_TRUE(on_device(first_small + 1)) << "there was room for it";
}

TEST_F(PoolStoreTest, EndsWithLoadsUnderWay) {
  for (int round = 0; round < 20; ++round) {
    make(4);
    for (int i = 0; i < 10; ++i) begin(Task::read, i);
    store_->set_wake({});
    store_.reset();
  }
  EXPECT_LE(reads_, 200);
}

// A hundred concurrent loads, some of which fail: results do not depend on the number of loaders.
TEST_F(PoolStoreTest, OutcomesDoNotDependOnTheNumberOfLoaders) {
  std::vector<std::string> before;
  for (const int loaders : {1, 2, 5}) {
    store_.reset();
    done_ = 0;
    make(loaders);
    for (int i = 0; i < 100; ++i) {
      store_->begin({.id = static_cast<std::uint64_t>(i),
                     .task = Task::read,
                     .spec = {.name = i % 7 == 3 ? cat(-i) : cat(i), .path = folder_.path()}});
    }
    wait_for_done(100);
    std::vector<std::string> outcomes;
    while (const auto done = store_->take_done()) {
      outcomes.push_back(cat(done->id, " ", lora::to_string(done->version), " ", done->pages, " ",
                             done->error ? done->error->message() : ""));
    }
    EXPECT_EQ(outcomes.size(), 100U);
    if (!before.empty()) {
      EXPECT_EQ(outcomes, before);
    }
    before = std::move(outcomes);
    pool_->check_invariants();
    host_pool_->check_invariants();
  }
}

}  // namespace
}  // namespace motley::engine
