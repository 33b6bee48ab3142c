#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/system/files.h"

namespace motley {

// A file without a name: written once from its beginning, then read as memory. Nothing of it is
// left when the process ends, however it ends.
class UnnamedFile {
 public:
  // On the disk of this folder; empty: in the host's memory.
  static Result<UnnamedFile> create(const std::filesystem::path& folder);

  UnnamedFile(UnnamedFile&& other) noexcept;
  UnnamedFile& operator=(UnnamedFile&&) = delete;
  ~UnnamedFile();

  // Takes this many bytes of the disk now, or fails with `storage_full`. Of memory nothing is taken
  // before it is written, but more than there is fails with `out_of_memory`.
  Result<void> reserve(std::uint64_t bytes);
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  std::uint64_t size() const { return size_; }
  // The first bytes of what was written; fewer if there are not so many.
  Result<std::string> beginning(std::size_t bytes) const;

  // All that was written; `name` is what messages call it.
  Result<MappedFile> map(std::string_view name) &&;

 private:
  UnnamedFile(std::filesystem::path folder, int descriptor)
      : folder_(std::move(folder)), descriptor_(descriptor) {}
  Error failure(std::string_view action, int error) const;
  // Room for so many bytes in memory.
  Result<void> make_room(std::uint64_t bytes);

  std::filesystem::path folder_;  // empty: the file is in memory
  int descriptor_;
  std::byte* memory_ = nullptr;
  std::uint64_t room_ = 0;  // bytes of it
  std::uint64_t size_ = 0;
};

}  // namespace motley
