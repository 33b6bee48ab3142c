#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/function_ref.h"

namespace motley::engine {

// Whether adapters of these sizes fit next to those in use; all sizes are in pages.
constexpr bool adapters_fit(std::uint64_t needed, std::uint64_t in_use, std::uint64_t all) {
  return in_use <= all && needed <= all - in_use;
}

// Decides which claims fit in adapter memory, and which adapters close for others, as pure
// arithmetic. Pages are reserved before they are taken, never more than there are. `Key` identifies
// an adapter.
template <class Key>
class AdapterRoom {
 public:
  struct Pages {
    std::uint64_t all = 0;
    std::uint64_t committed = 0;  // in use or reserved
    std::uint64_t pinned = 0;     // of pinned adapters, resident or not
  };
  // An adapter in use that may close.
  struct InUse {
    Key adapter{};
    std::uint64_t pages = 0;
    bool was_closing = false;  // before the last stop()
    std::int64_t begun = 0;    // claims of sequences that have begun
    std::int64_t claims = 0;
    std::uint64_t load_order = 0;  // grows with each load
  };
  // What waiting requests of the same adapters need.
  struct Demand {
    std::uint64_t pages = 0;        // that are not resident yet
    std::span<const Key> adapters;  // these do not close for themselves
  };

  void see(const Pages& pages) { pages_ = pages; }

  // Whether this many pages can be reserved now, beside those kept for others.
  bool fits(std::uint64_t pages) const {
    return adapters_fit(pages, pages_.committed + kept_, pages_.all);
  }
  void promise(std::uint64_t pages) { pages_.committed += pages; }
  // Whether this many pages fit beside pinned adapters alone.
  bool can_fit(std::uint64_t pages) const { return pages_.pinned + pages <= pages_.all; }

  // Keeps no pages, and no adapter closes. Afterwards all adapters in use must be added and ranked
  // before the functions below are called.
  void stop() { kept_ = closing_ = 0; }
  bool making_room() const { return kept_ > 0; }
  void clear_in_use() {
    in_use_.clear();
    closable_ = 0;
  }
  void add(const InUse& adapter) {
    in_use_.push_back(adapter);
    closable_ += adapter.pages;
  }
  // Adapters that were closing come first, then those with the fewest begun sequences.
  void rank() {
    std::ranges::sort(in_use_, {}, [](const InUse& each) {
      return std::tuple(!each.was_closing, each.begun, each.claims, each.load_order);
    });
  }

  // The most begun claims of an adapter that would close for these, but at least 1. Nothing if
  // closing all of them is not enough.
  std::optional<std::int64_t> price(const Demand& demand) const {
    const auto count = how_many_close(demand);
    if (!count) return std::nullopt;
    std::int64_t price = 1;
    for (const InUse& each : std::span(in_use_).first(*count)) {
      if (!is_among(demand, each)) price = std::max(price, each.begun);
    }
    return price;
  }
  // Keeps pages for these, and calls close(adapter) for those that close for them.
  void make_room(const Demand& demand, FunctionRef<void(Key)> close) {
    const auto count = how_many_close(demand);
    kept_ += demand.pages;
    if (!count) return;
    const auto end = in_use_.begin() + static_cast<std::ptrdiff_t>(*count);
    const auto closes = [&](const InUse& each) { return !is_among(demand, each); };
    for (auto each = in_use_.begin(); each != end; ++each) {
      if (!closes(*each)) continue;
      close(each->adapter);
      closing_ += each->pages;
      closable_ -= each->pages;
    }
    in_use_.erase(std::remove_if(in_use_.begin(), end, closes), end);
  }

 private:
  static bool is_among(const Demand& demand, const InUse& each) {
    return std::ranges::find(demand.adapters, each.adapter) != demand.adapters.end();
  }
  static std::uint64_t less(std::uint64_t pages, std::uint64_t freed) {
    return pages - std::min(pages, freed);
  }

  // The number of adapters at the front of in_use_ that must close, not counting those of the
  // demand.
  std::optional<std::size_t> how_many_close(const Demand& demand) const {
    const std::uint64_t pages = kept_ + demand.pages;
    std::uint64_t committed = less(pages_.committed, closing_);
    // Usually even closing all is not enough; this check is cheap.
    if (!adapters_fit(pages, less(committed, closable_), pages_.all)) return std::nullopt;
    std::size_t count = 0;
    while (!adapters_fit(pages, committed, pages_.all)) {
      if (count == in_use_.size()) return std::nullopt;
      const InUse& each = in_use_[count++];
      if (!is_among(demand, each)) committed = less(committed, each.pages);
    }
    return count;
  }

  Pages pages_;
  std::uint64_t kept_ = 0;      // pages kept for claims that wait
  std::uint64_t closing_ = 0;   // pages of closing adapters
  std::vector<InUse> in_use_;   // in the order in which they would close
  std::uint64_t closable_ = 0;  // their pages
};

}  // namespace motley::engine
