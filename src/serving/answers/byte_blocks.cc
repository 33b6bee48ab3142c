#include "serving/answers/byte_blocks.h"

#include <algorithm>

namespace motley::serving {
namespace {

constexpr std::size_t min_block_bytes = 64;

}  // namespace

void ByteBlocks::append(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (size_ == capacity_) {
      const std::size_t size = std::clamp(size_, min_block_bytes, max_block_bytes);
      blocks_.push_back({.begin = size_, .size = size, .bytes = {}});
      blocks_.back().bytes = std::make_unique_for_overwrite<std::uint8_t[]>(size);
      capacity_ += size;
    }
    const Block& last = blocks_.back();
    const std::size_t count = std::min(bytes.size(), capacity_ - size_);
    std::copy_n(bytes.begin(), count, last.bytes.get() + (size_ - last.begin));
    size_ += count;
    bytes = bytes.subspan(count);
  }
}

void ByteBlocks::append_to(std::string& text, std::size_t begin, std::size_t end) const {
  end = std::min(end, size_);
  if (begin >= end) return;
  auto block = std::ranges::upper_bound(blocks_, begin, {}, &Block::begin) - 1;
  for (; begin < end; ++block) {
    const std::size_t last = std::min(end, block->begin + block->size);
    text.append(reinterpret_cast<const char*>(block->bytes.get()) + (begin - block->begin),
                last - begin);
    begin = last;
  }
}

}  // namespace motley::serving
