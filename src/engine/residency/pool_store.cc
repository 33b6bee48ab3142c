#include "engine/residency/pool_store.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/cpu.h"
#include "base/system/out_of_memory.h"
#include "lora/files/content.h"
#include "lora/files/load.h"

namespace motley::engine {
namespace {

// The adapter under the name, if it has this content.
lora::Handle acquire_from(lora::Pool& pool, const std::string& name, lora::ContentVersion version) {
  auto handle = pool.acquire(name);
  if (!handle.ok() || (*handle)->version() != version) return {};
  return *std::move(handle);
}

// Of the files that a load reads.
std::uint64_t bytes_of(const AdapterSpec& spec) {
  return spec.content ? spec.content->bytes() : FailedReads::files_of(spec.path).bytes;
}

// Few, because they share processors with the steps' threads, and each uses host memory. At least
// two, so that a large adapter on a slow disk does not block the others.
int default_loaders() { return std::clamp(usable_cpus() / 2, 2, 8); }

}  // namespace

PoolStore::PoolStore(const Options& options) : options_(options), failed_reads_(options.clock) {
  MOTLEY_CHECK(options.base != nullptr && options.pool != nullptr, "a store of a model's adapters");
  MOTLEY_CHECK(options.host_pool == nullptr ||
                   options.host_pool->options().page_bytes == options.pool->options().page_bytes,
               "pools with pages of one size");
  const int loaders = options.loaders > 0 ? options.loaders : default_loaders();
  for (int i = 0; i < loaders; ++i) loaders_.emplace_back([this] { work(); });
}

PoolStore::~PoolStore() {
  {
    const std::lock_guard held(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& loader : loaders_) loader.join();
}

void PoolStore::set_wake(std::function<void()> wake) {
  const std::lock_guard held(lock_);
  wake_ = std::move(wake);
}

void PoolStore::begin(Job job) {
  std::list<Entry> entry;
  entry.push_back({.job = std::move(job)});
  {
    const std::lock_guard held(lock_);
    entries_.splice(entries_.end(), entry);
  }
  changed_.notify_all();
}

std::optional<AdapterStore::Done> PoolStore::take_done() {
  const std::lock_guard held(lock_);
  bool reads_before = false;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const bool is_read = entry->job.task == Task::read;
    if (entry->state == Entry::State::done && !(is_read && reads_before)) {
      Done done = std::move(entry->done);
      entries_.erase(entry);
      return done;
    }
    reads_before = reads_before || is_read;
  }
  return std::nullopt;
}

lora::Handle PoolStore::acquire(const std::string& name, lora::ContentVersion version) {
  return acquire_from(*options_.pool, name, version);
}

AdapterStore::Usage PoolStore::usage() const {
  const lora::Pool::Usage usage = options_.pool->usage();
  Usage all{.pages = usage.pages,
            .free_pages = usage.free_pages,
            .pinned_pages = usage.pinned_pages,
            .replaced_pages = usage.replaced_pages,
            .page_bytes = usage.page_bytes,
            .evictions = usage.evictions};
  // The rank with the least room decides.
  for (int rank = 1; rank <= std::ssize(other_ranks()); ++rank) {
    const lora::Pool::Usage theirs = options_.pool->usage_of(rank);
    all.pages = std::min(all.pages, theirs.pages);
    all.free_pages = std::min(all.free_pages, theirs.free_pages);
    all.pinned_pages = std::max(all.pinned_pages, theirs.pinned_pages);
  }
  const auto add_host = [&](const lora::Pool& pool) {
    const lora::Pool::Usage host = pool.usage();
    all.host_bytes += host.committed_bytes;
    all.host_limit_bytes += host.pages * host.page_bytes;
  };
  if (options_.host_pool != nullptr) {
    add_host(*options_.host_pool);
    for (const lora::Pool* const other : options_.host_pool->options().other_ranks)
      add_host(*other);
  }
  return all;
}

AdapterStore::Memory PoolStore::memory_of(const std::string& name,
                                          lora::ContentVersion version) const {
  const lora::Pool* const host = options_.host_pool;
  return {.device = options_.pool->holds(name, version),
          .host = host != nullptr && host->holds(name, version)};
}

std::size_t PoolStore::ranks() const {
  return other_ranks().empty() ? 0 : other_ranks().size() + 1;
}

RankStats PoolStore::pages_of(std::size_t rank) const {
  const lora::Pool& pool = rank == 0 ? *options_.pool : *other_ranks()[rank - 1];
  const lora::Pool::Usage usage = pool.usage();
  return {.adapter_pages = usage.pages, .adapter_pages_free = usage.free_pages};
}

// Of the rank whose part is the largest.
std::uint64_t PoolStore::most_pages(const lora::Adapter& adapter) const {
  std::uint64_t most = lora::Pool::pages_of(adapter, options_.pool->options());
  for (const lora::Pool* const other : other_ranks())
    most = std::max(most, lora::Pool::pages_of(adapter, other->options()));
  return most;
}

PoolStore::Entry* PoolStore::next_locked() {
  for (Entry& entry : entries_) {
    if (entry.state != Entry::State::queued) continue;
    const bool is_loading = std::ranges::any_of(entries_, [&](const Entry& other) {
      return other.state == Entry::State::working && other.job.spec.name == entry.job.spec.name;
    });
    if (!is_loading) return &entry;
  }
  return nullptr;
}

bool PoolStore::is_resident(const Job& job) const {
  if (job.task == Task::read) return false;
  for (lora::Pool* const pool : {options_.pool, options_.host_pool}) {
    if (pool != nullptr && acquire_from(*pool, job.spec.name, job.version)) return true;
  }
  return false;
}

std::uint64_t PoolStore::waiting_reads() const {
  const std::lock_guard held(lock_);
  return next_ticket_ - current_ticket_;
}

class PoolStore::LoadPermit {
 public:
  enum class Kind : std::uint8_t { spare, claimed };

