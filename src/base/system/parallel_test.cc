#include "base/system/parallel.h"

#include <atomic>
#include <new>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

constexpr std::uint64_t much = std::uint64_t{1} << 30;

TEST(ForEachIndex, CallsEachOnce) {
  for (const std::size_t count : {0U, 1U, 7U, 1000U}) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, much}) {
      std::vector<std::atomic<int>> calls(count);
      for_each_index(count, bytes, [&](std::size_t i) { ++calls[i]; });
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(calls[i], 1) << i << " of " << count;
    }
  }
}

TEST(ForEachIndex, TheEndOfMemoryEndsAll) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, much}) {
    std::atomic<std::size_t> calls = 0;
    const auto body = [&](std::size_t) {
      if (++calls == 3) throw std::bad_alloc();
    };
    EXPECT_THROW(for_each_index(1'000'000'000'000, bytes, body), std::bad_alloc);
    EXPECT_GE(calls, 3U);
  }
}

}  // namespace
}  // namespace motley
