#include "tensor/device/staging.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

namespace motley::tensor {
namespace {

std::vector<std::uint8_t> numbered(std::size_t count, std::size_t from = 0) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>((from + i) * 31 % 251);
  return bytes;
}

bool holds(const Buffer& buffer, std::size_t at, const std::vector<std::uint8_t>& bytes) {
  return std::memcmp(buffer.data() + at, bytes.data(), bytes.size()) == 0;
}

TEST(Staging, CopiesMoreThanItHolds) {
  test::ScriptedDevice device(1);
  const auto stream = device.new_stream();
  const auto ring = Staging::create(device, {.piece_bytes = 256, .pieces = 2}).value();
  const Buffer to = device.allocate(5000).value();
  for (std::size_t round = 0; round < 3; ++round) {
    auto bytes = numbered(4999, round);
    ASSERT_TRUE(ring->copy(*stream, to.data(), bytes.data(), bytes.size()).ok());
    const auto expected = bytes;
    std::ranges::fill(bytes, std::uint8_t{0});  // the caller's again
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_TRUE(holds(to, 0, expected));
  }
}

TEST(Staging, APieceComesBackOnlyBehindItsCopy) {
  test::ScriptedDevice device(2);
  const auto stream = device.new_stream();
  const auto ring = Staging::create(device, {.piece_bytes = 256, .pieces = 1}).value();
  const Buffer to = device.allocate(512).value();
  const auto first = numbered(256);
  const auto second = numbered(256, 77);
  for (std::size_t at = 0; at < 512; at += 256) {
    // take() must wait here in the second round: nothing has advanced the stream.
    auto piece = ring->take().value();
    std::memcpy(piece.data(), at == 0 ? first.data() : second.data(), 256);
    ASSERT_TRUE(ring->send(std::move(piece), *stream, to.data() + at, 256).ok());
  }
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_TRUE(holds(to, 0, first));
  EXPECT_TRUE(holds(to, 256, second));
}

TEST(Staging, ADroppedPieceIsFreeAgain) {
  CpuDevice device({.threads = 1});
  const auto ring = Staging::create(device, {.piece_bytes = 100, .pieces = 1}).value();
  std::byte* const data = ring->take().value().data();
  EXPECT_EQ(ring->take().value().data(), data);
  EXPECT_EQ(ring->piece_bytes(), 256U);
}

TEST(Staging, AFailedCopyIsReportedAndLosesNoPiece) {
  test::ScriptedDevice device(3);
  const auto stream = device.new_stream();
  const auto ring = Staging::create(device, {.piece_bytes = 256, .pieces = 1}).value();
  const Buffer to = device.allocate(1024).value();
  const auto bytes = numbered(1024);
  device.fail_after(2);
  const auto copied = ring->copy(*stream, to.data(), bytes.data(), bytes.size());
  ASSERT_FALSE(copied.ok());
  EXPECT_EQ(copied.error().code(), ErrorCode::internal);
  EXPECT_TRUE(ring->take().ok());
}

TEST(Staging, ManyThreadsFillOneRing) {
  test::ScriptedDevice device(4);
  const auto stream = device.new_stream();
  const auto ring = Staging::create(device, {.piece_bytes = 256, .pieces = 3}).value();
  constexpr std::size_t share = 20'000;
  constexpr std::size_t count = 5;
  const Buffer to = device.allocate(share * count).value();
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const auto bytes = numbered(share, i);
      if (!ring->copy(*stream, to.data() + i * share, bytes.data(), share).ok()) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(failed, 0);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_TRUE(holds(to, i * share, numbered(share, i))) << i;
}

}  // namespace
}  // namespace motley::tensor
