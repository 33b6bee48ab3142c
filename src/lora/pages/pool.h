#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "dist/launch_gate.h"
#include "lora/files/adapter.h"
#include "lora/pages/format.h"
#include "lora/pages/memory.h"
#include "lora/pages/placement.h"
#include "lora/pages/readers.h"
#include "lora/pages/resident.h"
#include "lora/pages/writer.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"
#include "tensor/device/staging.h"

namespace motley::lora {

class Pool;

// Pins an adapter in its pool: its bytes stay as long as a handle exists. Copies are cheap. Must
// not outlive the pool.
class Handle {
 public:
  Handle() = default;
  Handle(const Handle& other);
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle other) noexcept;
  ~Handle();

  explicit operator bool() const { return resident_ != nullptr; }
  const Resident& operator*() const { return *resident_; }
  const Resident* operator->() const { return resident_; }
  const Resident* get() const { return resident_; }

 private:
  friend class Pool;
  explicit Handle(Resident* resident) : resident_(resident) {}

  Resident* resident_ = nullptr;
};

// Of an adapter in a pool (docs/design/engine.md maps it to the engine's states).
enum class State : std::uint8_t { absent, loading, ready, closing };
std::string_view name(State state);

// Adapters in pages of equal size in one arena, of the host or of a device. A blob (one factor,
// table or vector) is contiguous and begins at a multiple of `blob_alignment`. Small blobs of one
// adapter share a page; a large one takes a run of pages. Ranks are padded with zeros, nothing else
// is padded, and nothing is moved. Idle adapters stay until their space is needed; the least
// recently used is evicted first.
//
// A device's pages are written on a stream of the pool, through pinned memory, and only behind the
// marks of all possible readers (mark_readers). An adapter becomes ready and visible when all its
// bytes have arrived.
//
// Thread-safe; no call holds the lock while bytes are copied.
class Pool {
 public:
#ifdef MOTLEY_DEBUG
  static constexpr bool debug = true;
#else
  static constexpr bool debug = false;
#endif

  struct Options {
    std::uint64_t bytes = 0;  // rounded down to whole pages, at least one
    std::uint64_t page_bytes = 256 << 10;
    // The type of factors: f32, bf16 or f8_e4m3. With FP8 factors whole tables are bf16; vectors
    // are always f32.
    DType dtype = DType::f32;
    Layout experts = Layout::rows;
    // Keeps a directory for kernels with every adapter, as StepTable requires.
    bool directory = false;
    // Fills free pages with NaN, so that reads of them show.
    bool poison = debug;
    // For memory that is committed piece by piece: what stays committed beyond the pages in use.
    std::uint64_t spare_bytes = 128 << 20;
    // Through which such memory is committed, where ranks on GPUs launch meanwhile. Must outlive
    // the pool.
    dist::LaunchGate* gate = nullptr;
    tensor::Staging::Options staging{};  // of a device's arena
    // Of several ranks: the part of every adapter that this pool keeps. Must outlive the pool.
    // Loads take whole adapters.
    std::span<const SiteShard> shards = {};
    // On rank 0, the pools of the others, from rank 1 on, in the same kind of memory. Its adapters
    // are in all of them: each takes and gives back pages there with its own, and is ready when it
    // is ready everywhere. They must outlive this pool, and are used through it only.
    std::vector<Pool*> other_ranks = {};

    PageFormat format() const { return {dtype, experts}; }
  };

  // The arena is host memory. If it is pinned, it may be the source of loads to a device, and a
  // thread of the pool commits its memory as adapters need it. The allocator must outlive the pool.
  static Result<std::unique_ptr<Pool>> create(tensor::Allocator& allocator, const Options& options);
  // The arena is the device's memory, of any kind of device.
  static Result<std::unique_ptr<Pool>> create(tensor::Device& device, const Options& options);
  // Waits for readers and copies.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The pages that a load may take: free ones only, or also those of idle adapters.
  enum class Room : std::uint8_t { free, evict };

