#include "lora/pages/pool.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/out_of_memory.h"
#include "base/units.h"
#include "lora/pages/blobs.h"
#include "lora/pages/pool_slot.h"
#include "lora/shard.h"

namespace motley::lora {

namespace {

// The runs of the blobs, and one for the directory.
std::vector<std::uint32_t> runs_of(const Placement& placement, const Pool::Options& options) {
  std::vector<std::uint32_t> runs = placement.runs;
  const std::size_t bytes = options.directory ? Resident::directory_bytes(placement) : 0;
  if (bytes > 0)
    runs.push_back(
        static_cast<std::uint32_t>((bytes + options.page_bytes - 1) / options.page_bytes));
  return runs;
}

std::uint64_t sum(std::span<const std::uint32_t> runs) {
  return std::accumulate(runs.begin(), runs.end(), std::uint64_t{0});
}

}  // namespace

std::string_view name(State state) {
  switch (state) {
    case State::absent:
      return "absent";
    case State::loading:
      return "loading";
    case State::ready:
      return "ready";
    case State::closing:
      return "closing";
  }
  MOTLEY_CHECK(false, "a State without a name");
}

Handle::Handle(const Handle& other) : resident_(other.resident_) {
  // Another pin keeps it alive, so adding one needs no lock.
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

Result<std::uint32_t> Pool::count_pages(const Options& options) {
  MOTLEY_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16 ||
                   options.dtype == DType::f8_e4m3,
               "pages of f32, bf16 or f8_e4m3");
  MOTLEY_CHECK(options.experts == Layout::rows || options.dtype != DType::f32,
               "packed factors of bf16 or f8_e4m3");
  MOTLEY_CHECK(options.page_bytes > 0 && options.page_bytes % blob_alignment == 0,
               "pages of whole alignments");
  const std::uint64_t pages = options.bytes / options.page_bytes;
  if (pages == 0)
    return Error(ErrorCode::invalid_argument,
                 cat(format_bytes(options.bytes), " hold no page of adapters, which takes ",
                     format_bytes(options.page_bytes)),
                 "--adapter-memory", "give more");
  if (pages > UINT32_MAX)
    return Error(ErrorCode::invalid_argument,
                 cat(format_bytes(options.bytes), " are more than pages of ",
                     format_bytes(options.page_bytes), " can have numbers"),
                 "--adapter-memory",
                 cat("give at most ", format_bytes(UINT32_MAX * options.page_bytes)));
  return static_cast<std::uint32_t>(pages);
}

Result<std::unique_ptr<Pool>> Pool::create(tensor::Allocator& allocator, const Options& options) {
  MOTLEY_CHECK(allocator.id().kind == tensor::DeviceKind::cpu, "an arena in the host's memory");
  MOTLEY_TRY(const std::uint32_t pages, count_pages(options));
  MOTLEY_TRY(std::unique_ptr<tensor::Reservation> arena,
             allocator.reserve(pages * options.page_bytes));
  auto pool = std::unique_ptr<Pool>(new Pool(std::move(arena), options, pages));
  pool->see_memory_locked();
  return pool;
}

Result<std::unique_ptr<Pool>> Pool::create(tensor::Device& device, const Options& options) {
  if (device.id().kind == tensor::DeviceKind::cpu)
    return create(static_cast<tensor::Allocator&>(device), options);
  MOTLEY_TRY(const std::uint32_t pages, count_pages(options));
  MOTLEY_CHECK(options.staging.piece_bytes >= PageWriter::max_bytes, "pieces for any write");
  Transport transport;
  MOTLEY_TRY(transport.stream, device.create_stream());
  MOTLEY_TRY(transport.staging, tensor::Staging::create(device, options.staging));
  MOTLEY_TRY(std::unique_ptr<tensor::Reservation> arena,
             device.reserve(pages * options.page_bytes));
  auto pool = std::unique_ptr<Pool>(new Pool(std::move(arena), options, pages));
  pool->transport_ = std::move(transport);
  pool->see_memory_locked();
  return pool;
}

Pool::Pool(std::unique_ptr<tensor::Reservation> arena, const Options& options, std::uint32_t pages)
    : options_(options),
      arena_(std::move(arena), {.spare = options.spare_bytes, .gate = options.gate}),
      taken_(pages, false),
      last_marks_(pages, 0),
      free_pages_(pages) {
  pinned_.pages.resize(options.other_ranks.size() + 1);
  idle_.pages.resize(options.other_ranks.size() + 1);
  for (Pool* const other : options_.other_ranks) other->keeps_idle_ = false;
}

Pool::~Pool() {
  MOTLEY_CHECK(pinned_.adapters == 0, "handles go before their pool");
  // Errors are final for the device; the next call on it reports them.
  static_cast<void>(readers_.synchronize().ok());
  if (transport_.stream != nullptr) static_cast<void>(transport_.stream->synchronize().ok());
}

std::uint64_t Pool::pages_of(const Adapter& adapter, const Options& options) {
  if (!options.shards.empty()) {
    const Adapter own = shard_of(adapter, options.shards);
    return sum(runs_of(place_blobs(own, options.format(), options.page_bytes), options));
  }
  return sum(runs_of(place_blobs(adapter, options.format(), options.page_bytes), options));
}

std::uint64_t Pool::pages_of(const Resident& source, const Options& options) {
  return sum(runs_of(*source.placement_, options));
}

void Pool::see_memory_locked() {
  const auto pages = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(arena_.committed() / options_.page_bytes, taken_.size()));
  if (pages == usable_pages_) return;
  const Run fresh{usable_pages_, pages - usable_pages_};
  usable_pages_ = pages;
  poison_locked(address(fresh), fresh.count * options_.page_bytes, 0);
}

