#include "base/system/memory.h"

#include <filesystem>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"

namespace motley {
namespace {

class MachineMemoryTest : public testing::Test {
 protected:
  MachineMemoryTest() {
    folder_.file("meminfo",
                 "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    600 kB\n");
  }

  void put(std::string_view name, std::string_view content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    folder_.file(name, content);
  }

  void expect(std::uint64_t total, std::uint64_t available) const {
    const auto memory = machine_memory(folder_.path(), folder_ / "group");
    ASSERT_TRUE(memory.ok()) << memory.error().message();
    EXPECT_EQ(memory->total, total);
    EXPECT_EQ(memory->available, available);
  }

  TemporaryFolder folder_;
};

TEST_F(MachineMemoryTest, IsTheMachinesOutsideOfAContainer) { expect(1000 << 10, 600 << 10); }

TEST_F(MachineMemoryTest, IsTheContainersWhereThatIsLess) {
  put("group/memory.max", "500000\n");
  put("group/memory.current", "300000\n");
  put("group/memory.stat", "anon 200000\nfile 100000\ninactive_file 50000\n");
  expect(500'000, 250'000);
}

TEST_F(MachineMemoryTest, ReadsTheOlderControlGroups) {
  put("group/memory/memory.limit_in_bytes", "500000\n");
  put("group/memory/memory.usage_in_bytes", "300000\n");
  put("group/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
  expect(500'000, 300'000);
}

TEST_F(MachineMemoryTest, AContainerWithoutALimitChangesNothing) {
  put("group/memory.max", "max\n");
  put("group/memory.current", "300000\n");
  put("group/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect(1000 << 10, 600 << 10);
}

TEST_F(MachineMemoryTest, AContainerBeyondItsLimitHasNothingLeft) {
  put("group/memory.max", "500000\n");
  put("group/memory.current", "600000\n");
  expect(500'000, 0);
}

TEST(MachineMemory, OfThisMachineIsKnown) {
  const auto memory = machine_memory();
  ASSERT_TRUE(memory.ok()) << memory.error().message();
  EXPECT_GT(memory->total, 0U);
  EXPECT_LE(memory->available, memory->total);
}

TEST(MachineMemory, SaysWhereItCanNotBeRead) {
  const TemporaryFolder empty;
  const auto memory = machine_memory(empty.path(), empty.path());
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory.error().message(), testing::HasSubstr("meminfo"));
}

}  // namespace
}  // namespace motley
