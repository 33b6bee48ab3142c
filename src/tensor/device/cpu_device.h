#pragma once

#include "base/system/thread_pool.h"
#include "tensor/device/device.h"

namespace motley::tensor {

// Host memory and a pool of threads; work on its streams runs at once, on that pool.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options = {});

  DeviceId id() const override { return {}; }
  std::string description() const override;
  Result<MemoryInfo> memory() const override;
  Result<std::unique_ptr<Stream>> create_stream() override;
  Result<std::unique_ptr<Event>> create_event() override;
  Allocator& pinned_memory() override { return *this; }

  ThreadPool& pool() { return pool_; }

 private:
  Result<void*> take(std::size_t bytes) override;
  void give_back(void* data, std::size_t bytes) noexcept override;

  std::uint64_t memory_limit_;
  ThreadPool pool_;
};

}  // namespace motley::tensor
