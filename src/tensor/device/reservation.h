#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/result.h"
#include "tensor/buffer.h"

namespace motley::tensor {

// A range of addresses that never change. Memory is committed to it from the front, piece by piece.
class Reservation {
 public:
  virtual ~Reservation() = default;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::byte* data() const { return data_; }
  // Of all addresses.
  std::size_t size() const { return size_; }
  // Bytes from the front that have memory; they only grow. Any thread may ask.
  std::size_t committed() const { return committed_.load(std::memory_order_acquire); }
  // A device's copy must not cross a multiple of it.
  std::size_t piece_bytes() const { return piece_bytes_; }
  bool pinned() const { return pinned_; }

  // Commits the next piece. An error leaves what is committed as it is. One thread at a time; not
  // where all is committed.
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

// All of a buffer, committed from the start.
std::unique_ptr<Reservation> reservation_of(Buffer buffer);

// Addresses of this process, without memory until they are opened.
class AddressRange {
 public:
  static Result<AddressRange> reserve(std::size_t bytes);
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;
  ~AddressRange();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Zeros that can be read and written, in large pages where the system has them. Whole pages.
  Result<void> open(std::size_t begin, std::size_t bytes);
  // As before open().
  void close(std::size_t begin, std::size_t bytes) noexcept;

 private:
  AddressRange(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace motley::tensor
