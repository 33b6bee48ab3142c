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

// Adapters in pools: one where steps read them and, if that is in device memory, one in host memory
// before it. Of several ranks both are rank 0's, with those of the others behind them
// (lora::Pool::Options::other_ranks). Several loader threads read files, place pages and copy.
class PoolStore final : public AdapterStore {
 public:
  struct Options {
    const lora::BaseView* base = nullptr;  // of the model
    lora::Pool* pool = nullptr;            // that steps read
    // With the same format and page size, and of as many ranks, in pinned memory; null if `pool` is
    // in host memory.
    lora::Pool* host_pool = nullptr;
    // The source of adapters; default: their folders. Called by several threads concurrently.
    std::function<Result<lora::Adapter>(const AdapterSpec&, const lora::BaseView&)> source = {};
    Watchdog* watchdog = nullptr;  // of loads
    int loaders = 0;               // threads; 0: chosen by the number of processors
    // Adapters are read concurrently while their files have at most this many bytes together.
    // Reading takes the size of the file and, where the numbers of its factors do not lie in the
    // order of the canonical form, up to twice as much again for them in float32.
    std::uint64_t max_read_bytes = std::uint64_t{1} << 30;
    const Clock* clock = nullptr;  // null: the steady clock
  };

  // Everything that the options name must outlive the store.
  explicit PoolStore(const Options& options);
  // Waits for loads in progress, and drops their results.
  ~PoolStore() override;

  void set_wake(std::function<void()> wake) override;
  void begin(Job job) override;
  std::optional<Done> take_done() override;
  lora::Handle acquire(const std::string& name, lora::ContentVersion version) override;
  Usage usage() const override;
  Memory memory_of(const std::string& name, lora::ContentVersion version) const override;
  std::size_t ranks() const override;
  RankStats pages_of(std::size_t rank) const override;
  // Loaders that wait until others have read their files.
  std::uint64_t waiting_reads() const;

 private:
  // A job and, later, its result, allocated together so that it can be reported even if memory runs
  // out.
  struct Entry {
    enum class State : std::uint8_t { queued, working, done };
    Job job;
    Done done = {};
    State state = State::queued;
  };

  void work();
  // The next job that a loader can begin; null if there is none.
  std::uint64_t most_pages(const lora::Adapter& adapter) const;
  Entry* next_locked();
  // Waits, in order, until the job's files may be read beside those that are being read. Returns
  // their bytes, which count as being read from then on. Nothing if the store stops.
  std::optional<std::uint64_t> wait_for_memory(std::unique_lock<std::mutex>& held, const Job& job);
  bool is_resident(const Job& job) const;
  const std::vector<lora::Pool*>& other_ranks() const {
    return options_.pool->options().other_ranks;
  }
  // Pages of a spare load cannot be evicted before it is done. Therefore spare loads into the
  // steps' pool and loads for claims never run at the same time: a spare load is skipped while
  // others run, and loads for claims wait for spare ones.
  class LoadPermit;
  Result<Done> perform(const Job& job);
  Result<Done> read(const Job& job);
  Result<Done> place(const Job& job);
  Result<lora::Adapter> from_files(const Job& job) const;
  // Reads it again, with the same content.
  Result<lora::Adapter> read_again(const Job& job);

  Options options_;
  FailedReads failed_reads_;

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::list<Entry> entries_;          // in the order in which they began
  int spares_ = 0;                    // spare loads into the steps' pool in progress
  int claimed_ = 0;                   // loads for claims in progress, or waiting for spare ones
  std::uint64_t read_bytes_ = 0;      // of files that are being read
  std::uint64_t next_ticket_ = 0;     // for reading, in order
  std::uint64_t current_ticket_ = 0;  // the ticket that may read now
  std::function<void()> wake_;
  bool stopping_ = false;

  std::vector<std::thread> loaders_;  // last: they use all of the above
};

}  // namespace motley::engine
