#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "tensor/buffer.h"

namespace motley::tensor {

// Hands out pieces of blocks of another allocator, which it gives back once no piece of them is
// used. For many buffers of less than a huge page, which by themselves would be mapped page by
// page. Thread-safe.
class BlockAllocator final : public Allocator {
 public:
  // `from` must outlive it, and it must outlive its buffers.
  explicit BlockAllocator(Allocator& from, std::size_t block_bytes = std::size_t{16} << 20)
      : from_(from), block_bytes_(block_bytes) {}

  DeviceId id() const override { return from_.id(); }
  bool pinned() const override { return from_.pinned(); }

 private:
  struct Block {
    Buffer memory;
    std::size_t used = 0;
    std::size_t pieces = 0;  // in use
  };

  Result<void*> take(std::size_t bytes) override;
  void give_back(void* data, std::size_t bytes) noexcept override;

  Allocator& from_;
  const std::size_t block_bytes_;
  std::mutex lock_;
  std::map<std::byte*, Block> blocks_;  // by address
  Block* open_ = nullptr;               // the block that pieces are cut from
};

}  // namespace motley::tensor
