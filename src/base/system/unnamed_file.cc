#include "base/system/unnamed_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "base/cat.h"
#include "base/system/memory.h"
#include "base/units.h"

namespace motley {
namespace {

constexpr mode_t owner_only = 0600;

// For file systems without O_TMPFILE.
int create_and_unlink(const std::filesystem::path& folder) {
  static std::atomic<std::uint64_t> serial{0};
  while (true) {
    const std::filesystem::path path =
        folder / cat(".motley-", ::getpid(), "-", serial.fetch_add(1), ".part");
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, owner_only);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor >= 0) ::unlink(path.c_str());
    return descriptor;
  }
}

std::uint64_t whole_pages(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// The kernel would grant more memory than there is, and kill the process when it is used.
Result<void> fits_in_memory(std::uint64_t bytes) {
  MOTLEY_TRY(const MachineMemory memory, machine_memory());
  if (bytes <= memory.available) return {};
  return Error(ErrorCode::out_of_memory,
               cat(format_bytes(bytes), " do not fit into the ", format_bytes(memory.available),
                   " that ", memory.bound, " leaves"),
               {}, "try again when less memory is in use");
}

int open_unnamed(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, owner_only);
  const bool unknown = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;
  return descriptor < 0 && unknown ? create_and_unlink(folder) : descriptor;
}

}  // namespace

Result<UnnamedFile> UnnamedFile::create(const std::filesystem::path& folder) {
  if (folder.empty()) return UnnamedFile({}, -1);
  UnnamedFile file(folder, open_unnamed(folder));
  if (file.descriptor_ < 0) return file.failure("make a file", errno);
  return file;
}

UnnamedFile::UnnamedFile(UnnamedFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(std::exchange(other.memory_, nullptr)),
      room_(std::exchange(other.room_, 0)),
      size_(std::exchange(other.size_, 0)) {}

UnnamedFile::~UnnamedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (memory_ != nullptr) ::munmap(memory_, room_);
}

Error UnnamedFile::failure(std::string_view action, int error) const {
  // Without the folder, which is not for clients to know.
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return {ErrorCode::storage_full, "the disk for files is full", {}, "free some space"};
  }
  if (error == ENOMEM)
    return {ErrorCode::out_of_memory,
            cat("no memory to ", action),
            {},
            "try again when less memory is in use"};
  return {ErrorCode::io,
          cat("can't ", action, ": ", std::strerror(error)),
          {},
          "check the folder and try again"};
}

Result<void> UnnamedFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) return {};
  if (folder_.empty()) return make_room(bytes);
  int result = 0;
  do {
    result = ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  // A file system that can't reserve fails where it is written.
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return failure(cat("take ", format_bytes(bytes)), errno);
}

// Huge pages, because clearing and mapping small ones takes longer than what is written there.
Result<void> UnnamedFile::make_room(std::uint64_t bytes) {
  if (bytes <= room_) return {};
  MOTLEY_TRY_VOID(fits_in_memory(bytes - size_));
  const std::uint64_t room = whole_pages(bytes);
  void* const memory = memory_ == nullptr
                           ? ::mmap(nullptr, room, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                           : ::mremap(memory_, room_, room, MREMAP_MAYMOVE);
  if (memory == MAP_FAILED) return failure(cat("hold ", format_bytes(bytes)), errno);
  memory_ = static_cast<std::byte*>(memory);
  room_ = room;
  ::madvise(memory_, room_, MADV_HUGEPAGE);
  return {};
}

Result<void> UnnamedFile::write(std::span<const std::byte> bytes) {
  if (folder_.empty()) {
    constexpr std::uint64_t step = std::uint64_t{64} << 20;
    const std::uint64_t size = size_ + bytes.size();
    if (size > room_) MOTLEY_TRY_VOID(make_room(std::max(size, room_ + (size_ > 0 ? step : 0))));
    std::ranges::copy(bytes, memory_ + size_);
    size_ = size;
    return {};
  }
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failure("write", errno);
    size_ += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Result<std::string> UnnamedFile::beginning(std::size_t bytes) const {
  std::string text(std::min<std::uint64_t>(bytes, size_), '\0');
  if (folder_.empty()) {
    std::memcpy(text.data(), memory_, text.size());
    return text;
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got =
        ::pread(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failure("read", got < 0 ? errno : EIO);
    done += static_cast<std::size_t>(got);
  }
  return text;
}

Result<MappedFile> UnnamedFile::map(std::string_view name) && {
  if (size_ == 0) return MappedFile(name, nullptr, 0);
  if (folder_.empty()) {
    const std::uint64_t used = whole_pages(size_);
    if (used < room_) ::munmap(memory_ + used, room_ - used);
    ::mprotect(memory_, used, PROT_READ);
    room_ = 0;
    return MappedFile(name, std::exchange(memory_, nullptr), size_);
  }
  void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED) return failure("map", errno);
  return MappedFile(name, static_cast<const std::byte*>(data), size_);
}

}  // namespace motley
