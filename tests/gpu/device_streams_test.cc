#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/device/device.h"
#include "tensor/device/reservation.h"
#include "tensor/device/staging.h"

// Events, graphs and pinned memory of a GPU.
namespace motley::tensor {
namespace {

class CudaStreams : public testing::Test {
 protected:
  CudaStreams()
      : device_(open_device({.kind = DeviceChoice::Kind::cuda}).value()),
        stream_(device_->create_stream().value()) {}

  std::vector<std::uint8_t> read(const Buffer& buffer) {
    std::vector<std::uint8_t> bytes(buffer.size());
    stream_->copy(bytes.data(), buffer.data(), buffer.size()).value();
    stream_->synchronize().value();
    return bytes;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaStreams, AnEventIsRecordedAgainAndAgain) {
  constexpr std::size_t bytes = std::size_t{32} << 20;
  const auto reader = device_->create_stream().value();
  const auto event = device_->create_event().value();
  EXPECT_TRUE(event->reached().value()) << "nothing recorded";
  const Buffer buffer = device_->allocate(bytes).value();
  const Buffer copy = device_->allocate(bytes).value();
  for (const int value : {1, 2, 3, 4, 5}) {
    ASSERT_TRUE(stream_->fill(buffer.data(), std::byte(value), bytes).ok());
    ASSERT_TRUE(stream_->record(*event).ok());
    ASSERT_TRUE(reader->wait(*event).ok());
    ASSERT_TRUE(reader->copy(copy.data(), buffer.data(), bytes).ok());
    // The next round writes what the reader reads.
    const auto passed = reader->record().value();
    ASSERT_TRUE(stream_->wait(*passed).ok());
  }
  ASSERT_TRUE(reader->synchronize().ok());
  EXPECT_TRUE(event->reached().value());
  const auto back = read(copy);
  EXPECT_EQ(back.front(), 5);
  EXPECT_EQ(back.back(), 5);
}

TEST_F(CudaStreams, AGraphReadsWhatItsAddressesHoldNow) {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const Buffer from = device_->allocate(bytes).value();
  const Buffer to = device_->allocate(bytes).value();
  ASSERT_TRUE(stream_->fill(to.data(), std::byte{9}, bytes).ok());
  const auto graph =
      stream_
          ->capture([&]() -> Result<void> { return stream_->copy(to.data(), from.data(), bytes); })
          .value();
  EXPECT_EQ(read(to).back(), 9) << "ran while it was captured";
  for (const int value : {1, 2, 3}) {
    ASSERT_TRUE(stream_->fill(from.data(), std::byte(value), bytes).ok());
    ASSERT_TRUE(graph->launch(*stream_).ok());
    EXPECT_EQ(read(to).back(), value);
  }
}

TEST_F(CudaStreams, AnotherStreamJoinsAGraphThroughEvents) {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const auto side = device_->create_stream().value();
  const auto forked = device_->create_event().value();
  const auto joined = device_->create_event().value();
  const Buffer a = device_->allocate(bytes).value();
  const Buffer b = device_->allocate(bytes).value();
  const auto graph = stream_
                         ->capture([&]() -> Result<void> {
                           MOTLEY_TRY_VOID(stream_->fill(a.data(), std::byte{4}, bytes));
                           MOTLEY_TRY_VOID(stream_->record(*forked));
                           MOTLEY_TRY_VOID(side->wait(*forked));
                           MOTLEY_TRY_VOID(side->copy(b.data(), a.data(), bytes));
                           MOTLEY_TRY_VOID(side->record(*joined));
                           return stream_->wait(*joined);
                         })
                         .value();
  ASSERT_TRUE(stream_->fill(b.data(), std::byte{0}, bytes).ok());
  ASSERT_TRUE(graph->launch(*stream_).ok());
  EXPECT_EQ(read(b).front(), 4);
}

TEST_F(CudaStreams, AnErrorEndsACaptureAndTheStreamGoesOn) {
  const auto graph =
      stream_->capture([]() -> Result<void> { return Error(ErrorCode::busy, "not now"); });
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code(), ErrorCode::busy);
  const Buffer buffer = device_->allocate(64).value();
  ASSERT_TRUE(stream_->fill(buffer.data(), std::byte{3}, 64).ok());
  EXPECT_EQ(read(buffer).back(), 3);
}

// A load goes on while a step is captured.
TEST_F(CudaStreams, OtherThreadsWorkDuringACapture) {
  const Buffer buffer = device_->allocate(64).value();
  const auto graph = stream_->capture([&]() -> Result<void> {
    std::thread([&] {
      const auto other = device_->create_stream().value();
      const Buffer theirs = device_->allocate(1 << 20).value();
      EXPECT_TRUE(other->fill(theirs.data(), std::byte{1}, 1 << 20).ok());
      EXPECT_TRUE(other->record().value()->synchronize().ok());
    }).join();
    return stream_->fill(buffer.data(), std::byte{6}, 64);
  });
  ASSERT_TRUE(graph.ok()) << graph.error().message();
  ASSERT_TRUE((*graph)->launch(*stream_).ok());
  EXPECT_EQ(read(buffer).front(), 6);
}

TEST_F(CudaStreams, PinnedMemoryIsTheHosts) {
  const Buffer pinned = device_->pinned_memory().allocate(1 << 20).value();
  EXPECT_TRUE(pinned.pinned());
  EXPECT_EQ(pinned.device().kind, DeviceKind::cpu);
  std::memset(pinned.data(), 8, pinned.size());
  const Buffer buffer = device_->allocate(pinned.size()).value();
  EXPECT_FALSE(buffer.pinned());
  ASSERT_TRUE(stream_->copy(buffer.data(), pinned.data(), pinned.size()).ok());
  EXPECT_EQ(read(buffer).back(), 8);
  const auto refused = device_->pinned_memory().allocate(std::size_t{1} << 50);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
}

// Far more than is committed: a reservation takes addresses only.
TEST_F(CudaStreams, PinnedMemoryIsCommittedPieceByPiece) {
  const auto range = device_->pinned_memory().reserve(std::size_t{256} << 20).value();
  EXPECT_TRUE(range->pinned());
  EXPECT_EQ(range->committed(), 0);
  const std::size_t piece = range->piece_bytes();
  const Buffer buffer = device_->allocate(piece).value();
  for (std::uint8_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(range->commit().ok());
    EXPECT_EQ(range->committed(), (i + 1) * piece);
    std::byte* const begin = range->data() + i * piece;
    EXPECT_EQ(begin[piece - 1], std::byte{0});
    std::memset(begin, i + 1, piece);
    ASSERT_TRUE(stream_->copy(buffer.data(), begin, piece).ok());
    EXPECT_EQ(read(buffer).back(), i + 1);
  }
  EXPECT_EQ(range->data()[0], std::byte{1});
}

TEST_F(CudaStreams, MemoryIsCommittedDuringACapture) {
  const auto range = device_->pinned_memory().reserve(std::size_t{64} << 20).value();
  const Buffer buffer = device_->allocate(64).value();
  const auto graph = stream_->capture([&]() -> Result<void> {
    std::thread([&] { EXPECT_TRUE(range->commit().ok()); }).join();
    return stream_->fill(buffer.data(), std::byte{6}, 64);
  });
  ASSERT_TRUE(graph.ok()) << graph.error().message();
  ASSERT_TRUE((*graph)->launch(*stream_).ok());
  EXPECT_EQ(read(buffer).front(), 6);
}

TEST_F(CudaStreams, ReservesNoMorePinnedMemoryThanThereIs) {
  const auto refused = device_->pinned_memory().reserve(std::size_t{1} << 46);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
}

TEST_F(CudaStreams, ThreadsFillOneStagingRing) {
  constexpr std::size_t share = (std::size_t{8} << 20) + 12345;
  constexpr std::size_t count = 4;
  const auto ring = Staging::create(*device_, {.piece_bytes = 1 << 20, .pieces = 3}).value();
  const Buffer to = device_->allocate(share * count).value();
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      std::vector<std::uint8_t> bytes(share);
      for (std::size_t at = 0; at < share; ++at) bytes[at] = std::uint8_t((at * 7 + i) % 251);
      if (!ring->copy(*stream_, to.data() + i * share, bytes.data(), share).ok()) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  const auto back = read(to);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < back.size(); ++at)
    wrong += back[at] != std::uint8_t((at % share * 7 + at / share) % 251) ? 1 : 0;
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace motley::tensor