  LoadPermit(PoolStore& store, Kind kind)
      : store_(store), count_(kind == Kind::spare ? store.spares_ : store.claimed_) {
    std::unique_lock held(store_.lock_);
    granted_ = kind == Kind::claimed || store_.claimed_ == 0;
    if (!granted_) return;
    ++count_;
    if (kind == Kind::claimed) store_.changed_.wait(held, [&] { return store_.spares_ == 0; });
  }
  LoadPermit(const LoadPermit&) = delete;
  LoadPermit& operator=(const LoadPermit&) = delete;
  ~LoadPermit() {
    if (!granted_) return;
    const std::lock_guard held(store_.lock_);
    --count_;
    store_.changed_.notify_all();
  }

  bool granted() const { return granted_; }

 private:
  PoolStore& store_;
  int& count_;
  bool granted_ = false;
};

std::optional<std::uint64_t> PoolStore::wait_for_memory(std::unique_lock<std::mutex>& held,
                                                        const Job& job) {
  held.unlock();
  const Result<std::uint64_t> size =
      within_memory([&] { return is_resident(job) ? 0 : bytes_of(job.spec); });
  // If this runs out of memory, the load itself reports it.
  const std::uint64_t bytes = size.ok() ? *size : 0;
  held.lock();
  if (bytes > 0) {
    const std::uint64_t ticket = next_ticket_++;
    changed_.wait(held, [&] {
      const bool fits = read_bytes_ == 0 || read_bytes_ + bytes <= options_.max_read_bytes;
      return stopping_ || (ticket == current_ticket_ && fits);
    });
    ++current_ticket_;
    read_bytes_ += bytes;
    changed_.notify_all();
  }
  if (stopping_) return std::nullopt;
  return bytes;
}

void PoolStore::work() {
  const Clock& clock = clock_or_steady(options_.clock);
  std::unique_lock held(lock_);
  for (;;) {
    Entry* entry = nullptr;
    changed_.wait(held, [&] { return stopping_ || (entry = next_locked()) != nullptr; });
    if (stopping_) return;
    entry->state = Entry::State::working;
    const auto bytes = wait_for_memory(held, entry->job);
    if (!bytes) return;
    held.unlock();
    const TimePoint begin = clock.now();
    Result<Done> result = within_memory([&] { return perform(entry->job); });
    const Duration took = clock.now() - begin;
    held.lock();
    if (result.ok())
      entry->done = *std::move(result);
    else
      entry->done.error = std::move(result).error();
    entry->done.id = entry->job.id;
    entry->done.took = took;
    entry->state = Entry::State::done;
    read_bytes_ -= *bytes;
    changed_.notify_all();
    // Under the lock, so that it is not called after it has been reset.
    if (wake_) wake_();
  }
}

Result<AdapterStore::Done> PoolStore::perform(const Job& job) {
  const auto details = [&] {
    return cat("adapter ", quote(job.spec.name), ", ", printable(job.spec.path.string()));
  };
  const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::adapter_load, details);
  return job.task == Task::read ? read(job) : place(job);
}

