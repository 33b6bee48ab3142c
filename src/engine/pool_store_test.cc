#include "engine/pool_store.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/test_base.h"
#include "lora/test_pool.h"
#include "tensor/scripted_device.h"

// A store over a device's pool with the host's behind it, whose memory comes piece by piece.
namespace motley::engine {
namespace {

constexpr std::size_t piece = 8192;
constexpr std::uint64_t page = 1024;

class PoolStoreTest : public testing::Test {
 protected:
  PoolStoreTest() { script_.set_pinned_pieces(piece); }
  ~PoolStoreTest() override {
    if (store_ != nullptr) store_->set_wake({});
  }

  // The device has room for two adapters with their directories, the host for sixteen.
  void make() {
    lora::Pool::Options options{
        .bytes = 20 * page,
        .page_bytes = page,
        .directory = true,
        .spare_bytes = 0,
        .staging = {.piece_bytes = lora::PageWriter::most_bytes, .pieces = 2}};
    pool_ = lora::Pool::create(script_, options).value();
    options.bytes = 128 * page;
    options.directory = false;
    host_pool_ = lora::Pool::create(script_.pinned_memory(), options).value();
    const auto source = [this](const AdapterSpec& spec, const lora::BaseView&) {
      ++reads_;
      return Result<lora::Adapter>(adapter(std::stoi(spec.name)));
    };
    store_ = std::make_unique<PoolStore>(PoolStore::Options{
        .base = &base_, .pool = pool_.get(), .host_pool = host_pool_.get(), .source = source});
    store_->set_wake([this] {
      const std::lock_guard held(lock_);
      ++done_;
      changed_.notify_all();
    });
  }

  // Eight pages.
  static lora::Adapter adapter(int number) {
    return lora::test::make_adapter(8, 100, 100, static_cast<std::uint32_t>(number));
  }

  AdapterStore::Done run(AdapterStore::Task task, int number) {
    {
      const std::lock_guard held(lock_);
      done_ = 0;
    }
    store_->begin({.id = static_cast<std::uint64_t>(number),
                   .task = task,
                   .spec = {.name = cat(number), .path = {}},
                   .version = adapter(number).version});
    std::unique_lock held(lock_);
    changed_.wait(held, [&] { return done_ > 0; });
    held.unlock();
    AdapterStore::Done done = store_->take_done().value();
    EXPECT_EQ(done.id, static_cast<std::uint64_t>(number));
    EXPECT_FALSE(done.error.has_value()) << done.error->message();
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
  std::atomic<int> reads_{0};
  std::mutex lock_;
  std::condition_variable changed_;
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

}  // namespace
}  // namespace motley::engine
