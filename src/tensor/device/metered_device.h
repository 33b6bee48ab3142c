#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tensor/device/device.h"

namespace motley::tensor {

// An allocator that counts the allocations of another one.
class Meter final : public Allocator {
 public:
  // `allocator` must outlive it.
  explicit Meter(Allocator& allocator) : allocator_(&allocator) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  DeviceId id() const override { return allocator_->id(); }
  bool pinned() const override { return allocator_->pinned(); }
  // One allocation; its bytes count as they are committed.
  Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override;

  struct Usage {
    std::uint64_t allocations = 0;  // since construction
    std::uint64_t bytes = 0;        // held now
  };
  Usage usage() const;

 private:
  friend class MeteredDevice;
  class Metered;
  Result<void*> take(std::size_t bytes) override;
  void give_back(void* data, std::size_t bytes) noexcept override;

  Allocator* allocator_;
  mutable std::mutex lock_;
  std::map<void*, Buffer> buffers_;
  Usage usage_;
};

// A device that counts what is allocated in its memory and in the host's pinned memory.
class MeteredDevice final : public Device {
 public:
  explicit MeteredDevice(std::unique_ptr<Device> device);

  DeviceId id() const override { return device_->id(); }
  std::string description() const override { return device_->description(); }
  Result<MemoryInfo> memory() const override { return device_->memory(); }
  Result<std::unique_ptr<Stream>> create_stream() override { return device_->create_stream(); }
  Result<std::unique_ptr<Event>> create_event() override { return device_->create_event(); }
  Allocator& pinned_memory() override { return pinned_; }

  Meter::Usage usage() const { return memory_.usage(); }
  Meter::Usage pinned_usage() const { return pinned_.usage(); }

 private:
  Result<void*> take(std::size_t bytes) override { return memory_.take(bytes); }
  void give_back(void* data, std::size_t bytes) noexcept override {
    memory_.give_back(data, bytes);
  }

  std::unique_ptr<Device> device_;
  Meter memory_;
  Meter pinned_;
};

}  // namespace motley::tensor
