#pragma once

#include <cstddef>
#include <memory>

#include "base/dtype.h"
#include "base/result.h"
#include "quant/weight.h"
#include "tensor/device/device.h"
#include "tensor/device/staging.h"

namespace motley::quant {

// Brings weights into a device's memory, through pinned pieces. One thread's: several threads that
// load have one each.
class Uploader {
 public:
  // The device must outlive it.
  static Result<std::unique_ptr<Uploader>> create(tensor::Device& device,
                                                  const tensor::Staging::Options& pieces = {});

  tensor::Device& device() const { return *device_; }
  tensor::Stream& stream() const { return *stream_; }

  // Queued; what stands at `from` may change when this returns.
  Result<void> copy(void* to, const void* from, std::size_t bytes);
  // Queued into a buffer of its own, of whole words: kernels read words. `from` as above.
  Result<tensor::Buffer> copy(const void* from, std::size_t bytes);
  // Waits for all that was queued.
  Result<void> finish() { return stream_->synchronize(); }

 private:
  Uploader() = default;

  tensor::Device* device_ = nullptr;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<tensor::Staging> staging_;
};

// The same weight in the device's memory, there when the uploader has finished.
Result<Weight> upload(const Weight& weight, Uploader& to);
// Decoded on the host into a plain matrix of f32, or of bf16 (rounded once).
Result<Weight> upload_decoded(const Weight& weight, DType dtype, Uploader& to);

}  // namespace motley::quant
