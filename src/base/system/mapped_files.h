#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <sys/stat.h>

#include "base/result.h"
#include "base/system/clock.h"

// Files that stay mapped into memory. A page of one is read when it is touched: a file that is
// written meanwhile changes what was computed from it, and one that is cut short ends the process
// (SIGBUS).
namespace motley {

// From now on a page of a mapped file that can't be read ends the process with exit status 1 and
// one line on standard error that names the file. Any other SIGBUS does what it did before. For the
// program, once.
void explain_lost_pages();

// What is known of a mapping while it lives; MappedFile makes them.
class MappedRange {
 public:
  MappedRange() = default;  // of no file
  // The status is that of the file when it was opened.
  MappedRange(const std::filesystem::path& path, const void* data, std::size_t size,
              const struct stat& status);
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;
  ~MappedRange();

  struct Entry;

 private:
  std::shared_ptr<Entry> entry_;
};

// Looks about every `interval` whether a mapped file is still the one that was opened: its size,
// the time it was written and its inode. Each file that is not is named in the log once.
class MappedFilesWatch {
 public:
  explicit MappedFilesWatch(Duration interval = std::chrono::seconds(1));
  MappedFilesWatch(const MappedFilesWatch&) = delete;
  MappedFilesWatch& operator=(const MappedFilesWatch&) = delete;
  ~MappedFilesWatch();

  // `unavailable` from the first change on, for good; names the file without its folder.
  Result<void> health() const;
  // Waits for a look that begins after this call.
  void look();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
