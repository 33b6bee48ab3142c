#pragma once

#include <cstddef>

#include "base/result.h"
#include "tensor/device/device.h"
#include "tensor/device/staging.h"

namespace motley::lora {

// Writes bytes into pages: directly in host memory, or through staging buffers and a stream to a
// device. Ranges requested in ascending order are copied together.
class PageWriter {
 public:
  // The most that one call may request.
  static constexpr std::size_t max_bytes = std::size_t{64} << 10;

  PageWriter() = default;  // into the host's memory
  PageWriter(tensor::Staging& ring, tensor::Stream& stream) : ring_(&ring), stream_(&stream) {}

  // Whether buffers are the pages: in the host's memory.
  bool is_direct() const { return ring_ == nullptr; }
  // A buffer whose contents go to `to`; valid until the next call.
  Result<std::byte*> next(std::byte* to, std::size_t bytes);
  // Queues what has not been queued yet.
  Result<void> finish();

 private:
  tensor::Staging* ring_ = nullptr;
  tensor::Stream* stream_ = nullptr;
  tensor::Staging::Piece piece_;
  std::byte* to_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace motley::lora
