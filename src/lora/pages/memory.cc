#include "lora/pages/memory.h"

#include <utility>

#include "base/log.h"
#include "base/system/out_of_memory.h"

namespace motley::lora {

PageMemory::PageMemory(std::unique_ptr<tensor::Reservation> memory, const Options& options)
    : memory_(std::move(memory)),
      options_(options),
      clock_(clock_or_steady(options.clock)),
      limit_(memory_->size()) {
  if (memory_->committed() == memory_->size()) return;
  thread_ = std::thread([this] { work(); });
  use(0);
}

PageMemory::~PageMemory() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard held(lock_);
    stopping_ = true;
  }
  wanted_more_.notify_one();
  thread_.join();
}

void PageMemory::want_locked(std::size_t bytes) {
  if (bytes <= wanted_) return;
  wanted_ = bytes;
  wanted_more_.notify_one();
}

void PageMemory::use(std::size_t bytes) {
  if (committed() >= std::min(bytes + options_.spare, limit())) return;
  const std::lock_guard held(lock_);
  want_locked(bytes + options_.spare);
}

void PageMemory::wait_for(std::size_t bytes) {
  std::unique_lock held(lock_);
  want_locked(bytes);
  changed_.wait(held, [&] { return committed() >= std::min(bytes, limit()); });
}

void PageMemory::work() {
  std::unique_lock held(lock_);
  for (;;) {
    const bool ran_out = limit() < memory_->size();
    if (ran_out) {
      clock_.wait_until(wanted_more_, held, clock_.now() + options_.retry,
                        [&] { return stopping_; });
      if (!stopping_ && wanted_ <= committed()) continue;
    } else {
      wanted_more_.wait(held,
                        [&] { return stopping_ || committed() < std::min(wanted_, limit()); });
    }
    if (stopping_) return;
    held.unlock();
    const Result<void> more = within_memory([this] {
      const auto pass = dist::LaunchGate::enter(options_.gate, dist::LaunchGate::Way::alone);
      return memory_->commit();
    });
    if (!more.ok() && !ran_out)
      log::warning("adapters.host_memory_smaller", {{"bytes", committed()},
                                                    {"wanted_bytes", memory_->size()},
                                                    {"why", more.error().message()},
                                                    {"advice", "give --adapter-host-memory less"}});
    if (more.ok() && ran_out) log::info("adapters.host_memory_again", {{"bytes", memory_->size()}});
    held.lock();
    limit_.store(more.ok() ? memory_->size() : committed(), std::memory_order_release);
    changed_.notify_all();
  }
}

Result<void> PageMemory::each_part(const std::byte* begin, std::size_t bytes, CopyPart copy) const {
  const std::size_t piece = memory_->piece_bytes();
  const auto at = static_cast<std::size_t>(begin - data());
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(bytes - done, piece - (at + done) % piece);
    MOTLEY_TRY_VOID(copy(done, count));
    done += count;
  }
  return {};
}

}  // namespace motley::lora