std::uint64_t Pool::max_pages_locked() const {
  return std::min<std::uint64_t>(arena_.limit() / options_.page_bytes, taken_.size());
}

std::uint64_t Pool::free_pages_locked() const {
  return free_pages_ - (taken_.size() - max_pages_locked());
}

std::optional<std::uint32_t> Pool::take_run_locked(std::uint32_t count) {
  std::uint32_t length = 0;
  while (lowest_free_ < usable_pages_ && taken_[lowest_free_]) ++lowest_free_;
  for (std::uint32_t page = lowest_free_; page < usable_pages_; ++page) {
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
    arena_.use((std::size_t{*first} + count) * options_.page_bytes);
  }
  return true;
}

void Pool::give_pages_back_locked(Slot& slot) {
  for (const Run run : slot.runs) {
    std::uint64_t mark = slot.last_mark;
    for (std::uint32_t page = run.first; page < run.first + run.count; ++page) {
      taken_[page] = false;
      // Even pages that were taken and never used may still be read by earlier readers.
      mark = std::max(mark, last_marks_[page]);
    }
    for (std::uint32_t i = 0; i < run.count; ++i) last_marks_[run.first + i] = mark;
    poison_locked(address(run), run.count * options_.page_bytes, mark);
    free_pages_ += run.count;
    lowest_free_ = std::min(lowest_free_, run.first);
  }
  slot.runs.clear();
  slot.pages = 0;
}

Result<void> Pool::hold_back_locked(const Slot& slot) {
  if (transport_.stream == nullptr) return {};
  std::uint64_t mark = 0;
  for (const Run run : slot.runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) mark = std::max(mark, last_marks_[run.first + i]);
  }
  return readers_.hold_back(*transport_.stream, mark);
}

// All ones is NaN in every dtype.
void Pool::poison_locked(std::byte* data, std::size_t bytes, std::uint64_t mark) {
  constexpr int nan = 0xFF;
  if (!options_.poison) return;
  if (transport_.stream == nullptr) {
    std::memset(data, nan, bytes);
    return;
  }
  // An error is final for the device; the load that takes these pages reports it.
  if (!readers_.hold_back(*transport_.stream, mark).ok()) return;
  static_cast<void>(transport_.stream->fill(data, std::byte{nan}, bytes).ok());
}

void Pool::add_locked(Count& count, const Slot& slot) {
  ++count.adapters;
  for (std::size_t rank = 0; rank < count.pages.size(); ++rank)
    count.pages[rank] += slot.resident.shard(static_cast<int>(rank)).pages();
}

void Pool::subtract_locked(Count& count, const Slot& slot) {
  --count.adapters;
  for (std::size_t rank = 0; rank < count.pages.size(); ++rank)
    count.pages[rank] -= slot.resident.shard(static_cast<int>(rank)).pages();
}

void Pool::begin_idle_locked(Slot& slot) {
  slot.idle = true;
  slot.before = idle_last_;
  slot.after = nullptr;
  (idle_last_ == nullptr ? idle_first_ : idle_last_->after) = &slot;
  idle_last_ = &slot;
  add_locked(idle_, slot);
}

