#pragma once

#include <filesystem>

#include "base/result.h"

namespace motley::net {

// Held by one process, and one thread of it, at a time: the right to look at what lies at a path
// and to replace it. It is a lock on PATH.motley-lock, a file that is there only meanwhile.
class PathLock {
 public:
  // Tries again while another holds it, every 2 ms. Its error says why, and what to do.
  static Result<PathLock> take(const std::filesystem::path& path, int tries = 1000);

  PathLock(PathLock&& other) noexcept;
  PathLock& operator=(PathLock&& other) noexcept;
  ~PathLock();

 private:
  PathLock(std::filesystem::path file, int descriptor)
      : file_(std::move(file)), descriptor_(descriptor) {}

  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace motley::net
