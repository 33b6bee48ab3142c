#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace motley::engine {

// Which slots of state memory (runner::StateMemory) sequences have.
class StateSlots {
 public:
  explicit StateSlots(std::int64_t slots) {
    // Low numbers are taken first.
    for (std::int64_t slot = slots; slot-- > 0;) free_.push_back(static_cast<std::int32_t>(slot));
  }
  StateSlots(const StateSlots&) = delete;
  StateSlots& operator=(const StateSlots&) = delete;

  std::int64_t free() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  friend class StateSlot;

  std::vector<std::int32_t> free_;  // the last is taken next
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
    if (owner_ != nullptr) owner_->free_.push_back(slot_);
  }

  explicit operator bool() const { return owner_ != nullptr; }
  std::int32_t number() const { return slot_; }

 private:
  StateSlots* owner_ = nullptr;
  std::int32_t slot_ = 0;
};

}  // namespace motley::engine