void Pool::end_idle_locked(Slot& slot) {
  if (!std::exchange(slot.idle, false)) return;
  (slot.before == nullptr ? idle_first_ : slot.before->after) = slot.after;
  (slot.after == nullptr ? idle_last_ : slot.after->before) = slot.before;
  subtract_locked(idle_, slot);
}

void Pool::evict_first_locked(Slot& idle) {
  end_idle_locked(idle);
  begin_idle_locked(idle);
  if (idle_first_ == &idle) return;
  // From the end of the list to its begin.
  idle_last_ = idle.before;
  idle_last_->after = nullptr;
  idle.before = nullptr;
  idle.after = idle_first_;
  idle_first_->before = &idle;
  idle_first_ = &idle;
}

bool Pool::evict_one_locked() {
  if (idle_first_ == nullptr) return false;
  ++evictions_;
  free_locked(idle_first_);
  return true;
}

bool Pool::can_free_locked(int rank, std::uint64_t pages) const {
  return pages <= pool_of(rank).usage().free_pages + idle_.pages[static_cast<std::size_t>(rank)];
}

void Pool::drop_name_locked(const Slot& slot) {
  const auto [first, last] = names_.equal_range(slot.resident.name_);
  const auto own =
      std::find_if(first, last, [&](const auto& each) { return each.second == &slot; });
  if (own != last) names_.erase(own);
}

void Pool::free_locked(Slot* slot) {
  end_idle_locked(*slot);
  give_pages_back_locked(*slot);
  drop_name_locked(*slot);
  slots_.erase(&slot->resident);
  changed_.notify_all();
}

Pool::Slot* Pool::find_locked(std::string_view name) const {
  const auto found = names_.lower_bound(name);
  return found == names_.end() || found->first != name ? nullptr : found->second;
}

Handle Pool::pin_locked(Slot& slot) {
  if (slot.resident.pins_.fetch_add(1, std::memory_order_relaxed) == 0) {
    end_idle_locked(slot);
    add_locked(pinned_, slot);
  }
  return Handle(&slot.resident);
}

