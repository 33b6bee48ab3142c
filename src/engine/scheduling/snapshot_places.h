#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace motley::engine {

// Places for snapshots of states, each with the page at whose end its snapshot stands. If none is
// free, the snapshot that was used longest ago gives up its place: this order is not that of pages,
// because the end of a conversation is what its next turn needs, and the first that pages lose.
class SnapshotPlaces {
 public:
  static constexpr std::int32_t none = -1;

  explicit SnapshotPlaces(std::int64_t places) : places_(static_cast<std::size_t>(places)) {}

  struct Taken {
    std::int32_t place = none;  // none: there are no places
    std::int32_t lost = none;   // the page whose snapshot was there
  };
  Taken take(std::int32_t page) {
    const auto oldest = std::ranges::min_element(places_, {}, &Place::used);
    if (oldest == places_.end()) return {};
    const Taken taken{.place = static_cast<std::int32_t>(oldest - places_.begin()),
                      .lost = oldest->page};
    *oldest = {.page = page, .used = ++uses_};
    return taken;
  }
  void use(std::int32_t place) { at(place).used = ++uses_; }
  void give_back(std::int32_t place) { at(place) = {}; }

  std::int32_t page_of(std::int32_t place) const {
    return places_[static_cast<std::size_t>(place)].page;
  }
  std::int64_t taken() const {
    return std::ranges::count_if(places_, [](const Place& each) { return each.page != none; });
  }

 private:
  struct Place {
    std::int32_t page = none;
    std::uint64_t used = 0;  // 0: it is free
  };
  Place& at(std::int32_t place) { return places_[static_cast<std::size_t>(place)]; }

  std::vector<Place> places_;
  std::uint64_t uses_ = 0;
};

}  // namespace motley::engine
