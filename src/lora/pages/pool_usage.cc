// What a pool has, and which adapters have it.

#include <algorithm>

#include "base/check.h"
#include "lora/pages/pool_slot.h"

namespace motley::lora {

Pool::Usage Pool::usage() const {
  const std::lock_guard held(lock_);
  Usage usage;
  usage.pages = max_pages_locked();
  usage.free_pages = free_pages_locked();
  usage.page_bytes = options_.page_bytes;
  usage.committed_bytes = arena_.committed();
  usage.evictions = evictions_;
  usage.adapters = static_cast<int>(slots_.size());
  for (const auto& slot : slots_) {
    if (slot->resident.pins_.load() == 0) continue;
    ++usage.pinned_adapters;
    usage.pinned_pages += slot->pages;
  }
  return usage;
}

Pool::Usage Pool::usage_of(int rank) const {
  Usage usage = pool_of(rank).usage();
  usage.pinned_pages = 0;
  usage.pinned_adapters = 0;
  const std::lock_guard held(lock_);
  for (const auto& slot : slots_) {
    if (slot->resident.pins_.load() == 0) continue;
    ++usage.pinned_adapters;
    usage.pinned_pages += slot->resident.shard(rank).pages();
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
