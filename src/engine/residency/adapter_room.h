#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/function_ref.h"
#include "engine/scheduling/admission.h"

namespace motley::engine {

// Which claims find room among adapters' pages, and which adapters close for others, as arithmetic
// on numbers alone. Pages are promised before they are taken, never more of them than there are.
// `Key` names an adapter.
template <class Key>
class AdapterRoom {
 public:
  struct Pages {
    std::uint64_t all = 0;
    std::uint64_t committed = 0;  // in use or promised
    std::uint64_t pinned = 0;     // of pinned adapters, there or not
  };
  // An adapter in use that may close.
  struct InUse {
    Key adapter{};
    std::uint64_t pages = 0;
    bool was_closing = false;  // before the last stop()
    std::int64_t begun = 0;    // claims of sequences that have begun
    std::int64_t claims = 0;
    std::uint64_t turn = 0;  // when it was loaded last
  };
  struct Wanted {
    std::uint64_t pages = 0;        // that are not there yet
    std::span<const Key> adapters;  // these do not close for themselves
  };

  void see(const Pages& pages) { pages_ = pages; }

  // Whether so many pages can be promised now, beside what is kept for others.
  bool fits(std::uint64_t pages) const {
    return adapters_fit(pages, pages_.committed + kept_, pages_.all);
  }
  void promise(std::uint64_t pages) { pages_.committed += pages; }
  // Whether so many pages are there if nothing else is but pinned adapters.
  bool can_fit(std::uint64_t pages) const { return pages_.pinned + pages <= pages_.all; }

  // Nothing is kept and nothing closes any more. Then, before the calls below, all that are in use
  // are added and ranked.
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
  // What was closing closes first, then what the fewest sequences have begun with.
  void rank() {
    std::ranges::sort(in_use_, {}, [](const InUse& each) {
      return std::tuple(!each.was_closing, each.begun, each.claims, each.turn);
    });
  }

  // Of the adapters that would close for these: the most claims of one that have begun, or 1.
  // Nothing where all of them are not enough.
  std::optional<std::int64_t> price(const Wanted& wanted) const {
    const auto count = how_many_close(wanted);
    if (!count) return std::nullopt;
    std::int64_t price = 1;
    for (const InUse& each : std::span(in_use_).first(*count)) {
      if (!is_among(wanted, each)) price = std::max(price, each.begun);
    }
    return price;
  }
  // Keeps room for these, and calls close(adapter) for those that close for them.
  void make_room(const Wanted& wanted, FunctionRef<void(Key)> close) {
    const auto count = how_many_close(wanted);
    kept_ += wanted.pages;
    if (!count) return;
    const auto end = in_use_.begin() + static_cast<std::ptrdiff_t>(*count);
    const auto closes = [&](const InUse& each) { return !is_among(wanted, each); };
    for (auto each = in_use_.begin(); each != end; ++each) {
      if (!closes(*each)) continue;
      close(each->adapter);
      closing_ += each->pages;
      closable_ -= each->pages;
    }
    in_use_.erase(std::remove_if(in_use_.begin(), end, closes), end);
  }

 private:
  static bool is_among(const Wanted& wanted, const InUse& each) {
    return std::ranges::find(wanted.adapters, each.adapter) != wanted.adapters.end();
  }
  static std::uint64_t less(std::uint64_t pages, std::uint64_t freed) {
    return pages - std::min(pages, freed);
  }

  // How many at the front of in_use_ must close, but for the wanted ones themselves.
  std::optional<std::size_t> how_many_close(const Wanted& wanted) const {
    const std::uint64_t pages = kept_ + wanted.pages;
    std::uint64_t committed = less(pages_.committed, closing_);
    // Mostly there is no room even if all close: that needs no look at each.
    if (!adapters_fit(pages, less(committed, closable_), pages_.all)) return std::nullopt;
    std::size_t count = 0;
    while (!adapters_fit(pages, committed, pages_.all)) {
      if (count == in_use_.size()) return std::nullopt;
      const InUse& each = in_use_[count++];
      if (!is_among(wanted, each)) committed = less(committed, each.pages);
    }
    return count;
  }

  Pages pages_;
  std::uint64_t kept_ = 0;      // pages for whom room is made
  std::uint64_t closing_ = 0;   // pages of adapters that close
  std::vector<InUse> in_use_;   // what closes first in front
  std::uint64_t closable_ = 0;  // their pages
};

}  // namespace motley::engine
