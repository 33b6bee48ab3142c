#include "tensor/buffer.h"

#include "base/cat.h"
#include "tensor/device/reservation.h"

namespace motley::tensor {

Result<Buffer> Allocator::allocate(std::size_t bytes) {
  if (bytes == 0) return Buffer(this, nullptr, 0);
  MOTLEY_TRY(void* const data, take(bytes));
  return Buffer(this, static_cast<std::byte*>(data), bytes);
}

Result<std::unique_ptr<Reservation>> Allocator::reserve(std::size_t bytes) {
  MOTLEY_TRY(Buffer buffer, allocate(bytes));
  return reservation_of(std::move(buffer));
}

Buffer::Buffer(Buffer&& other) noexcept
    : allocator_(other.allocator_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      pinned_(other.pinned_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) allocator_->give_back(data_, size_);
}

Tensor Buffer::view(DType dtype, const Shape& shape, std::size_t offset) const {
  const auto bytes = bytes_of(dtype, shape.elements());
  MOTLEY_CHECK(
      bytes.has_value() && offset <= size_ && static_cast<std::size_t>(*bytes) <= size_ - offset,
      "a view inside its buffer");
  return Tensor(data_ + offset, dtype, shape, device_);
}

}  // namespace motley::tensor
