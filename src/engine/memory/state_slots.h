#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace motley::engine {

// Which slots of state memory (runner::StateMemory) sequences have.
class StateSlots {
 public:
  explicit StateSlots(std::int64_t slots) : copies_(static_cast<std::size_t>(slots), 0) {
    leaving_.reserve(copies_.size());
    // Low numbers are taken first.
    for (std::int64_t slot = slots; slot-- > 0;) free_.push_back(static_cast<std::int32_t>(slot));
  }
  StateSlots(const StateSlots&) = delete;
  StateSlots& operator=(const StateSlots&) = delete;

  std::int64_t free() const { return static_cast<std::int64_t>(free_.size()); }
  // Those that were given back while a copy to them was under way.
  std::int64_t leaving() const { return static_cast<std::int64_t>(leaving_.size()); }
  // Copies up to this one have ended.
  void end_copies(std::uint64_t copy) {
    std::erase_if(leaving_, [&](std::int32_t slot) {
      if (copies_[static_cast<std::size_t>(slot)] > copy) return false;
      free_.push_back(slot);
      return true;
    });
    ended_ = copy;
  }

 private:
  friend class StateSlot;

  void give_back(std::int32_t slot) {
    const bool is_written = copies_[static_cast<std::size_t>(slot)] > ended_;
    (is_written ? leaving_ : free_).push_back(slot);
  }

  std::vector<std::int32_t> free_;  // the last is taken next
  std::vector<std::int32_t> leaving_;
  std::vector<std::uint64_t> copies_;  // by slot: the last copy to it from the host
  std::uint64_t ended_ = 0;
};

// A sequence's slot, given back on destruction; or none, of a model without states.
class StateSlot {
 public:
  StateSlot() = default;
  // There must be a free one.
  explicit StateSlot(StateSlots& slots) : owner_(&slots) {
    MOTLEY_CHECK(!slots.free_.empty(), "a slot for each sequence that runs");
    slot_ = slots.free_.back();
    slots.free_.pop_back();
  }
  StateSlot(StateSlot&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), slot_(other.slot_) {}
  StateSlot& operator=(StateSlot&&) = delete;
  ~StateSlot() {
    if (owner_ != nullptr) owner_->give_back(slot_);
  }

  explicit operator bool() const { return owner_ != nullptr; }
  std::int32_t number() const { return slot_; }
  // This copy writes it: it is given out again when that has ended.
  void begin_copy(std::uint64_t copy) { owner_->copies_[static_cast<std::size_t>(slot_)] = copy; }

 private:
  StateSlots* owner_ = nullptr;
  std::int32_t slot_ = 0;
};

}  // namespace motley::engine
