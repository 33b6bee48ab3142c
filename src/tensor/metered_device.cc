#include "tensor/metered_device.h"

#include <utility>

#include "base/check.h"

namespace motley::tensor {

Meter::Usage Meter::usage() const {
  const std::lock_guard held(lock_);
  return usage_;
}

Result<void*> Meter::take(std::size_t bytes) {
  MOTLEY_TRY(Buffer buffer, allocator_->allocate(bytes));
  void* const data = buffer.data();
  const std::lock_guard held(lock_);
  ++usage_.allocations;
  usage_.bytes += bytes;
  buffers_.emplace(data, std::move(buffer));
  return data;
}

void Meter::give_back(void* data, std::size_t bytes) noexcept {
  Buffer buffer;  // goes without the lock
  const std::lock_guard held(lock_);
  const auto found = buffers_.find(data);
  MOTLEY_CHECK(found != buffers_.end(), "what was taken is given back");
  usage_.bytes -= bytes;
  buffer = std::move(found->second);
  buffers_.erase(found);
}

MeteredDevice::MeteredDevice(std::unique_ptr<Device> device)
    : device_(std::move(device)), memory_(*device_), pinned_(device_->pinned_memory()) {}

}  // namespace motley::tensor
