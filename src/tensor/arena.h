#pragma once

#include <cstddef>

#include "tensor/buffer.h"

namespace motley::tensor {

// Hands out tensors from one buffer, one after the other; memory is freed all at once, or from a
// mark on. For scratch whose size is known in advance: nothing is allocated during a step. On a
// GPU, work on freed memory may still run, so an arena serves one stream; another stream may use
// its memory after an event of that stream.
//
// In debug builds, CPU memory is filled with NaN when it is handed out and when it is freed, so
// that reads of uninitialised memory show.
class Arena {
 public:
  explicit Arena(Buffer buffer);
  // Uses memory that the caller owns.
  Arena(std::byte* memory, std::size_t bytes, DeviceId device)
      : memory_(memory), bytes_(bytes), device_(device) {}

  // Uninitialised; aligned to Allocator::alignment.
  Result<Tensor> allocate(DType dtype, const Shape& shape);

  // rewind(mark) frees everything handed out since mark().
  std::size_t mark() const { return used_; }
  void rewind(std::size_t mark);

  std::size_t capacity() const { return bytes_; }
  std::size_t used() const { return used_; }
  // The most that was ever in use.
  std::size_t peak() const { return peak_; }

 private:
  void poison(std::size_t begin, std::size_t end);

  Buffer buffer_;  // empty if the caller owns the memory
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceId device_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace motley::tensor
