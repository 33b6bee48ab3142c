#pragma once

#include <cstddef>

#include "tensor/buffer.h"

namespace motley::tensor {

// Hands out tensors from one buffer, one after the other; memory comes back all at once, or from a
// mark on. For scratch whose need is known beforehand: nothing is allocated while a step runs. On a
// GPU, work with what has come back may still run, so an arena serves one stream; another one may
// use its memory behind an event of that stream.
//
// In debug builds, CPU memory is filled with NaN when it is handed out and when it comes back, so
// that reading what was never written shows.
class Arena {
 public:
  explicit Arena(Buffer buffer);
  // Over memory that somebody else owns.
  Arena(std::byte* memory, std::size_t bytes, DeviceId device)
      : memory_(memory), bytes_(bytes), device_(device) {}

  // Uninitialised; begins at a multiple of Allocator::alignment.
  Result<Tensor> allocate(DType dtype, const Shape& shape);

  // Everything handed out since mark() is free again after rewind(mark).
  std::size_t mark() const { return used_; }
  void rewind(std::size_t mark);

  std::size_t capacity() const { return bytes_; }
  std::size_t used() const { return used_; }
  // The most that was ever in use.
  std::size_t peak() const { return peak_; }

 private:
  void poison(std::size_t begin, std::size_t end);

  Buffer buffer_;  // nothing, if the memory is not its own
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceId device_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace motley::tensor
