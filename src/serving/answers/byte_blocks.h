#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace motley::serving {

// Bytes that only grow, in blocks that are never moved: what they take is at most twice their size,
// also while they grow, and at most max_block_bytes more than it.
class ByteBlocks {
 public:
  static constexpr std::size_t max_block_bytes = std::size_t{64} << 10;

  void append(std::span<const std::uint8_t> bytes);

  std::size_t size() const { return size_; }
  // What is allocated.
  std::size_t capacity() const { return capacity_; }
  // Appends bytes [begin, end).
  void append_to(std::string& text, std::size_t begin, std::size_t end) const;

 private:
  struct Block {
    std::size_t begin = 0;  // its first byte, among all
    std::size_t size = 0;
    std::unique_ptr<std::uint8_t[]> bytes;
  };

  std::size_t size_ = 0;
  std::size_t capacity_ = 0;  // of all blocks
  std::vector<Block> blocks_;
};

}  // namespace motley::serving
