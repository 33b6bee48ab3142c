#include "dist/launch_gate.h"

namespace motley::dist {

LaunchGate::Pass LaunchGate::enter(Way way) {
  {
    std::unique_lock held(lock_);
    const std::uint64_t ticket = next_ticket_++;
    changed_.wait(held, [&] {
      const bool has_room = way == Way::alone ? inside_ == 0 : !is_alone_;
      return ticket == current_ticket_ && has_room;
    });
    ++current_ticket_;
    ++inside_;
    is_alone_ = way == Way::alone;
  }
  changed_.notify_all();
  return {this, way};
}

std::uint64_t LaunchGate::waiting() const {
  const std::lock_guard held(lock_);
  return next_ticket_ - current_ticket_;
}

void LaunchGate::leave(Way way) {
  {
    const std::lock_guard held(lock_);
    --inside_;
    if (way == Way::alone) is_alone_ = false;
  }
  changed_.notify_all();
}

}  // namespace motley::dist
