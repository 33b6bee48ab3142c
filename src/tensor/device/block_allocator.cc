#include "tensor/device/block_allocator.h"

#include <iterator>
#include <utility>

namespace motley::tensor {

Result<void*> BlockAllocator::take(std::size_t bytes) {
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  const std::lock_guard held(lock_);
  // What takes a good part of a block has one of its own, so that little is left unused.
  const bool alone = size > block_bytes_ / 8;
  if (alone || open_ == nullptr || open_->memory.size() - open_->used < size) {
    MOTLEY_TRY(Buffer memory, from_.allocate(alone ? size : block_bytes_));
    std::byte* const data = memory.data();
    Block& made = blocks_[data];
    made.memory = std::move(memory);
    if (alone) {
      made.used = size;
      made.pieces = 1;
      return data;
    }
    if (open_ != nullptr && open_->pieces == 0) blocks_.erase(open_->memory.data());
    open_ = &made;
  }
  std::byte* const piece = open_->memory.data() + open_->used;
  open_->used += size;
  ++open_->pieces;
  return piece;
}

void BlockAllocator::give_back(void* data, std::size_t) noexcept {
  const std::lock_guard held(lock_);
  const auto at = std::prev(blocks_.upper_bound(static_cast<std::byte*>(data)));
  if (--at->second.pieces > 0) return;
  if (&at->second == open_) {
    open_->used = 0;
  } else {
    blocks_.erase(at);
  }
}

}  // namespace motley::tensor
