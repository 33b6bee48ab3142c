#include "tensor/device/metered_device.h"

#include <utility>

#include "base/check.h"
#include "tensor/device/reservation.h"

namespace motley::tensor {

class Meter::Metered final : public Reservation {
 public:
  Metered(Meter& meter, std::unique_ptr<Reservation> inner)
      : Reservation({.data = inner->data(),
                     .size = inner->size(),
                     .piece_bytes = inner->piece_bytes(),
                     .pinned = inner->pinned()},
                    inner->committed()),
        meter_(&meter),
        inner_(std::move(inner)) {
    const std::lock_guard held(meter_->lock_);
    ++meter_->usage_.allocations;
    meter_->usage_.bytes += committed();
  }
  ~Metered() override {
    inner_.reset();
    const std::lock_guard held(meter_->lock_);
    meter_->usage_.bytes -= committed();
  }

 private:
  Result<void> commit_piece(std::size_t, std::size_t bytes) override {
    MOTLEY_TRY_VOID(inner_->commit());
    const std::lock_guard held(meter_->lock_);
    meter_->usage_.bytes += bytes;
    return {};
  }

  Meter* meter_;
  std::unique_ptr<Reservation> inner_;
};

Result<std::unique_ptr<Reservation>> Meter::reserve(std::size_t bytes) {
  MOTLEY_TRY(std::unique_ptr<Reservation> inner, allocator_->reserve(bytes));
  return std::unique_ptr<Reservation>(std::make_unique<Metered>(*this, std::move(inner)));
}

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
  Buffer buffer;  // freed without the lock
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
