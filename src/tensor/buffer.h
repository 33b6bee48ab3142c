#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.h"
#include "tensor/tensor.h"

namespace motley::tensor {

class Buffer;
class Reservation;

// Allocates buffers in a device's memory.
class Allocator {
 public:
  // The alignment of every buffer, which suits vector loads and copy engines.
  static constexpr std::size_t alignment = 256;

  virtual ~Allocator() = default;

  virtual DeviceId id() const = 0;
  // Whether it is host memory that a GPU accesses directly: copies to and from it are asynchronous.
  virtual bool pinned() const { return false; }

  // Uninitialised memory. Lack of memory is an ordinary error (out_of_memory).
  Result<Buffer> allocate(std::size_t bytes);
  // Reserves addresses whose memory is committed later, piece by piece. This one commits all at
  // once; pinned memory of a GPU does not.
  virtual Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes);

 private:
  friend class Buffer;
  virtual Result<void*> take(std::size_t bytes) = 0;
  virtual void give_back(void* data, std::size_t bytes) noexcept = 0;
};

// Owns memory of a device. Tensors are views into it and must not outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  DeviceId device() const { return device_; }
  bool pinned() const { return pinned_; }

  // A contiguous tensor at `offset` bytes, which must lie inside.
  Tensor view(DType dtype, const Shape& shape, std::size_t offset = 0) const;

 private:
  friend class Allocator;
  Buffer(Allocator* allocator, std::byte* data, std::size_t size)
      : allocator_(allocator),
        data_(data),
        size_(size),
        device_(allocator->id()),
        pinned_(allocator->pinned()) {}

  Allocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  DeviceId device_;
  bool pinned_ = false;
};

}  // namespace motley::tensor