  // Places an adapter and pins it; returns when its bytes have arrived. If the name is taken by the
  // same content, that adapter is returned. Other content takes over the name, and the old bytes
  // are released with their last handle. `busy` while another thread loads or unloads the name;
  // `out_of_memory` if everything that could be evicted is in use.
  Result<Handle> load(std::string_view name, const Adapter& adapter, Room room = Room::evict);
  // The same from the pages of a pool in host memory with the same format and page size: a copy of
  // bytes. With other ranks the source's pool has as many: each rank copies its own part, and the
  // adapter is on all of them or on none.
  Result<Handle> load(std::string_view name, const Handle& source, Room room = Room::evict);

  // Pins an adapter that is ready. `not_found` if it is not here, `busy` while it loads or unloads.
  Result<Handle> acquire(std::string_view name);

  // From now on the name cannot be acquired; returns when its last handle has been released and its
  // pages are free. The caller must not hold a handle.
  Result<void> unload(std::string_view name);

  // Call after queueing work on `reader` that may read pages, and before releasing the handles that
  // the work depends on: pages of a handle released earlier may be overwritten under the work. The
  // streams must outlive the pool, or have finished when they are destroyed. StepTable does all
  // this.
  Result<void> mark_readers(tensor::Stream& reader);

  State state(std::string_view name) const;
  // Whether the adapter under the name is ready and has this content.
  bool holds(std::string_view name, ContentVersion version) const;

  struct Usage {
    std::uint64_t pages = 0;  // that the pool may have
    std::uint64_t free_pages = 0;
    std::uint64_t pinned_pages = 0;
    std::uint64_t replaced_pages = 0;   // of these, of content that others have replaced
    std::uint64_t committed_bytes = 0;  // allocated so far
    std::uint64_t page_bytes = 0;
    std::uint64_t evictions = 0;
    int adapters = 0;  // including replaced ones that still have handles
    int pinned_adapters = 0;
  };
  Usage usage() const;
  // Of another rank's pool, from rank 1 on: in use are the parts of adapters that are in use here.
  Usage usage_of(int rank) const;

  struct Entry {
    std::string name;
    State state = State::absent;
    ContentVersion version;
    std::uint64_t pages = 0;
    int pins = 0;
  };
  // In ascending order of name, without replaced adapters that still have handles.
  std::vector<Entry> entries() const;

  const Options& options() const { return options_; }
  DType dtype() const { return options_.dtype; }
  // The whole pages that an adapter takes in a pool with these options.
  static std::uint64_t pages_of(const Adapter& adapter, const Options& options);
  // The same of an adapter in a pool with the same format and page size: of that rank's part.
  static std::uint64_t pages_of(const Resident& source, const Options& options);

  // Aborts unless every page belongs to exactly one adapter or to none: for tests.
  void check_invariants() const;

 private:
  friend class Handle;

  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  struct Slot;
  using Slots = std::map<const Resident*, std::unique_ptr<Slot>>;
  // Without replaced adapters. Of one name the oldest first: a new one is listed while it loads.
  using Names = std::multimap<std::string_view, Slot*>;
  // Adapters in some state, counted so that no call walks through all adapters.
  struct Count {
    std::uint64_t adapters = 0;
    std::vector<std::uint64_t> pages;  // on each rank

    friend bool operator==(const Count&, const Count&) = default;
  };
  // How bytes are copied to a device's arena.
  struct Transport {
    std::unique_ptr<tensor::Stream> stream;
    std::unique_ptr<tensor::Staging> staging;
  };

  static Result<std::uint32_t> count_pages(const Options& options);
  Pool(std::unique_ptr<tensor::Reservation> arena, const Options& options, std::uint32_t pages);

