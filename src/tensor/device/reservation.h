#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/result.h"
#include "tensor/buffer.h"

namespace motley::tensor {

// A range of addresses that never change. Memory is committed from the front, piece by piece.
class Reservation {
 public:
  virtual ~Reservation() = default;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::byte* data() const { return data_; }
  // The size of the whole range.
  std::size_t size() const { return size_; }
  // The committed bytes from the front; never shrinks. Thread-safe.
  std::size_t committed() const { return committed_.load(std::memory_order_acquire); }
  // A copy by a device must not cross a multiple of this.
  std::size_t piece_bytes() const { return piece_bytes_; }
  bool pinned() const { return pinned_; }

  // Commits the next piece. On an error nothing changes. Not thread-safe; must not be called when
  // everything is committed.
  Result<void> commit();

 protected:
  struct Range {
    std::byte* data = nullptr;
    std::size_t size = 0;
    std::size_t piece_bytes = 0;
    bool pinned = false;
  };
  explicit Reservation(const Range& range, std::size_t committed = 0)
      : data_(range.data),
        size_(range.size),
        piece_bytes_(range.piece_bytes),
        pinned_(range.pinned),
        committed_(committed) {}

 private:
  virtual Result<void> commit_piece(std::size_t begin, std::size_t bytes) = 0;

  std::byte* data_;
  std::size_t size_;
  std::size_t piece_bytes_;
  bool pinned_;
  std::atomic<std::size_t> committed_;
};

// A whole buffer, committed from the start.
std::unique_ptr<Reservation> reservation_of(Buffer buffer);

// Addresses of this process, without memory until open().
class AddressRange {
 public:
  static Result<AddressRange> reserve(std::size_t bytes);
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;
  ~AddressRange();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Commits whole pages of zeros, as large pages where the system has them.
  Result<void> open(std::size_t begin, std::size_t bytes);
  // Undoes open().
  void close(std::size_t begin, std::size_t bytes) noexcept;

 private:
  AddressRange(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace motley::tensor
