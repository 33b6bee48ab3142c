#include "tensor/device/block_allocator.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"
#include "tensor/device/metered_device.h"

namespace motley::tensor {
namespace {

constexpr std::size_t block = std::size_t{1} << 20;

class BlockAllocators : public testing::Test {
 protected:
  std::uint64_t taken() const { return device.usage().bytes; }

  MeteredDevice device{std::make_unique<CpuDevice>(CpuOptions{.threads = 1})};
  BlockAllocator blocks{device, block};
};

TEST_F(BlockAllocators, CutPiecesThatDoNotTouch) {
  std::vector<Buffer> pieces;
  for (std::size_t i = 0; i < 300; ++i) {
    pieces.push_back(blocks.allocate(1 + i * 37).value());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back().data()) % Allocator::alignment, 0U);
    std::memset(pieces.back().data(), static_cast<int>(i % 251), pieces.back().size());
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::size_t byte = 0; byte < pieces[i].size(); ++byte)
      ASSERT_EQ(pieces[i].data()[byte], static_cast<std::byte>(i % 251)) << i;
  }
  EXPECT_LE(taken(), 3 * block);
}

TEST_F(BlockAllocators, LargeBuffersAreNoPartOfABlock) {
  const Buffer large = blocks.allocate(block / 2).value();
  EXPECT_EQ(taken(), block / 2);
}

TEST_F(BlockAllocators, BlocksGoWithTheirLastPiece) {
  std::vector<Buffer> first;
  for (int i = 0; i < 16; ++i) first.push_back(blocks.allocate(block / 16).value());
  const Buffer second = blocks.allocate(block / 16).value();
  EXPECT_EQ(taken(), 2 * block);
  first.clear();
  EXPECT_EQ(taken(), block);
}

TEST_F(BlockAllocators, AnEmptyBlockIsUsedAgain) {
  for (int i = 0; i < 100; ++i) blocks.allocate(block / 9).value();
  EXPECT_EQ(taken(), block);
}

TEST_F(BlockAllocators, TellWhenThereIsNoMemory) {
  const auto refused = blocks.allocate(std::size_t{1} << 60);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_TRUE(blocks.allocate(100).ok());
}

TEST_F(BlockAllocators, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Buffer> kept;
      for (std::size_t i = 0; i < 500; ++i) {
        Buffer piece = blocks.allocate(64 + i * 100).value();
        std::memset(piece.data(), t, piece.size());
        if (i % 3 == 0) kept.push_back(std::move(piece));
      }
      for (const Buffer& piece : kept) {
        for (std::size_t byte = 0; byte < piece.size(); ++byte)
          ASSERT_EQ(piece.data()[byte], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace motley::tensor
