#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/system/clock.h"
#include "base/system/watchdog.h"
#include "engine/residency/adapter_store.h"
#include "engine/residency/failed_reads.h"
#include "lora/pages/pool.h"
#include "lora/site.h"

namespace motley::engine {

// Adapters in pools: one where steps read them, and where that is a device's memory, one before it
// in the host's. Several loader threads of its own read files, place pages and copy.
class PoolStore final : public AdapterStore {
 public:
  struct Options {
    const lora::BaseView* base = nullptr;  // of the model
    lora::Pool* pool = nullptr;            // where steps read
    // Of the same format and page size, in pinned memory; null where `pool` is the host's.
    lora::Pool* host_pool = nullptr;
    // Where adapters come from; empty: from their folders. Called by several threads at once.
    std::function<Result<lora::Adapter>(const AdapterSpec&, const lora::BaseView&)> source = {};
    Watchdog* watchdog = nullptr;  // of loads
    int loaders = 0;               // threads; 0: as many as suit the processors
    // Adapters are read side by side while their files have at most so many bytes together. In
    // memory one takes about three times its file: the file, and its numbers in float32.
    std::uint64_t max_read_bytes = std::uint64_t{1} << 30;
    const Clock* clock = nullptr;  // null: the steady one
  };

  // What the options name outlives the store.
  explicit PoolStore(const Options& options);
  // Loads under way end, and what came of them is dropped.
  ~PoolStore() override;

  void set_wake(std::function<void()> wake) override;
  void begin(Job job) override;
  std::optional<Done> take_done() override;
  lora::Handle acquire(const std::string& name, lora::ContentVersion version) override;
  Usage usage() const override;

 private:
  // A job and, later, what came of it: in one place, so that it is reported whatever memory is
  // left.
  struct Entry {
    enum class State : std::uint8_t { queued, working, done };
    Job job;
    Done done = {};
    State state = State::queued;
  };

  void work();
  // The next job that a loader can begin; null where there is none.
  Entry* next_locked();
  // Waits, in order, until the job's files may be read beside those that are being read: their
  // bytes, which count as being read from then on. Nothing where the store stops.
  std::optional<std::uint64_t> wait_for_memory(std::unique_lock<std::mutex>& held, const Job& job);
  bool is_resident(const Job& job) const;
  // Pages of a spare load can't be evicted before it is done. So spare loads into the steps' pool
  // and loads for claims never go on at once: a spare one is left out beside the others, and these
  // wait for spare ones.
  class Turn;
  Result<Done> perform(const Job& job);
  Result<Done> read(const Job& job);
  Result<Done> place(const Job& job);
  Result<lora::Adapter> from_disk(const Job& job) const;
  // What was read before, from the same content.
  Result<lora::Adapter> again_from_disk(const Job& job);

  Options options_;
  FailedReads failed_reads_;

  std::mutex lock_;
  std::condition_variable changed_;
  std::list<Entry> entries_;          // in the order in which they began
  int spares_ = 0;                    // spare loads into the steps' pool that go on
  int claimed_ = 0;                   // loads for claims that go on, or wait for spare ones
  std::uint64_t read_bytes_ = 0;      // of files that are being read
  std::uint64_t next_ticket_ = 0;     // for reading, given out in order
  std::uint64_t current_ticket_ = 0;  // whose turn it is
  std::function<void()> wake_;
  bool stopping_ = false;

  std::vector<std::thread> loaders_;  // last: they use all of the above
};

}  // namespace motley::engine
