#include "lora/pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/units.h"
#include "lora/placement.h"

namespace motley::lora {

// One adapter of the pool: what readers see, and the pages that it owns.
struct Pool::Slot {
  Resident resident;
  State state = State::loading;
  bool replaced = false;  // another one has taken the name over
  std::vector<Run> runs;
  std::uint64_t pages = 0;
  std::uint64_t last_used = 0;
};

namespace {

// Freed and unused pages, so that reading them shows: all ones is NaN in every dtype.
void poison([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MOTLEY_DEBUG
  std::memset(data, 0xFF, bytes);
#endif
}

}  // namespace

std::string_view name(State state) {
  switch (state) {
    case State::missing:
      return "missing";
    case State::loading:
      return "loading";
    case State::ready:
      return "ready";
    case State::unloading:
      return "unloading";
  }
  MOTLEY_CHECK(false, "a State without a name");
}

Handle::Handle(const Handle& other) : resident_(other.resident_) {
  // Somebody else's pin keeps it alive, so no lock is needed to add one.
  if (resident_ != nullptr) resident_->pins_.fetch_add(1, std::memory_order_relaxed);
}
Handle::Handle(Handle&& other) noexcept : resident_(std::exchange(other.resident_, nullptr)) {}
Handle& Handle::operator=(Handle other) noexcept {
  std::swap(resident_, other.resident_);
  return *this;
}
Handle::~Handle() {
  if (resident_ != nullptr) resident_->pool_->unpin(resident_);
}

Result<std::unique_ptr<Pool>> Pool::create(tensor::Allocator& allocator, const Options& options) {
  MOTLEY_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16, "pages of f32 or bf16");
  MOTLEY_CHECK(allocator.id().kind == tensor::DeviceKind::cpu, "an arena in the host's memory");
  MOTLEY_CHECK(options.page_bytes > 0 && options.page_bytes % blob_alignment == 0,
               "pages of whole alignments");
  const std::uint64_t pages = options.bytes / options.page_bytes;
  if (pages == 0 || pages > UINT32_MAX) {
    return Error(ErrorCode::invalid_argument,
                 cat("adapter memory of ", format_bytes(options.bytes), " is ", pages, " pages of ",
                     format_bytes(options.page_bytes)),
                 "--adapter-memory", "give room for at least one page");
  }
  MOTLEY_TRY(tensor::Buffer arena, allocator.allocate(pages * options.page_bytes));
  return std::unique_ptr<Pool>(
      new Pool(std::move(arena), options, static_cast<std::uint32_t>(pages)));
}

Pool::Pool(tensor::Buffer arena, const Options& options, std::uint32_t pages)
    : options_(options), arena_(std::move(arena)), taken_(pages, false), free_pages_(pages) {
  poison(arena_.data(), arena_.size());
}

Pool::~Pool() {
  for (const auto& slot : slots_)
    MOTLEY_CHECK(slot->resident.pins_.load() == 0, "handles go before their pool");
}

std::uint64_t Pool::pages_of(const Adapter& adapter, const Options& options) {
  return place_blobs(adapter, options.dtype, options.page_bytes).pages();
}

std::optional<std::uint32_t> Pool::take_run_locked(std::uint32_t count) {
  std::uint32_t length = 0;
  while (lowest_free_ < taken_.size() && taken_[lowest_free_]) ++lowest_free_;
  for (std::uint32_t page = lowest_free_; page < taken_.size(); ++page) {
    length = taken_[page] ? 0 : length + 1;
    if (length < count) continue;
    const std::uint32_t first = page + 1 - count;
    for (std::uint32_t i = first; i <= page; ++i) taken_[i] = true;
    free_pages_ -= count;
    return first;
  }
  return std::nullopt;
}

bool Pool::take_pages_locked(Slot& slot, std::span<const std::uint32_t> runs) {
  for (const std::uint32_t count : runs) {
    const auto first = take_run_locked(count);
    if (!first) {
      give_pages_back_locked(slot);
      return false;
    }
    slot.runs.push_back({*first, count});
    slot.pages += count;
  }
  return true;
}

void Pool::give_pages_back_locked(Slot& slot) {
  for (const Run run : slot.runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) taken_[run.first + i] = false;
    poison(arena_.data() + run.first * options_.page_bytes, run.count * options_.page_bytes);
    free_pages_ += run.count;
    lowest_free_ = std::min(lowest_free_, run.first);
  }
  slot.runs.clear();
  slot.pages = 0;
}

