#include "serving/answers/byte_blocks.h"

#include <numeric>

#include <gtest/gtest.h>

namespace motley::serving {
namespace {

TEST(ByteBlocks, GiveBackWhatWasAppendedInPiecesOfAnySize) {
  std::vector<std::uint8_t> all(300'000);
  std::iota(all.begin(), all.end(), std::uint8_t{3});
  ByteBlocks blocks;
  std::size_t piece = 0;
  for (std::size_t at = 0; at < all.size(); at += piece) {
    piece = std::min((piece * 3 + 1) % 70'001, all.size() - at);
    blocks.append(std::span(all).subspan(at, piece));
    EXPECT_EQ(blocks.size(), at + piece);
    EXPECT_LE(blocks.capacity(), std::max<std::size_t>(2 * blocks.size(), 64));
    EXPECT_LE(blocks.capacity(), blocks.size() + ByteBlocks::max_block_bytes);
  }
  const auto text = [&](std::size_t begin, std::size_t end) {
    std::string out = "+";
    blocks.append_to(out, begin, end);
    return out;
  };
  const std::string whole(all.begin(), all.end());
  EXPECT_EQ(text(0, all.size()), "+" + whole);
  for (const std::size_t begin : {0U, 1U, 63U, 64U, 65U, 128U, 70'000U, 299'999U, 300'000U}) {
    for (const std::size_t length : {0U, 1U, 64U, 200U, 66'000U})
      EXPECT_EQ(text(begin, begin + length), "+" + whole.substr(begin, length)) << begin;
  }
}

TEST(ByteBlocks, ThatAreEmptyHaveNothing) {
  const ByteBlocks blocks;
  std::string text;
  blocks.append_to(text, 0, 10);
  EXPECT_EQ(text, "");
  EXPECT_EQ(blocks.capacity(), 0U);
}

}  // namespace
}  // namespace motley::serving
