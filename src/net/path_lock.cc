#include "net/path_lock.h"

#include <chrono>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "base/cat.h"

namespace motley::net {
namespace {

constexpr auto pause = std::chrono::milliseconds(2);  // between two tries

// Whether it is open here, rather than removed by its last holder.
bool is_at(int descriptor, const std::filesystem::path& file) {
  struct stat opened{};
  struct stat found{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(file.c_str(), &found) == 0 &&
         opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

}  // namespace

Result<PathLock> PathLock::take(const std::filesystem::path& path, int tries) {
  const std::filesystem::path file = cat(path.native(), ".motley-lock");
  for (int left = tries; left > 0; --left) {
    if (left < tries) std::this_thread::sleep_for(pause);
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool locked = descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    if (locked && is_at(descriptor, file)) return PathLock(file, descriptor);
    const int why = locked ? EWOULDBLOCK : errno;
    if (descriptor >= 0) ::close(descriptor);
    if (why != EWOULDBLOCK && why != EINTR)
      return Error(ErrorCode::io, std::generic_category().message(why), "",
                   "give a path in a folder that this user may write in");
  }
  return Error(ErrorCode::io, cat("another process holds the lock ", quote(file.native())), "",
               "end that process (fuser shows it), or choose another path");
}

PathLock::PathLock(PathLock&& other) noexcept
    : file_(std::move(other.file_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

PathLock& PathLock::operator=(PathLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

// Removed before it is given up, so that a later holder has a file of its own.
PathLock::~PathLock() {
  if (descriptor_ < 0) return;
  std::ignore = ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace motley::net
