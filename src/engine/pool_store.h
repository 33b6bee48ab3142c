#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/adapter_store.h"
#include "lora/pool.h"
#include "lora/site.h"

namespace motley::engine {

// Adapters in pools: one where steps read them, and where that is a device's memory, one before it
// in the host's. Reads files, places pages and copies on a thread of its own, job by job.
class PoolStore final : public AdapterStore {
 public:
  struct Options {
    const lora::BaseView* base = nullptr;  // of the model
    lora::Pool* pool = nullptr;            // where steps read
    // Of the same format and page size, in pinned memory; null where `pool` is the host's.
    lora::Pool* host_pool = nullptr;
    // Where adapters come from; empty: from their folders.
    std::function<Result<lora::Adapter>(const AdapterSpec&, const lora::BaseView&)> source = {};
  };

  // What the options name outlives the store.
  explicit PoolStore(const Options& options);
  // What is begun ends, and is heard of no more.
  ~PoolStore() override;

  void set_wake(std::function<void()> wake) override;
  void begin(Job job) override;
  std::optional<Done> take_done() override;
  lora::Handle acquire(const std::string& name, lora::ContentVersion version) override;
  Usage usage() const override;

 private:
  void work();
  Result<Done> read(const Job& job);
  Result<Done> place(const Job& job);
  Result<lora::Adapter> from_disk(const Job& job) const;

  Options options_;

  std::mutex lock_;
  std::condition_variable begun_;
  std::deque<Job> jobs_;
  std::deque<Done> done_;
  std::function<void()> wake_;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace motley::engine