  // Writes the blobs at the addresses of their runs.
  using WriteBlobs = FunctionRef<Result<void>(std::span<std::byte* const> bases, PageWriter&)>;
  struct Load {
    std::string_view name;
    ContentVersion version;
    Room room = Room::evict;
    std::vector<Handle>* other_ranks = nullptr;  // which `write` fills in
  };
  Result<Handle> load_placed(const Load& load, std::shared_ptr<const Placement> placement,
                             WriteBlobs write);
  Result<void> fill_pages(Slot& slot, std::shared_ptr<const Placement> placement, WriteBlobs write);
  // This rank's part of load(name, Handle), and the others'; the source is pinned.
  Result<Handle> load(std::string_view name, const Resident& source, Room room);
  // Loads the adapter into the pools of the other ranks, each from *source_of(rank).
  template <class SourceOf>
  Result<std::vector<Handle>> load_others(std::string_view name, const SourceOf& source_of,
                                          Room room);
  void unpin(Resident* resident);
  std::byte* address(Run run) const { return arena_.data() + run.first * options_.page_bytes; }
  // Finds pages for a slot whose name and version are set. Or returns the adapter, if its content
  // is present under its name. Releases the lock while memory is committed.
  Result<Handle> make_room(std::unique_lock<std::mutex>& held, Slot& slot,
                           std::span<const std::uint32_t> runs, Room room);

  // Everything below requires the lock.
  Slot* find_locked(std::string_view name) const;
  // The adapter under the slot's name, if its content equals the slot's; an error while it loads or
  // unloads.
  Result<Handle> find_content_locked(const Slot& slot);
  // Counts pages whose memory has been committed.
  void see_memory_locked();
  static void add_locked(Count& count, const Slot& slot);
  static void subtract_locked(Count& count, const Slot& slot);
  // Ready, and no handle pins it. The one that became so first is evicted first.
  void begin_idle_locked(Slot& slot);
  void end_idle_locked(Slot& slot);
  void evict_first_locked(Slot& idle);
  void drop_name_locked(const Slot& slot);
  std::uint64_t max_pages_locked() const;
  std::uint64_t free_pages_locked() const;
  // Takes all runs of these lengths, or none.
  bool take_pages_locked(Slot& slot, std::span<const std::uint32_t> runs);
  void give_pages_back_locked(Slot& slot);
  // Waits until the pages of the slot may be written.
  Result<void> hold_back_locked(const Slot& slot);
  // Evicts the least recently used idle adapter; false if there is none.
  bool evict_one_locked();
  // Whether the pool of another rank could have so many free pages if all idle adapters were
  // evicted.
  bool can_free_locked(int rank, std::uint64_t pages) const;
  const Pool& pool_of(int rank) const {
    return *options_.other_ranks[static_cast<std::size_t>(rank - 1)];
  }
  void free_locked(Slot* slot);
  void poison_locked(std::byte* data, std::size_t bytes, std::uint64_t mark);
  Error no_room_locked(std::string_view name, std::uint64_t needed) const;
  Handle pin_locked(Slot& slot);
  std::optional<std::uint32_t> take_run_locked(std::uint32_t count);

  Options options_;
  PageMemory arena_;
  Transport transport_;     // empty: the arena is in host memory
  bool keeps_idle_ = true;  // false: another rank's, whose adapters go with rank 0's handles

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::vector<bool> taken_;                // by page: whether an adapter has it
  std::vector<std::uint64_t> last_marks_;  // by page: the mark at which it was released
  std::uint32_t usable_pages_ = 0;         // from the front: their memory is committed
  std::uint32_t free_pages_;               // of all pages, usable or not
  std::uint32_t lowest_free_ = 0;          // no page below it is free
  Slots slots_;
  Names names_;
  Count pinned_;
  std::uint64_t replaced_pages_ = 0;  // of replaced adapters, all of which have handles
  Count idle_;
  Slot* idle_first_ = nullptr;
  Slot* idle_last_ = nullptr;
  PageReaders readers_;
  std::uint64_t next_id_ = 1;
  std::uint64_t evictions_ = 0;
};

}  // namespace motley::lora
