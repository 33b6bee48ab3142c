#include "base/system/out_of_memory.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

Result<int> of_vector(std::size_t bytes) {
  return within_memory([&]() -> Result<int> {
    const std::vector<char> much(bytes);
    return static_cast<int>(much.size());
  });
}

TEST(WithinMemory, GivesWhatTheWorkGives) {
  EXPECT_EQ(within_memory([] { return 7; }).value(), 7);
  EXPECT_EQ(of_vector(9).value(), 9);
  EXPECT_TRUE(within_memory([] {}).ok());
  const Result<int> failed =
      within_memory([]() -> Result<int> { return Error(ErrorCode::not_found, "no such thing"); });
  EXPECT_EQ(failed.error().code(), ErrorCode::not_found);
}

TEST(WithinMemory, TheEndOfMemoryIsAnError) {
  const std::uint64_t before = out_of_memory_count();
  const Result<void> none = within_memory([] { throw std::bad_alloc(); });
  EXPECT_EQ(none.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(none.error().message(), "out of memory: try again later");
  // More than a vector can ever hold.
  EXPECT_EQ(of_vector(std::numeric_limits<std::size_t>::max()).error().code(),
            ErrorCode::out_of_memory);
  const auto no_thread = [] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  const std::uint64_t threads_before = out_of_threads_count();
  EXPECT_EQ(within_memory(no_thread).error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(out_of_threads_count(), threads_before + 1);
  EXPECT_EQ(out_of_memory_count() - before, 3);
}

TEST(WithinMemory, OtherExceptionsGoOn) {
  EXPECT_THROW(static_cast<void>(within_memory([] { throw std::logic_error("a mistake"); })),
               std::logic_error);
  const auto other = [] { throw std::system_error(std::make_error_code(std::errc::io_error)); };
  EXPECT_THROW(static_cast<void>(within_memory(other)), std::system_error);
}

TEST(MemoryReserve, IsSetFreeByHalvesAndTakenAgain) {
  MemoryReserve reserve(1 << 16);
  EXPECT_TRUE(reserve.whole());
  const std::new_handler handler = std::get_new_handler();
  ASSERT_NE(handler, nullptr);
  handler();  // the allocation is tried again
  EXPECT_FALSE(reserve.whole());
  EXPECT_THROW(handler(), std::bad_alloc);
  EXPECT_THROW(handler(), std::bad_alloc);
  reserve.restore();
  EXPECT_TRUE(reserve.whole());
  handler();
  EXPECT_FALSE(reserve.whole());
}

TEST(MemoryReserve, LeavesTheHandlerThatWasThere) {
  const std::new_handler before = std::get_new_handler();
  {
    const MemoryReserve reserve(1 << 16);
  }
  EXPECT_EQ(std::get_new_handler(), before);
}

}  // namespace
}  // namespace motley