Result<lora::Adapter> PoolStore::from_files(const Job& job) const {
  if (job.spec.content) return lora::load_adapter(*job.spec.content, job.spec.load, *options_.base);
  if (options_.source) return options_.source(job.spec, *options_.base);
  return lora::load_adapter(job.spec.path, job.spec.load, *options_.base);
}

Result<lora::Adapter> PoolStore::read_again(const Job& job) {
  if (job.spec.content) return from_files(job);
  const FailedReads::Files files = FailedReads::files_of(job.spec.path);
  if (auto known = failed_reads_.find(job, files)) return *std::move(known);
  Result<lora::Adapter> adapter = from_files(job);
  if (adapter.ok() && adapter->version != job.version)
    adapter = Error(ErrorCode::bad_file, "its content is not what it was when it was loaded",
                    printable(job.spec.path.string()), "load it again in place");
  if (!adapter.ok()) failed_reads_.note(job, files, adapter.error());
  return adapter;
}

// Places the adapter at once if pages are free, so that the first request need not wait; evicts
// none for it.
Result<AdapterStore::Done> PoolStore::read(const Job& job) {
  MOTLEY_TRY(const lora::Adapter adapter, from_files(job));
  Done done{.version = adapter.version,
            .pages = most_pages(adapter),
            .rank = adapter.largest_rank,
            .exclusive = std::string(lora::exclusive_reason(adapter)),
            .sites = lora::SiteSet(adapter)};
  if (job.keeps_old) return done;
  constexpr auto spare = lora::Pool::Room::free;
  lora::Handle in_host;
  if (options_.host_pool != nullptr) {
    if (auto handle = options_.host_pool->load(job.spec.name, adapter, spare); handle.ok())
      in_host = *std::move(handle);
  }
  const LoadPermit permit(*this, LoadPermit::Kind::spare);
  if (!permit.granted()) return done;
  const auto handle = in_host ? options_.pool->load(job.spec.name, in_host, spare)
                              : options_.pool->load(job.spec.name, adapter, spare);
  // Without free pages the adapter is placed when a request needs it.
  if (!handle.ok() && handle.error().code() != ErrorCode::out_of_memory) return handle.error();
  return done;
}

Result<AdapterStore::Done> PoolStore::place(const Job& job) {
  Done done{.version = job.version};
  done.handle = acquire_from(*options_.pool, job.spec.name, job.version);
  if (done.handle) return done;
  lora::Handle in_host;
  if (options_.host_pool != nullptr)
    in_host = acquire_from(*options_.host_pool, job.spec.name, job.version);
  std::optional<lora::Adapter> adapter;
  if (!in_host) {
    MOTLEY_TRY(adapter, read_again(job));
    if (options_.host_pool != nullptr) {
      // If it is too large for the host's pool, it goes directly to the device.
      if (auto handle = options_.host_pool->load(job.spec.name, *adapter); handle.ok())
        in_host = *std::move(handle);
    }
  }
  const LoadPermit permit(*this, LoadPermit::Kind::claimed);
  if (in_host) {
    MOTLEY_TRY(done.handle, options_.pool->load(job.spec.name, in_host));
  } else {
    MOTLEY_TRY(done.handle, options_.pool->load(job.spec.name, *adapter));
  }
  return done;
}

}  // namespace motley::engine
