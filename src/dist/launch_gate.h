#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace motley::dist {

// Keeps apart what must not meet on the GPUs of a process. While ranks launch work in which they
// wait for each other, some have launched what others have not: their GPUs become idle only when
// the others' threads launch, too. A call that waits for idle GPUs, with locks that launches need,
// would never end then. Such are the first use of a library's kernel, making a graph, and taking or
// page-locking memory.
//
// Ranks of one group meet (GpuRanks), so such a call between two of their launches ends. The gate
// is for everything else: other groups' launches and calls, and threads of pools. Passes are given
// in the order in which they were asked for.
class LaunchGate {
 public:
  enum class Way : std::uint8_t {
    together,  // launches of what has been loaded: beside others of this kind
    alone,     // may wait for idle GPUs, and may launch as well
  };

  // Inside until it is destroyed.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), way_(other.way_) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->leave(way_);
    }

   private:
    friend class LaunchGate;
    Pass(LaunchGate* gate, Way way) : gate_(gate), way_(way) {}

    LaunchGate* gate_ = nullptr;
    Way way_ = Way::together;
  };

  // Waits for those inside and those that came before. A thread that is inside must not enter.
  [[nodiscard]] Pass enter(Way way);
  // The same; without a gate everything passes.
  [[nodiscard]] static Pass enter(LaunchGate* gate, Way way) {
    return gate == nullptr ? Pass() : gate->enter(way);
  }
  // Passes that were asked for and not given yet.
  std::uint64_t waiting() const;

 private:
  void leave(Way way);

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t current_ticket_ = 0;  // that may enter next
  int inside_ = 0;
  bool is_alone_ = false;
};

}  // namespace motley::dist
