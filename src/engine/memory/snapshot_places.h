#pragma once

#include <algorithm>
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

  explicit SnapshotPlaces(std::int64_t places)
      : pages_(static_cast<std::size_t>(places), none), holders_(pages_.size(), 0) {
    for (std::size_t place = 0; place < pages_.size(); ++place)
      at_.push_back(order_.insert(order_.end(), static_cast<std::int32_t>(place)));
  }
  SnapshotPlaces(const SnapshotPlaces&) = delete;
  SnapshotPlaces& operator=(const SnapshotPlaces&) = delete;

  struct Taken {
    std::int32_t place = none;  // none: there are no places, or all are held
    std::int32_t lost = none;   // the page whose snapshot was there
  };
  Taken take(std::int32_t page) {
    const auto found =
        std::ranges::find_if_not(order_, [this](std::int32_t place) { return is_held(place); });
    if (found == order_.end()) return {};
    const std::int32_t place = *found;
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

  // A place that a copy reads or writes is not given out again before it has ended.
  void hold(std::int32_t place) { ++holders_[index(place)]; }
  void release(std::int32_t place) { --holders_[index(place)]; }
  bool is_held(std::int32_t place) const { return holders_[index(place)] > 0; }

  // Free ones, then the one that was used longest ago, and so on.
  const std::list<std::int32_t>& order() const { return order_; }
  std::int32_t page_of(std::int32_t place) const { return pages_[index(place)]; }
  std::int64_t taken() const { return taken_; }

 private:
  static std::size_t index(std::int32_t place) { return static_cast<std::size_t>(place); }

  std::vector<std::int32_t> pages_;    // by place; none: it is free
  std::vector<std::int32_t> holders_;  // copies, by place
  std::list<std::int32_t> order_;
  std::vector<std::list<std::int32_t>::iterator> at_;
  std::int64_t taken_ = 0;
};

}  // namespace motley::engine