void Pool::unpin(Resident* resident) {
  // The last pin is released under the lock, so that a count of zero is reliable under it.
  std::uint32_t pins = resident->pins_.load(std::memory_order_relaxed);
  while (pins > 1) {
    if (resident->pins_.compare_exchange_weak(pins, pins - 1, std::memory_order_acq_rel)) return;
  }
  const std::lock_guard held(lock_);
  if (resident->pins_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const auto found = slots_.find(resident);
  MOTLEY_CHECK(found != slots_.end(), "a pinned adapter is in its pool");
  Slot& slot = *found->second;
  subtract_locked(pinned_, slot);
  slot.last_mark = readers_.latest();
  if (slot.state == State::closing) {
    changed_.notify_all();  // unload() waits, and frees it
  } else if (slot.replaced || !keeps_idle_) {
    if (slot.replaced) replaced_pages_ -= slot.pages;
    free_locked(&slot);
  } else {
    begin_idle_locked(slot);
  }
}

Error Pool::no_room_locked(std::string_view name, std::uint64_t needed) const {
  // In use, or on their way.
  const std::uint64_t pinned = taken_.size() - free_pages_ - idle_.pages.front();
  const std::uint64_t adapters = slots_.size() - idle_.adapters;
  const auto bytes = [&](std::uint64_t pages) { return format_bytes(pages * options_.page_bytes); };
  return Error(ErrorCode::out_of_memory,
               cat("adapter ", quote(name), " takes ", bytes(needed), ", and of ",
                   bytes(max_pages_locked()), " for adapters ", bytes(pinned), " are in use by ",
                   adapters, adapters == 1 ? " adapter" : " adapters"),
               "--adapter-memory", "give more memory to adapters or use fewer at once");
}

Result<Handle> Pool::load(std::string_view name, const Adapter& adapter, Room room) {
  std::optional<Adapter> shard;
  if (!options_.shards.empty()) shard = shard_of(adapter, options_.shards);
  const Adapter& own = shard ? *shard : adapter;
  const auto placement =
      std::make_shared<const Placement>(place_blobs(own, options_.format(), options_.page_bytes));
  std::vector<Handle> others;
  return load_placed({name, adapter.version, room, &others}, placement,
                     [&](std::span<std::byte* const> bases, PageWriter& writer) -> Result<void> {
                       const auto whole = [&](int) { return &adapter; };
                       MOTLEY_TRY(others, load_others(name, whole, room));
                       return write_blobs(own, *placement, bases, writer);
                     });
}

template <class SourceOf>
Result<std::vector<Handle>> Pool::load_others(std::string_view name, const SourceOf& source_of,
                                              Room room) {
  std::vector<Handle> handles;
  for (Pool* const other : options_.other_ranks) {
    const int rank = static_cast<int>(handles.size()) + 1;
    const auto& source = *source_of(rank);
    for (;;) {
      auto handle = other->load(name, source, room);
      if (handle.ok()) {
        handles.push_back(*std::move(handle));
        break;
      }
      // Its pages are taken by adapters of this pool.
      const bool is_full = handle.error().code() == ErrorCode::out_of_memory;
      bool evicted = false;
      if (is_full && room == Room::evict) {
        const std::uint64_t pages = pages_of(source, other->options());
        const std::lock_guard held(lock_);
        evicted = can_free_locked(rank, pages) && evict_one_locked();
      }
      if (!evicted) return std::move(handle).error().within(cat("rank ", rank));
    }
  }
  return handles;
}

Result<Handle> Pool::load(std::string_view name, const Handle& source, Room room) {
  return load(name, *source, room);
}

Result<Handle> Pool::load(std::string_view name, const Resident& source, Room room) {
  const Pool& from = *source.pool_;
  MOTLEY_CHECK(from.options_.other_ranks.size() == options_.other_ranks.size(),
               "a source on as many ranks");
  MOTLEY_CHECK(from.options_.format() == options_.format() &&
                   from.options_.page_bytes == options_.page_bytes &&
                   from.transport_.stream == nullptr,
               "a source in the host's memory whose pages are like these");
  std::vector<Handle> others;
  const auto copy_runs = [&](std::span<std::byte* const> bases, PageWriter&) -> Result<void> {
    const std::span<const std::uint32_t> runs = source.placement_->runs;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::size_t bytes = runs[i] * options_.page_bytes;
      const std::byte* const run = source.bases_[i];
      if (transport_.stream == nullptr) {
        std::memcpy(bases[i], run, bytes);
      } else if (from.arena_.pinned()) {
        MOTLEY_TRY_VOID(
            from.arena_.each_part(run, bytes, [&](std::size_t offset, std::size_t count) {
              return transport_.stream->copy(bases[i] + offset, run + offset, count);
            }));
      } else {
        MOTLEY_TRY_VOID(transport_.staging->copy(*transport_.stream, bases[i], run, bytes));
      }
    }
    // While these copies are under way.
    MOTLEY_TRY(others, load_others(name, [&](int rank) { return &source.shard(rank); }, room));
    return {};
  };
  return load_placed({name, source.version(), room, &others}, source.placement_, copy_runs);
}

Result<Handle> Pool::find_content_locked(const Slot& slot) {
  const std::string_view name = slot.resident.name_;
  const auto [first, last] = names_.equal_range(name);
  for (Slot* const other : std::ranges::subrange(first, last) | std::views::values) {
    if (other->state != State::ready) {
      return Error(ErrorCode::busy, cat("adapter ", quote(name), " is ", lora::name(other->state)),
                   {}, "try again");
    }
    if (other->resident.version_ == slot.resident.version_) return pin_locked(*other);
  }
  return Handle();
}

Result<Handle> Pool::make_room(std::unique_lock<std::mutex>& held, Slot& slot,
                               std::span<const std::uint32_t> runs, Room room) {
  const std::string_view name = slot.resident.name_;
  const std::uint64_t pages = sum(runs);
  for (;;) {
    MOTLEY_TRY(Handle there, find_content_locked(slot));
    if (there) return there;
    // A load that can never fit, or not while others are in use, evicts nothing.
    const std::uint64_t idle = room == Room::evict ? idle_.pages.front() : 0;
    if (pages > free_pages_locked() + idle) return no_room_locked(name, pages);
    // The old content under this name will be released: it is evicted first.
    Slot* const old = find_locked(name);
    if (old != nullptr && old->idle) evict_first_locked(*old);
    see_memory_locked();
    if (take_pages_locked(slot, runs)) return Handle();
    // Commits memory before an adapter is evicted.
    if (usable_pages_ < max_pages_locked()) {
      const std::size_t bytes = (usable_pages_ + pages) * options_.page_bytes;
      held.unlock();
      arena_.wait_for(bytes);
      held.lock();
    } else if (room == Room::free || !evict_one_locked()) {
      return no_room_locked(name, pages);
    }
  }
}

