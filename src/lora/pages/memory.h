#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "dist/launch_gate.h"
#include "tensor/device/reservation.h"

namespace motley::lora {

// The memory of a pool. Where memory can be committed piece by piece, a thread commits it ahead of
// need. If memory runs out, the pool is smaller from then on, and a warning is logged; the thread
// tries again from time to time. Thread-safe.
class PageMemory {
 public:
  struct Options {
    std::size_t spare = 0;                      // bytes that stay committed beyond those in use
    Duration retry = std::chrono::seconds(30);  // the pause after memory has run out
    dist::LaunchGate* gate = nullptr;           // for commits; null: nothing waits for them
    const Clock* clock = nullptr;               // of that pause; null: the steady clock
  };
  PageMemory(std::unique_ptr<tensor::Reservation> memory, const Options& options);
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  std::byte* data() const { return memory_->data(); }
  bool pinned() const { return memory_->pinned(); }
  // The usable bytes from the front; never shrinks.
  std::size_t committed() const { return memory_->committed(); }
  // The most that can be committed; less than at first after memory has run out.
  std::size_t limit() const { return limit_.load(std::memory_order_acquire); }

  // Bytes from the front are in use; the spare behind them is committed in the background.
  void use(std::size_t bytes);
  // Returns when these bytes are committed, or all that can be.
  void wait_for(std::size_t bytes);

  // Calls `copy` for the parts of a range that a device can copy in one operation.
  using CopyPart = FunctionRef<Result<void>(std::size_t offset, std::size_t bytes)>;
  Result<void> each_part(const std::byte* begin, std::size_t bytes, CopyPart copy) const;

 private:
  void want_locked(std::size_t bytes);
  void work();

  std::unique_ptr<tensor::Reservation> memory_;
  const Options options_;
  const Clock& clock_;
  std::atomic<std::size_t> limit_;

  std::mutex lock_;
  std::condition_variable wanted_more_;
  std::condition_variable changed_;
  std::size_t wanted_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace motley::lora