bool Pool::evict_one_locked() {
  Slot* oldest = nullptr;
  for (const auto& slot : slots_) {
    if (slot->state != State::ready || slot->resident.pins_.load() != 0) continue;
    if (oldest == nullptr || slot->last_used < oldest->last_used) oldest = slot.get();
  }
  if (oldest == nullptr) return false;
  ++evictions_;
  free_locked(oldest);
  return true;
}

void Pool::free_locked(Slot* slot) {
  give_pages_back_locked(*slot);
  std::erase_if(slots_, [&](const auto& owned) { return owned.get() == slot; });
  changed_.notify_all();
}

Pool::Slot* Pool::find_locked(std::string_view name) const {
  for (const auto& slot : slots_) {
    if (!slot->replaced && slot->resident.name_ == name) return slot.get();
  }
  return nullptr;
}

Handle Pool::pin_locked(Slot& slot) {
  slot.resident.pins_.fetch_add(1, std::memory_order_relaxed);
  slot.last_used = ++clock_;
  return Handle(&slot.resident);
}

void Pool::unpin(Resident* resident) {
  // The last pin goes under the lock, so that who holds the lock can believe a count of zero.
  std::uint32_t pins = resident->pins_.load(std::memory_order_relaxed);
  while (pins > 1) {
    if (resident->pins_.compare_exchange_weak(pins, pins - 1, std::memory_order_acq_rel)) return;
  }
  const std::lock_guard held(lock_);
  if (resident->pins_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const auto found =
      std::ranges::find_if(slots_, [&](const auto& slot) { return &slot->resident == resident; });
  MOTLEY_CHECK(found != slots_.end(), "a pinned adapter is in its pool");
  Slot& slot = **found;
  slot.last_used = ++clock_;
  if (slot.state == State::unloading) {
    changed_.notify_all();  // who unloads it waits, and frees it
  } else if (slot.replaced) {
    free_locked(&slot);
  }
}

Error Pool::no_room_locked(std::string_view name, std::uint64_t needed) const {
  std::uint64_t pinned = 0;
  int adapters = 0;
  for (const auto& slot : slots_) {
    if (slot->resident.pins_.load() == 0 && slot->state == State::ready) continue;
    pinned += slot->pages;
    ++adapters;
  }
  const auto bytes = [&](std::uint64_t pages) { return format_bytes(pages * options_.page_bytes); };
  return Error(ErrorCode::out_of_memory,
               cat("adapter ", quote(name), " takes ", bytes(needed), ", and of ",
                   bytes(taken_.size()), " for adapters ", bytes(pinned), " are in use by ",
                   adapters, adapters == 1 ? " adapter" : " adapters"),
               "--adapter-memory", "give more memory to adapters or use fewer at once");
}

Result<Handle> Pool::load(std::string_view name, const Adapter& adapter) {
  const Placement placement = place_blobs(adapter, options_.dtype, options_.page_bytes);
  auto owned = std::make_unique<Slot>();
  Slot& slot = *owned;
  {
    const std::unique_lock held(lock_);
    for (const auto& other : slots_) {
      if (other->resident.name_ != name || other->replaced) continue;
      if (other->state != State::ready) {
        return Error(ErrorCode::busy,
                     cat("adapter ", quote(name), " is ", lora::name(other->state)), {},
                     "try again");
      }
      if (other->resident.version_ == adapter.version) return pin_locked(*other);
    }
    // What can never fit, or not while others are in use, evicts nobody.
    std::uint64_t idle = 0;
    for (const auto& other : slots_) {
      if (other->state == State::ready && other->resident.pins_.load() == 0) idle += other->pages;
    }
    if (placement.pages() > free_pages_ + idle) return no_room_locked(name, placement.pages());
    // The old content under this name is on its way out: it goes first.
    Slot* const old = find_locked(name);
    if (old != nullptr && old->resident.pins_.load() == 0) old->last_used = 0;
    while (!take_pages_locked(slot, placement.runs)) {
      if (!evict_one_locked()) return no_room_locked(name, placement.pages());
    }
    slot.resident.pool_ = this;
    slot.resident.id_ = next_id_++;
    slot.resident.name_ = name;
    slot.resident.version_ = adapter.version;
    slot.resident.dtype_ = options_.dtype;
    // Listed from here on; find_locked() gives the old one as long as there is one.
    slots_.push_back(std::move(owned));
  }

  std::vector<std::byte*> bases;
  for (const Run run : slot.runs) bases.push_back(arena_.data() + run.first * options_.page_bytes);
  write_blobs(adapter, placement, options_.dtype, bases);
  slot.resident.describe(adapter, placement, bases);

  const std::lock_guard held(lock_);
  for (const auto& other : slots_) {
    if (other.get() == &slot || other->replaced || other->resident.name_ != name) continue;
    other->replaced = true;
    const bool idle = other->resident.pins_.load() == 0;
    if (idle && other->state != State::unloading) free_locked(other.get());
    break;
  }
  slot.state = State::ready;
  changed_.notify_all();
  return pin_locked(slot);
}

Result<Handle> Pool::acquire(std::string_view name) {
  const std::lock_guard held(lock_);
  Slot* const slot = find_locked(name);
  if (slot == nullptr) {
    return Error(ErrorCode::not_found, cat("no adapter ", quote(name), " is loaded"));
  }
  if (slot->state != State::ready) {
    return Error(ErrorCode::busy, cat("adapter ", quote(name), " is ", lora::name(slot->state)), {},
                 "try again");
  }
  return pin_locked(*slot);
}

Result<void> Pool::unload(std::string_view name) {
  std::unique_lock held(lock_);
  Slot* const slot = find_locked(name);
  if (slot == nullptr) {
    return Error(ErrorCode::not_found, cat("no adapter ", quote(name), " is loaded"));
  }
  if (slot->state != State::ready) {
    return Error(ErrorCode::busy, cat("adapter ", quote(name), " is ", lora::name(slot->state)), {},
                 "try again");
  }
  slot->state = State::unloading;
  changed_.wait(held, [&] { return slot->resident.pins_.load() == 0; });
  free_locked(slot);
  return {};
}

State Pool::state(std::string_view name) const {
  const std::lock_guard held(lock_);
  const Slot* const slot = find_locked(name);
  return slot == nullptr ? State::missing : slot->state;
}

Pool::Usage Pool::usage() const {
  const std::lock_guard held(lock_);
  Usage usage;
  usage.pages = taken_.size();
  usage.free_pages = free_pages_;
  usage.page_bytes = options_.page_bytes;
  usage.evictions = evictions_;
  usage.adapters = static_cast<int>(slots_.size());
  for (const auto& slot : slots_) {
    if (slot->resident.pins_.load() == 0) continue;
    ++usage.pinned_adapters;
    usage.pinned_pages += slot->pages;
  }
  return usage;
}

std::vector<Pool::Entry> Pool::entries() const {
  std::vector<Entry> entries;
  {
    const std::lock_guard held(lock_);
    for (const auto& slot : slots_) {
      if (slot->replaced) continue;
      entries.push_back({slot->resident.name_, slot->state, slot->resident.version_, slot->pages,
                         static_cast<int>(slot->resident.pins_.load())});
    }
  }
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

void Pool::check_invariants() const {
  const std::lock_guard held(lock_);
  std::vector<const Slot*> owner(taken_.size(), nullptr);
  for (const auto& slot : slots_) {
    std::uint64_t pages = 0;
    for (const Run run : slot->runs) {
      for (std::uint32_t i = 0; i < run.count; ++i) {
        MOTLEY_CHECK(run.first + i < owner.size(), "a page of the arena");
        MOTLEY_CHECK(owner[run.first + i] == nullptr, "a page belongs to one adapter");
        owner[run.first + i] = slot.get();
      }
      pages += run.count;
    }
    MOTLEY_CHECK(pages == slot->pages, "an adapter counts its own pages");
  }
  std::uint64_t free = 0;
  for (std::size_t page = 0; page < owner.size(); ++page) {
    MOTLEY_CHECK((owner[page] != nullptr) == taken_[page], "taken pages have an owner");
    free += taken_[page] ? 0U : 1U;
  }
  MOTLEY_CHECK(free == free_pages_, "free pages are counted");
}

}  // namespace motley::lora