Result<Handle> Pool::load_placed(const Load& load, std::shared_ptr<const Placement> placement,
                                 WriteBlobs write) {
  const std::vector<std::uint32_t> runs = runs_of(*placement, options_);
  auto owned = std::make_unique<Slot>();
  Slot& slot = *owned;
  slot.resident.pool_ = this;
  slot.resident.name_ = load.name;
  // Allocated first: pages that are taken must be listed even if memory runs out.
  Slots listed;
  listed.emplace(&slot.resident, std::move(owned));
  Names named;
  named.emplace(slot.resident.name_, &slot);
  slot.resident.version_ = load.version;
  slot.resident.dtype_ = options_.dtype;
  slot.runs.reserve(runs.size());
  {
    std::unique_lock held(lock_);
    MOTLEY_TRY(Handle there, make_room(held, slot, runs, load.room));
    if (there) return there;
    slot.resident.id_ = next_id_++;
    slot.resident.pages_ = slot.pages;
    // Listed from here on; find_locked() returns the old adapter as long as there is one.
    slots_.merge(listed);
    names_.merge(named);
  }

  Result<void> filled =
      within_memory([&] { return fill_pages(slot, std::move(placement), write); });

  const std::lock_guard held(lock_);
  if (!filled.ok()) {
    free_locked(&slot);
    return std::move(filled).error();
  }
  if (Slot* const other = find_locked(load.name); other != &slot) {
    other->replaced = true;
    drop_name_locked(*other);
    const bool idle = other->resident.pins_.load() == 0;
    if (idle && other->state != State::closing) free_locked(other);
    if (!idle && other->state != State::closing) replaced_pages_ += other->pages;
  }
  if (load.other_ranks != nullptr) slot.other_ranks = std::move(*load.other_ranks);
  for (const Handle& other : slot.other_ranks) slot.resident.other_ranks_.push_back(other.get());
  slot.state = State::ready;
  changed_.notify_all();
  return pin_locked(slot);
}

Result<void> Pool::fill_pages(Slot& slot, std::shared_ptr<const Placement> placement,
                              WriteBlobs write) {
  std::vector<std::byte*> bases;
  for (const Run run : slot.runs) bases.push_back(address(run));
  const bool has_directory = bases.size() > placement->runs.size();
  std::byte* const directory = has_directory ? bases.back() : nullptr;
  if (has_directory) bases.pop_back();
  slot.resident.describe(std::move(placement), bases);
  std::vector<std::byte> entries;
  if (has_directory) entries = slot.resident.write_directory(directory);

  if (transport_.stream == nullptr) {
    PageWriter writer;
    MOTLEY_TRY_VOID(write(bases, writer));
    if (has_directory) std::ranges::copy(entries, directory);
    return {};
  }
  {
    const std::lock_guard held(lock_);
    MOTLEY_TRY_VOID(hold_back_locked(slot));
  }
  tensor::Stream& stream = *transport_.stream;
  PageWriter writer(*transport_.staging, stream);
  Result<void> written = within_memory([&]() -> Result<void> {
    MOTLEY_TRY_VOID(write(bases, writer));
    MOTLEY_TRY_VOID(writer.finish());
    if (!has_directory) return {};
    return transport_.staging->copy(stream, directory, entries.data(), entries.size());
  });
  // Also after an error: copies in flight must not arrive in pages of another adapter, nor read
  // pages of a source that has been released.
  MOTLEY_TRY(const std::unique_ptr<tensor::Event> arrived, stream.record());
  MOTLEY_TRY_VOID(arrived->synchronize());
  return written;
}

Result<void> Pool::mark_readers(tensor::Stream& reader) {
  const std::lock_guard held(lock_);
  return readers_.mark(reader);
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
  slot->state = State::closing;
  end_idle_locked(*slot);
  changed_.wait(held, [&] { return slot->resident.pins_.load() == 0; });
  free_locked(slot);
  return {};
}

State Pool::state(std::string_view name) const {
  const std::lock_guard held(lock_);
  const Slot* const slot = find_locked(name);
  return slot == nullptr ? State::absent : slot->state;
}

bool Pool::holds(std::string_view name, ContentVersion version) const {
  const std::lock_guard held(lock_);
  const auto [first, last] = names_.equal_range(name);
  return std::ranges::any_of(
      std::ranges::subrange(first, last) | std::views::values, [&](const Slot* slot) {
        return slot->state == State::ready && slot->resident.version_ == version;
      });
}

}  // namespace motley::lora
