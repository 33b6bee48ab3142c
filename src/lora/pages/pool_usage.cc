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
  usage.pinned_adapters = static_cast<int>(pinned_.adapters);
  usage.pinned_pages = pinned_.pages.front();
  usage.replaced_pages = replaced_pages_;
  return usage;
}

Pool::Usage Pool::usage_of(int rank) const {
  Usage usage = pool_of(rank).usage();
  const std::lock_guard held(lock_);
  usage.pinned_adapters = static_cast<int>(pinned_.adapters);
  usage.pinned_pages = pinned_.pages[static_cast<std::size_t>(rank)];
  return usage;
}

std::vector<Pool::Entry> Pool::entries() const {
  std::vector<Entry> entries;
  {
    const std::lock_guard held(lock_);
    for (const auto& [resident, slot] : slots_) {
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
  Count pinned{.pages = std::vector<std::uint64_t>(pinned_.pages.size())};
  Count idle = pinned;
  for (const auto& [resident, slot] : slots_) {
    if (slot->resident.pins_.load() > 0)
      add_locked(pinned, *slot);
    else if (slot->state == State::ready)
      add_locked(idle, *slot);
    MOTLEY_CHECK(slot->idle == (slot->resident.pins_.load() == 0 && slot->state == State::ready),
                 "what is ready and not in use is listed as idle");
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
  MOTLEY_CHECK(pinned == pinned_ && idle == idle_, "adapters in use and idle ones are counted");
  std::uint64_t replaced = 0;
  for (const auto& [resident, slot] : slots_)
    if (slot->replaced && slot->state == State::ready) replaced += slot->pages;
  MOTLEY_CHECK(replaced == replaced_pages_, "pages of replaced adapters are counted");
  std::uint64_t free = 0;
  for (std::size_t page = 0; page < owner.size(); ++page) {
    MOTLEY_CHECK((owner[page] != nullptr) == taken_[page], "taken pages have an owner");
    free += taken_[page] ? 0U : 1U;
  }
  MOTLEY_CHECK(free == free_pages_, "free pages are counted");
}

}  // namespace motley::lora
