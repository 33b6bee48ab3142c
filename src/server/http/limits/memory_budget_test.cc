#include "server/http/limits/memory_budget.h"

#include <vector>

#include <gtest/gtest.h>

namespace motley::server {
namespace {

using Refusal = MemoryBudget::Refusal;
using Share = MemoryBudget::Share;

constexpr std::size_t mib = std::size_t{1} << 20;

TEST(MemoryBudget, IsOnePartForAllAndOnePartForAnAddress) {
  MemoryBudget budget(100, 40);
  Share first(budget, "a");
  EXPECT_EQ(first.grow(30), Refusal::none);
  EXPECT_EQ(first.grow(11), Refusal::address);
  {
    Share second(budget, "a");
    EXPECT_EQ(second.grow(11), Refusal::address);
    EXPECT_EQ(second.grow(10), Refusal::none);
    Share vouched_for(budget, "c", 50);
    EXPECT_EQ(vouched_for.grow(51), Refusal::address);
    EXPECT_EQ(vouched_for.grow(50), Refusal::none);
    EXPECT_EQ(Share(budget, "c").grow(1), Refusal::address);
    EXPECT_EQ(Share(budget, "b").grow(11), Refusal::all);
    Share last(budget, "b");
    EXPECT_EQ(last.grow(10), Refusal::none);
    EXPECT_EQ(budget.used_bytes(), 100U);
  }
  EXPECT_EQ(budget.used_bytes(), 30U);
  Share moved = std::move(first);
  EXPECT_EQ(moved.bytes(), 30U);
  EXPECT_EQ(moved.grow(10), Refusal::none);
  moved = {};
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST(MemoryBudget, KeepsAReserveForAddressesThatHoldLittle) {
  MemoryBudget budget(160 * mib, 80 * mib);
  Share first(budget, "a");
  EXPECT_EQ(first.grow(80 * mib + 1), Refusal::address);
  EXPECT_EQ(first.grow(80 * mib), Refusal::none);
  EXPECT_EQ(Share(budget, "a").grow(1), Refusal::address);
  Share second(budget, "b");
  EXPECT_EQ(second.grow(80 * mib), Refusal::all);
  EXPECT_EQ(second.grow(70 * mib), Refusal::none);
  EXPECT_EQ(second.grow(1), Refusal::all);
  {
    Share third(budget, "c");
    EXPECT_EQ(third.grow(mib + 1), Refusal::all);
    // As a body grows.
    EXPECT_EQ(third.grow(mib / 2), Refusal::none);
    EXPECT_EQ(third.grow(mib / 2), Refusal::none);
    EXPECT_EQ(third.grow(1), Refusal::all) << "it holds much by now";
    EXPECT_EQ(budget.used_bytes("c"), mib);
  }
  EXPECT_EQ(budget.used_bytes(), 150 * mib);
  EXPECT_EQ(budget.used_bytes("c"), 0U);
}

TEST(MemoryBudget, LeavesSomethingWhereFourAddressesTakeAQuarterEach) {
  MemoryBudget budget(512 * mib, 128 * mib);
  std::vector<Share> shares;
  for (const char* const address : {"a", "b", "c", "d"}) {
    shares.emplace_back(budget, address);
    while (shares.back().grow(mib) == Refusal::none) {
    }
  }
  EXPECT_EQ(budget.used_bytes(), 480 * mib);
  EXPECT_EQ(Share(budget, "e").grow(70), Refusal::none);
}

}  // namespace
}  // namespace motley::server
