#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::tensor {

// A ring of pinned pieces through which bytes of the host go to a device: filled by any number of
// threads, copied by streams. A piece comes round again only behind the event of its last copy.
class Staging {
 public:
  struct Options {
    std::size_t piece_bytes = std::size_t{4} << 20;
    int pieces = 4;
  };

  // The device, and the streams that copy, must outlive it.
  static Result<std::unique_ptr<Staging>> create(Device& device, const Options& options);
  // Waits for the copies. No piece may be out.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // One piece, the taker's alone until it is sent or dropped.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept
        : ring_(std::exchange(other.ring_, nullptr)), index_(other.index_) {}
    Piece& operator=(Piece&& other) noexcept {
      std::swap(ring_, other.ring_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Piece() {
      if (ring_ != nullptr) ring_->put_back(index_);
    }

    explicit operator bool() const { return ring_ != nullptr; }
    std::byte* data() const { return ring_->memory_.data() + index_ * ring_->piece_bytes_; }
    std::size_t size() const { return ring_->piece_bytes_; }

   private:
    friend class Staging;
    Piece(Staging* ring, std::size_t index) : ring_(ring), index_(index) {}

    Staging* ring_ = nullptr;
    std::size_t index_ = 0;
  };

  // Waits until one is free. A thread that holds pieces must not ask for more than there are.
  Result<Piece> take();

  // Queues the copy of the piece's first bytes; the piece is back in the ring.
  Result<void> send(Piece piece, Stream& stream, void* to, std::size_t bytes);

  // Everything from `from`, which may change when this returns.
  Result<void> copy(Stream& stream, void* to, const void* from, std::size_t bytes);

  std::size_t piece_bytes() const { return piece_bytes_; }

 private:
  struct Slot {
    std::unique_ptr<Event> copied;
    bool out = false;
    std::uint64_t sent = 0;
  };

  Staging(Buffer memory, std::size_t piece_bytes)
      : memory_(std::move(memory)), piece_bytes_(piece_bytes) {}
  void put_back(std::size_t index);

  Buffer memory_;
  std::size_t piece_bytes_;
  std::mutex lock_;
  std::condition_variable back_;
  std::vector<Slot> slots_;
  std::uint64_t clock_ = 0;
};

}  // namespace motley::tensor
