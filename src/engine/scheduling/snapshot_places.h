#pragma once

#include <cstdint>
#include <list>
#include <vector>

namespace motley::engine {

// Places for snapshots of states, each with the page at whose end its snapshot stands. If none is
// free, the snapshot that was used longest ago gives up its place: this order is not that of pages,
// because the end of a conversation is what its next turn needs, and the first that pages lose.
class SnapshotPlaces {
 public:
  static constexpr std::int32_t none = -1;

  explicit SnapshotPlaces(std::int64_t places) : pages_(static_cast<std::size_t>(places), none) {
    for (std::size_t place = 0; place < pages_.size(); ++place)
      at_.push_back(order_.insert(order_.end(), static_cast<std::int32_t>(place)));
  }
  SnapshotPlaces(const SnapshotPlaces&) = delete;
  SnapshotPlaces& operator=(const SnapshotPlaces&) = delete;

  struct Taken {
    std::int32_t place = none;  // none: there are no places
    std::int32_t lost = none;   // the page whose snapshot was there
  };
  Taken take(std::int32_t page) {
    if (order_.empty()) return {};
    const std::int32_t place = order_.front();
    const Taken taken{.place = place, .lost = pages_[index(place)]};
    if (taken.lost == none) ++taken_;
    pages_[index(place)] = page;
    use(place);
    return taken;
  }
  void use(std::int32_t place) { order_.splice(order_.end(), order_, at_[index(place)]); }
  void give_back(std::int32_t place) {
    pages_[index(place)] = none;
    --taken_;
    order_.splice(order_.begin(), order_, at_[index(place)]);
  }

  std::int32_t page_of(std::int32_t place) const { return pages_[index(place)]; }
  std::int64_t taken() const { return taken_; }

 private:
  static std::size_t index(std::int32_t place) { return static_cast<std::size_t>(place); }

  std::vector<std::int32_t> pages_;  // by place; none: it is free
  std::list<std::int32_t> order_;    // free ones, then the one that was used longest ago, ...
  std::vector<std::list<std::int32_t>::iterator> at_;
  std::int64_t taken_ = 0;
};

}  // namespace motley::engine
