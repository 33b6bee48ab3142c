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
#include "tensor/device/reservation.h"

namespace motley::lora {

// The memory of a pool's pages. Where it is committed piece by piece, a thread of its own does so
// ahead of need, until memory runs out: the pool is smaller then, and a warning says so. Now and
// then it tries again.
// Safe to call from any thread.
class PageMemory {
 public:
  // `spare`: bytes that stay committed beyond those in use. `retry`: how long memory that ran out
  // is not asked for.
  PageMemory(std::unique_ptr<tensor::Reservation> memory, std::size_t spare,
             Duration retry = std::chrono::seconds(30));
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  std::byte* data() const { return memory_->data(); }
  bool pinned() const { return memory_->pinned(); }
  // Bytes from the front that can be used; they only grow.
  std::size_t committed() const { return memory_->committed(); }
  // What can be committed in all; less than at first while memory has run out.
  std::size_t limit() const { return limit_.load(std::memory_order_acquire); }

  // Bytes from the front are in use: the spare behind them comes in the background.
  void use(std::size_t bytes);
  // Returns when these bytes are committed, or all that there are.
  void wait_for(std::size_t bytes);

  // Calls `copy` for a range's parts that a device copies in one go.
  using CopyPart = FunctionRef<Result<void>(std::size_t offset, std::size_t bytes)>;
  Result<void> each_part(const std::byte* begin, std::size_t bytes, CopyPart copy) const;

 private:
  void want_locked(std::size_t bytes);
  void work();

  std::unique_ptr<tensor::Reservation> memory_;
  const std::size_t spare_;
  const Duration retry_;
  std::atomic<std::size_t> limit_;

  std::mutex lock_;
  std::condition_variable wanted_more_;
  std::condition_variable changed_;
  std::size_t wanted_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace motley::lora
