#include "engine/pool_store.h"

#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "lora/load.h"

namespace motley::engine {
namespace {

// What is there under the name, if it is this content.
lora::Handle acquire_from(lora::Pool& pool, const std::string& name, lora::ContentVersion version) {
  auto handle = pool.acquire(name);
  if (!handle.ok() || (*handle)->version() != version) return {};
  return *std::move(handle);
}

bool fits_free_pages(const lora::Pool& pool, std::uint64_t pages) {
  return pool.usage().free_pages >= pages;
}

}  // namespace

PoolStore::PoolStore(const Options& options) : options_(options) {
  MOTLEY_CHECK(options.base != nullptr && options.pool != nullptr, "a store of a model's adapters");
  MOTLEY_CHECK(options.host_pool == nullptr ||
                   options.host_pool->options().page_bytes == options.pool->options().page_bytes,
               "pools with pages of one size");
  thread_ = std::thread([this] { work(); });
}

PoolStore::~PoolStore() {
  {
    const std::lock_guard held(lock_);
    stopping_ = true;
    jobs_.clear();
  }
  begun_.notify_one();
  thread_.join();
}

void PoolStore::set_wake(std::function<void()> wake) {
  const std::lock_guard held(lock_);
  wake_ = std::move(wake);
}

void PoolStore::begin(Job job) {
  {
    const std::lock_guard held(lock_);
    jobs_.push_back(std::move(job));
  }
  begun_.notify_one();
}

std::optional<AdapterStore::Done> PoolStore::take_done() {
  const std::lock_guard held(lock_);
  if (done_.empty()) return std::nullopt;
  Done done = std::move(done_.front());
  done_.pop_front();
  return done;
}

lora::Handle PoolStore::acquire(const std::string& name, lora::ContentVersion version) {
  return acquire_from(*options_.pool, name, version);
}

AdapterStore::Usage PoolStore::usage() const {
  const lora::Pool::Usage usage = options_.pool->usage();
  Usage told{.pages = usage.pages,
             .free_pages = usage.free_pages,
             .pinned_pages = usage.pinned_pages,
             .page_bytes = usage.page_bytes,
             .evictions = usage.evictions};
  if (options_.host_pool != nullptr) {
    const lora::Pool::Usage host = options_.host_pool->usage();
    told.host_bytes = host.committed_bytes;
    told.host_limit_bytes = host.pages * host.page_bytes;
  }
  return told;
}

void PoolStore::work() {
  std::unique_lock held(lock_);
  for (;;) {
    begun_.wait(held, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    held.unlock();
    Result<Done> result = job.task == Task::read ? read(job) : place(job);
    Done done = result.ok() ? *std::move(result) : Done{.error = std::move(result).error()};
    done.id = job.id;
    held.lock();
    done_.push_back(std::move(done));
    // Under the lock: who takes the wake away knows that it is not being called.
    if (wake_) wake_();
  }
}

Result<lora::Adapter> PoolStore::from_disk(const Job& job) const {
  if (options_.source) return options_.source(job.spec, *options_.base);
  return lora::load_adapter(job.spec.path, job.spec.load, *options_.base);
}

// Where room is free it is used at once, so that the first request need not wait; nobody has to go
// for that.
Result<AdapterStore::Done> PoolStore::read(const Job& job) {
  MOTLEY_TRY(const lora::Adapter adapter, from_disk(job));
  Done done{.version = adapter.version,
            .pages = lora::Pool::pages_of(adapter, options_.pool->options()),
            .rank = adapter.largest_rank,
            .exclusive = std::string(lora::exclusive_reason(adapter)),
            .sites = lora::SiteSet(adapter)};
  lora::Handle in_host;
  if (options_.host_pool != nullptr && fits_free_pages(*options_.host_pool, done.pages)) {
    if (auto handle = options_.host_pool->load(job.spec.name, adapter); handle.ok())
      in_host = *std::move(handle);
  }
  if (fits_free_pages(*options_.pool, done.pages)) {
    // It was room to spare: without it the adapter comes when it is asked for.
    auto spare = in_host ? options_.pool->load(job.spec.name, in_host)
                         : options_.pool->load(job.spec.name, adapter);
    if (!spare.ok() && spare.error().code() != ErrorCode::out_of_memory)
      return std::move(spare).error();
  }
  return done;
}

Result<AdapterStore::Done> PoolStore::place(const Job& job) {
  Done done{.version = job.version};
  done.handle = acquire_from(*options_.pool, job.spec.name, job.version);
  if (done.handle) return done;
  lora::Handle in_host;
  if (options_.host_pool != nullptr) {
    in_host = acquire_from(*options_.host_pool, job.spec.name, job.version);
    if (in_host) {
      MOTLEY_TRY(done.handle, options_.pool->load(job.spec.name, in_host));
      return done;
    }
  }
  MOTLEY_TRY(const lora::Adapter adapter, from_disk(job));
  if (adapter.version != job.version) {
    return Error(ErrorCode::bad_file, "its content is not what it was when it was loaded",
                 printable(job.spec.path.string()), "load it again in place");
  }
  if (options_.host_pool != nullptr) {
    // Too large for the host's pool, it goes straight to the device.
    if (auto handle = options_.host_pool->load(job.spec.name, adapter); handle.ok())
      in_host = *std::move(handle);
  }
  if (in_host) {
    MOTLEY_TRY(done.handle, options_.pool->load(job.spec.name, in_host));
  } else {
    MOTLEY_TRY(done.handle, options_.pool->load(job.spec.name, adapter));
  }
  return done;
}

}  // namespace motley::engine
