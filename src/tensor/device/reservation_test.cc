#include "tensor/device/reservation.h"

#include <cstring>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/device/cpu_device.h"
#include "tensor/device/metered_device.h"
#include "tensor/device/scripted_device.h"

namespace motley::tensor {
namespace {

constexpr std::size_t large = std::size_t{2} << 20;

TEST(AddressRange, OpensZerosAtAddressesThatStay) {
  AddressRange range = AddressRange::reserve(5 * large).value();
  ASSERT_EQ(range.size(), 5 * large);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.data()) % large, 0);
  ASSERT_TRUE(range.open(0, large).ok());
  std::memset(range.data(), 7, large);
  ASSERT_TRUE(range.open(large, large).ok());
  EXPECT_EQ(range.data()[large - 1], std::byte{7});
  EXPECT_EQ(range.data()[large], std::byte{0});
  EXPECT_EQ(range.data()[2 * large - 1], std::byte{0});
}

TEST(AddressRange, OpensZerosAgainAfterAClose) {
  AddressRange range = AddressRange::reserve(large).value();
  ASSERT_TRUE(range.open(0, large).ok());
  std::memset(range.data(), 7, large);
  range.close(0, large);
  ASSERT_TRUE(range.open(0, large).ok());
  EXPECT_EQ(range.data()[100], std::byte{0});
}

// Reserved addresses take no memory.
TEST(AddressRange, ReservesFarMoreThanItOpens) {
  constexpr std::size_t bytes = std::size_t{1} << 38;
  AddressRange range = AddressRange::reserve(bytes).value();
  ASSERT_TRUE(range.open(bytes - 4096, 4096).ok());
  range.data()[bytes - 1] = std::byte{1};
}

TEST(AddressRange, RefusesMoreThanThereAreAddresses) {
  const auto refused = AddressRange::reserve(std::size_t{1} << 60);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("no addresses for 1048576.0 TiB"));
}

TEST(Reservation, OfAnOrdinaryAllocatorIsCommittedFromTheStart) {
  CpuDevice device;
  const auto all = device.reserve(1000).value();
  EXPECT_EQ(all->size(), 1000);
  EXPECT_EQ(all->committed(), 1000);
  EXPECT_FALSE(all->pinned());
}

TEST(Reservation, IsCommittedPieceByPiece) {
  test::ScriptedDevice device(1);
  device.set_pinned_pieces(large / 4 * 3);
  const auto range = device.pinned_memory().reserve(large).value();
  EXPECT_TRUE(range->pinned());
  EXPECT_EQ(range->size(), large);
  EXPECT_EQ(range->committed(), 0);
  ASSERT_TRUE(range->commit().ok());
  EXPECT_EQ(range->committed(), large / 4 * 3);
  range->data()[0] = std::byte{5};
  ASSERT_TRUE(range->commit().ok());
  EXPECT_EQ(range->committed(), large);
  EXPECT_EQ(range->data()[0], std::byte{5});
}

TEST(Reservation, KeepsWhatItHasWhenMemoryRunsOut) {
  test::ScriptedDevice device(1);
  device.set_pinned_pieces(4096);
  device.fail_after_pieces(2);
  const auto range = device.pinned_memory().reserve(large).value();
  ASSERT_TRUE(range->commit().ok());
  ASSERT_TRUE(range->commit().ok());
  EXPECT_EQ(range->commit().error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(range->committed(), 8192);
  range->data()[8191] = std::byte{5};
}

TEST(Reservation, IsMeteredAsItIsCommitted) {
  auto script = std::make_unique<test::ScriptedDevice>(1);
  script->set_pinned_pieces(4096);
  script->fail_after_pieces(2);
  MeteredDevice device(std::move(script));
  {
    const auto range = device.pinned_memory().reserve(large).value();
    EXPECT_EQ(device.pinned_usage().allocations, 1);
    EXPECT_EQ(device.pinned_usage().bytes, 0);
    ASSERT_TRUE(range->commit().ok());
    ASSERT_TRUE(range->commit().ok());
    EXPECT_FALSE(range->commit().ok());
    EXPECT_EQ(range->committed(), 8192);
    EXPECT_EQ(device.pinned_usage().bytes, 8192);
    EXPECT_EQ(device.pinned_usage().allocations, 1);
  }
  EXPECT_EQ(device.pinned_usage().bytes, 0);
}

}  // namespace
}  // namespace motley::tensor
