#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "lora/adapter.h"
#include "lora/resident.h"
#include "tensor/buffer.h"

namespace motley::lora {

class Pool;

// Pins an adapter in its pool: as long as a handle lives, the bytes stay. Copies are cheap. It must
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

enum class State : std::uint8_t { missing, loading, ready, unloading };
std::string_view name(State state);

// Adapters in equal pages of one arena. A blob (one factor, table or vector) is contiguous and
// begins at a multiple of `blob_alignment`; small blobs of one adapter share a page, a large one
// takes a run of pages. Ranks are rounded up to 8 with zeros, nothing else is padded, nothing is
// moved. Idle adapters stay until their room is needed, and the one used longest ago goes first.
//
// Safe to call from any thread; no call keeps the lock while bytes are copied.
class Pool {
 public:
  static constexpr std::size_t blob_alignment = 64;

  struct Options {
    std::uint64_t bytes = 0;  // rounded down to whole pages, at least one
    std::uint64_t page_bytes = 256 << 10;
    DType dtype = DType::f32;  // of factors and tables: f32 or bf16; vectors are always f32
  };

  // The allocator must outlive the pool.
  static Result<std::unique_ptr<Pool>> create(tensor::Allocator& allocator, const Options& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Places an adapter and pins it. Under a name that is taken, the same content is the adapter that
  // is there; other content takes the name over, and the old bytes go when their last handle goes.
  // `busy` while another thread loads or unloads the name; `out_of_memory` where everything that
  // could make room is in use.
  Result<Handle> load(std::string_view name, const Adapter& adapter);

  // Pins an adapter that is ready; `not_found` where it is not here, `busy` while it loads or goes.
  Result<Handle> acquire(std::string_view name);

  // Nobody can acquire the name from now on; returns when its last handle has gone and its pages
  // are free. The caller must hold none itself.
  Result<void> unload(std::string_view name);

  State state(std::string_view name) const;

  struct Usage {
    std::uint64_t pages = 0;
    std::uint64_t free_pages = 0;
    std::uint64_t pinned_pages = 0;
    std::uint64_t page_bytes = 0;
    std::uint64_t evictions = 0;
    int adapters = 0;  // replaced ones that still have handles included
    int pinned_adapters = 0;
  };
  Usage usage() const;

  struct Entry {
    std::string name;
    State state = State::missing;
    ContentVersion version;
    std::uint64_t pages = 0;
    int pins = 0;
  };
  // In ascending order of name; replaced adapters that still have handles are not among them.
  std::vector<Entry> entries() const;

  DType dtype() const { return options_.dtype; }
  // What an adapter takes of a pool with these options, in whole pages.
  static std::uint64_t pages_of(const Adapter& adapter, const Options& options);

  // Aborts unless every page belongs to exactly one adapter or to nobody: for tests.
  void check_invariants() const;

 private:
  friend class Handle;

  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  struct Slot;

  Pool(tensor::Buffer arena, const Options& options, std::uint32_t pages);

  void unpin(Resident* resident);

  // All below: with the lock held.
  Slot* find_locked(std::string_view name) const;
  // All runs of these lengths, or none.
  bool take_pages_locked(Slot& slot, std::span<const std::uint32_t> runs);
  void give_pages_back_locked(Slot& slot);
  // The idle adapter used longest ago goes; whether there was one.
  bool evict_one_locked();
  void free_locked(Slot* slot);
  Error no_room_locked(std::string_view name, std::uint64_t needed) const;
  Handle pin_locked(Slot& slot);
  std::optional<std::uint32_t> take_run_locked(std::uint32_t count);

  Options options_;
  tensor::Buffer arena_;

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::vector<bool> taken_;  // page -> whether it belongs to somebody
  std::uint32_t free_pages_;
  std::uint32_t lowest_free_ = 0;  // no page below it is free
  std::vector<std::unique_ptr<Slot>> slots_;
  std::uint64_t next_id_ = 1;
  std::uint64_t clock_ = 0;
  std::uint64_t evictions_ = 0;
};

}  // namespace motley::lora
