#include "net/path_lock.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"

namespace motley::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A lock of another program.
class ForeignLock {
 public:
  explicit ForeignLock(const std::filesystem::path& file)
      : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(::flock(descriptor_, LOCK_EX | LOCK_NB), 0);
  }
  ~ForeignLock() { ::close(descriptor_); }
  ForeignLock(const ForeignLock&) = delete;
  ForeignLock& operator=(const ForeignLock&) = delete;

 private:
  int descriptor_;
};

TEST(PathLock, IsHeldByOneAtATime) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "socket";
  {
    const auto first = PathLock::take(path);
    ASSERT_TRUE(first.ok()) << first.error().message();
    EXPECT_FALSE(PathLock::take(path, 2).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(PathLock::take(path, 1).ok());
}

TEST(PathLock, SaysWhichLockItDidNotGet) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "socket";
  const ForeignLock held(folder.path() / "socket.motley-lock");
  const auto refused = PathLock::take(path, 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("socket.motley-lock"), HasSubstr("end that process")));
}

// As flock(1) and other programs take it around a server's start.
TEST(PathLock, IsNotTheLockOfAWrapper) {
  const TemporaryFolder folder;
  const ForeignLock held(folder.path() / "socket.lock");
  EXPECT_TRUE(PathLock::take(folder.path() / "socket", 1).ok());
}

}  // namespace
}  // namespace motley::net
