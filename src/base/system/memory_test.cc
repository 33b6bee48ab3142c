#include "base/system/memory.h"

#include <filesystem>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"

namespace motley {
namespace {

// A folder with the files that the kernel would show to a process.
class MachineMemoryTest : public testing::Test {
 protected:
  MachineMemoryTest() {
    put("proc/meminfo",
        "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    600 kB\n");
  }

  void put(std::string_view name, std::string_view content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    folder_.file(name, content);
  }

  // The process is in this group of version 2.
  void in_group(std::string_view group, std::string_view mount_root = "/") const {
    put("proc/self/cgroup", cat("0::", group, "\n"));
    put("proc/self/mountinfo",
        cat("23 27 0:22 / /sys rw - sysfs sysfs rw\n30 23 0:26 ", mount_root,
            " /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"));
  }
  // And in this one of version 1, with the tree of version 2 empty, as hybrid systems have it.
  void in_old_group(std::string_view group) const {
    put("proc/self/cgroup", cat("4:cpu,memory:", group, "\n3:cpuset:/\n0::/\n"));
    put("proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "31 23 0:27 / /sys/fs/cgroup/memory\\040of\\040all rw - cgroup cgroup rw,cpu,memory\n"
        "32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  }

  MachineMemory read() const {
    const auto memory = machine_memory(folder_.path());
    EXPECT_TRUE(memory.ok()) << memory.error().message();
    return memory.ok() ? *memory : MachineMemory{};
  }
  void expect(std::uint64_t total, std::uint64_t available, std::string_view bound) const {
    const MachineMemory memory = read();
    EXPECT_EQ(memory.total, total);
    EXPECT_EQ(memory.available, available);
    EXPECT_EQ(memory.bound, bound);
  }

  TemporaryFolder folder_;
};

constexpr std::string_view machine = "the machine";

TEST_F(MachineMemoryTest, IsTheMachinesWithoutLimits) { expect(1000 << 10, 600 << 10, machine); }

TEST_F(MachineMemoryTest, IsThatOfTheProcesssOwnGroupWhereThatIsLess) {
  in_group("/system.slice/motley.service");
  const std::string group = "sys/fs/cgroup/system.slice/motley.service/";
  put(group + "memory.max", "500000\n");
  put(group + "memory.high", "max\n");
  put(group + "memory.current", "300000\n");
  put(group + "memory.stat", "anon 200000\nfile 100000\ninactive_file 50000\n");
  expect(500'000, 250'000, "the cgroup /system.slice/motley.service");
  put(group + "memory.high", "400000\n");
  expect(400'000, 150'000, "the cgroup /system.slice/motley.service");
}

TEST_F(MachineMemoryTest, AParentsLimitHoldsForItsGroups) {
  in_group("/a/b/c");
  put("sys/fs/cgroup/a/b/c/memory.max", "max\n");
  put("sys/fs/cgroup/a/b/c/memory.current", "1000\n");
  put("sys/fs/cgroup/a/memory.max", "200000\n");
  put("sys/fs/cgroup/a/memory.current", "150000\n");
  expect(200'000, 50'000, "the cgroup /a");
  put("sys/fs/cgroup/memory.max", "100000\n");
  put("sys/fs/cgroup/memory.current", "99000\n");
  expect(100'000, 1'000, "the cgroup /");
}

TEST_F(MachineMemoryTest, GroupsOfOthersDoNotMatter) {
  in_group("/a");
  put("sys/fs/cgroup/a/memory.max", "max\n");
  put("sys/fs/cgroup/b/memory.max", "10\n");
  put("sys/fs/cgroup/a/below/memory.max", "10\n");
  expect(1000 << 10, 600 << 10, machine);
}

// With a namespace of its own a container's group is the root, without one it has the host's name,
// and only the part below the mount's root can be read.
TEST_F(MachineMemoryTest, ReadsAContainersGroupHoweverItIsNamed) {
  put("sys/fs/cgroup/memory.max", "500000\n");
  put("sys/fs/cgroup/memory.current", "300000\n");
  in_group("/");
  expect(500'000, 200'000, "the cgroup /");
  in_group("/docker/1f", "/docker/1f");
  expect(500'000, 200'000, "the cgroup /docker/1f");
  in_group("/docker/1f/inner", "/docker/1f");
  put("sys/fs/cgroup/inner/memory.max", "400000\n");
  put("sys/fs/cgroup/inner/memory.current", "300000\n");
  expect(400'000, 100'000, "the cgroup /docker/1f/inner");
  in_group("/../elsewhere", "/");
  expect(500'000, 200'000, "the cgroup /");
}

TEST_F(MachineMemoryTest, ReadsTheFirstVersion) {
  in_old_group("/jobs/7");
  const std::string tree = "sys/fs/cgroup/memory of all/";
  put(tree + "jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
  put(tree + "jobs/7/memory.usage_in_bytes", "300000\n");
  put(tree + "jobs/memory.limit_in_bytes", "500000\n");
  put(tree + "jobs/memory.usage_in_bytes", "300000\n");
  put(tree + "jobs/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
  put(tree + "memory.limit_in_bytes", "9223372036854771712\n");
  expect(500'000, 300'000, "the cgroup /jobs");
}

TEST_F(MachineMemoryTest, AGroupBeyondItsLimitHasNothingLeft) {
  in_group("/");
  put("sys/fs/cgroup/memory.max", "500000\n");
  put("sys/fs/cgroup/memory.current", "600000\n");
  expect(500'000, 0, "the cgroup /");
}

TEST_F(MachineMemoryTest, CutFilesAreNoLimit) {
  put("proc/self/cgroup", "0\n:\n0:\n0::/a");
  put("proc/self/mountinfo", "\n30 23\n30 23 0:26 / /sys/fs/cgroup rw -\n");
  put("proc/self/limits", "Max address space\nMax data size             ");
  put("sys/fs/cgroup/a/memory.max", "10\n");
  expect(1000 << 10, 600 << 10, machine);
}

TEST_F(MachineMemoryTest, TheProcesssOwnLimitsCount) {
  put("proc/self/status", "Name:\tmotley\nVmSize:\t     100 kB\nVmData:\t      40 kB\n");
  put("proc/self/limits",
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max data size             unlimited            unlimited            bytes     \n"
      "Max address space         204800               unlimited            bytes     \n");
  expect(200 << 10, 100 << 10, "RLIMIT_AS");
  put("proc/self/limits",
      "Max data size             102400               102400               bytes     \n"
      "Max address space         unlimited            unlimited            bytes     \n");
  expect(100 << 10, 60 << 10, "RLIMIT_DATA");
}

TEST(MachineMemory, OfThisMachineIsKnown) {
  const auto memory = machine_memory();
  ASSERT_TRUE(memory.ok()) << memory.error().message();
  EXPECT_GT(memory->total, 0U);
  EXPECT_LE(memory->available, memory->total);
}

TEST(MachineMemory, SaysWhereItCanNotBeRead) {
  const TemporaryFolder empty;
  const auto memory = machine_memory(empty.path());
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory.error().message(), testing::HasSubstr("meminfo"));
}

}  // namespace
}  // namespace motley
