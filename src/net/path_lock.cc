#include "net/path_lock.h"

#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "base/cat.h"

namespace motley::net {
namespace {

bool lock(int descriptor) {
  int status = 0;
  do status = ::flock(descriptor, LOCK_EX);
  while (status != 0 && errno == EINTR);
  return status == 0;
}

// Whether it is open here, rather than removed by its last holder.
bool is_at(int descriptor, const std::filesystem::path& file) {
  struct stat opened{};
  struct stat found{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(file.c_str(), &found) == 0 &&
         opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

}  // namespace

Result<PathLock> PathLock::take(const std::filesystem::path& path) {
  const std::filesystem::path file = cat(path.native(), ".lock");
  while (true) {
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor < 0 || !lock(descriptor)) {
      const int why = errno;
      if (descriptor >= 0) ::close(descriptor);
      return Error(ErrorCode::io, std::generic_category().message(why));
    }
    if (is_at(descriptor, file)) return PathLock(file, descriptor);
    ::close(descriptor);
  }
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
