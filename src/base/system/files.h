#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/system/mapped_files.h"

namespace motley {

// The error of a path that does not exist.
Error no_such_path(const std::filesystem::path& path);

// The same error if a folder or an index named the path, and not the user: then the folder is
// damaged, and the call is not wrong.
Error inside_folder(Error error);

enum class FileAccess : std::uint8_t {
  mapped,  // through the page cache: nothing is read before it is touched (mapped_files.h says what
           // becomes of a file that changes meanwhile)
  copied,  // read whole at once: nothing that happens to the file later matters
};

// How files are opened.
struct FileRules {
  // Implicit, because most callers name the access alone.
  FileRules(FileAccess how = FileAccess::mapped)
      : access(how) {}  // NOLINT(google-explicit-constructor)

  FileAccess access;
  // Once symbolic links are followed, files lie in this folder, or are not read; a path without
  // links. Empty: they may lie anywhere. What was opened is checked, not the path: between a check
  // of a path and its opening a link may change.
  std::filesystem::path beneath = {};
  // Where copies lie: on the disk of this folder, without a name. Empty: in memory.
  std::filesystem::path copies_in = {};
};

// A file in memory, read-only.
class MappedFile {
 public:
  // Refuses what is not a regular file (symbolic links are followed).
  static Result<MappedFile> open(const std::filesystem::path& path, const FileRules& rules = {});
  // Zeros, which take no memory; `name` is what messages call them.
  static Result<MappedFile> zeros(std::string_view name, std::size_t bytes);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // Starts reading these bytes in the background.
  void prefetch(std::size_t offset, std::size_t size) const;

 private:
  friend class OpenFile;
  friend class UnnamedFile;
  MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  MappedRange range_;
};

// An open regular file of which a part can be read before the whole is in memory.
class OpenFile {
 public:
  // As MappedFile::open().
  static Result<OpenFile> open(const std::filesystem::path& path, const FileRules& rules = {});

  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  std::size_t size() const { return static_cast<std::size_t>(status_.st_size); }
  // Bytes from `offset` on; fewer if the file ends before.
  Result<std::string> read_at(std::size_t offset, std::size_t bytes) const;
  // The whole file.
  Result<MappedFile> load() const;

 private:
  OpenFile(std::filesystem::path path, const FileRules& rules, int descriptor,
           const struct stat& status)
      : path_(std::move(path)),
        access_(rules.access),
        copies_in_(rules.copies_in),
        descriptor_(descriptor),
        status_(status) {}
  Result<MappedFile> copy_to_disk() const;
  Result<void> read_whole(std::span<char> data) const;

  std::filesystem::path path_;
  FileAccess access_;
  std::filesystem::path copies_in_;
  int descriptor_;
  struct stat status_;
};

// A whole small file; larger than `max_bytes` is an error. `beneath`: as FileRules.
Result<std::string> read_text(const std::filesystem::path& path, std::size_t max_bytes,
                              const std::filesystem::path& beneath = {});

// What a user names as input of a command: a file, a pipe, or "-" for standard input, read to its
// end.
Result<std::string> read_input(const std::filesystem::path& path, std::size_t max_bytes);

// Writes a file piece by piece under a temporary name and gives it its own name at commit(), so
// that no reader ever sees half of it. Without commit() nothing is left behind.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

  // Flushes to the disk and renames.
  Result<void> commit();

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_;
};

// Removes a file; that there is none is no error.
Result<void> remove_file(const std::filesystem::path& path);

// The names in a folder, sorted, without "." and "..". `beneath`: as FileRules.
Result<std::vector<std::string>> list_folder(const std::filesystem::path& folder,
                                             const std::filesystem::path& beneath = {});

enum class PathKind : std::uint8_t { missing, file, folder, other };

// Follows symbolic links; a loop of them, and one that points nowhere, is an error.
Result<PathKind> path_kind(const std::filesystem::path& path);

}  // namespace motley
