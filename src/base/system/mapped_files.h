#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <sys/stat.h>

#include "base/result.h"
#include "base/system/clock.h"

// Files that stay mapped into memory. A page is read when it is first used: a file that is written
// meanwhile changes results, and one that is truncated ends the process (SIGBUS).
namespace motley {

// From now on an unreadable page of a mapped file ends the process with exit status 1 and one line
// on standard error that names the file. Other SIGBUS signals are not affected. Call once per
// program.
void explain_lost_pages();

// Records a mapping during its lifetime; created by MappedFile.
class MappedRange {
 public:
  MappedRange() = default;  // of no file
  // `status` is that of the file when it was opened.
  MappedRange(const std::filesystem::path& path, const void* data, std::size_t size,
              const struct stat& status);
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;
  ~MappedRange();

  struct Entry;

 private:
  std::shared_ptr<Entry> entry_;
};

// Checks about every `interval` whether mapped files are still the ones that were opened, by size,
// modification time and inode. Each file that is not is logged once.
class MappedFilesWatch {
 public:
  // The clock must outlive it; null: the steady clock.
  explicit MappedFilesWatch(Duration interval = std::chrono::seconds(1),
                            const Clock* clock = nullptr);
  MappedFilesWatch(const MappedFilesWatch&) = delete;
  MappedFilesWatch& operator=(const MappedFilesWatch&) = delete;
  ~MappedFilesWatch();

  // `unavailable` after the first change, for good; names the file without its folder.
  Result<void> health() const;
  // Waits for a check that begins after this call.
  void look();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
