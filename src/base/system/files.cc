#include "base/system/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/system/memory.h"
#include "base/system/parallel.h"
#include "base/system/unnamed_file.h"
#include "base/units.h"

namespace motley {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// An error for a symbolic link without a target; null otherwise.
std::optional<Error> dangling_link(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  if (error) return std::nullopt;
  return Error(ErrorCode::bad_file, cat("a link to ", quote(target.native()), ", which is missing"),
               printable(path.native()), "copy what it points to as well (cp -L follows links)");
}

// The error for an errno of a path, with advice.
Error system_error(std::string_view action, const std::filesystem::path& path, int error) {
  const std::string where = printable(path.string());
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      if (auto dangling = dangling_link(path)) return *std::move(dangling);
      return no_such_path(path);
    case EACCES:
    case EPERM:
      return {ErrorCode::io, cat("not allowed to ", action), where,
              "check who owns it and its permissions"};
    case ELOOP:
      return {ErrorCode::bad_file, "symbolic links go round in a circle", where,
              "remove the link that points back"};
    case ENAMETOOLONG:
      return {ErrorCode::invalid_argument, "the path is too long", where, "use a shorter one"};
    case ENOSPC:
    case EDQUOT:
      return {ErrorCode::out_of_memory, "the disk is full", where, "free some space"};
    case ENOMEM:
      return {ErrorCode::out_of_memory, cat("no memory to ", action, " it"), where,
              "try again when less memory is in use"};
    case EISDIR:
      return {ErrorCode::invalid_argument, "this is a folder", where, "name a file"};
    case EROFS:
      return {ErrorCode::io, "the file system is read-only", where, "choose another folder"};
    case EMFILE:
    case ENFILE:
      return {ErrorCode::io, "too many open files", where, "raise the limit (ulimit -n)"};
    default:
      return {ErrorCode::io, cat("can't ", action, ": ", std::strerror(error)), where,
              "check the disk and try again"};
  }
}

Error not_regular(const std::filesystem::path& path) {
  return {ErrorCode::invalid_argument, "this is not a regular file", printable(path.string()),
          "name a file on a disk"};
}

Result<struct stat> regular_file(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return system_error("read", path, errno);
  if (S_ISDIR(status.st_mode))
    return Error(ErrorCode::invalid_argument, "this is a folder", printable(path.string()),
                 "name a file");
  if (!S_ISREG(status.st_mode)) return not_regular(path);
  return status;
}

// System calls would end the path at a zero byte, and so use another file than was checked.
Result<void> without_zero_byte(const std::filesystem::path& path) {
  if (path.native().find('\0') == std::string::npos) return {};
  return Error(ErrorCode::invalid_argument, "the path holds a zero byte", printable(path.native()),
               "check the path");
}

// Non-blocking, so that opening a named pipe does not wait for a writer.
constexpr int reading = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

std::string link_of(const Descriptor& file) { return cat("/proc/self/fd/", file.get()); }

// Opens what lies in a folder once links are followed. It is found first, and opened for reading
// only when its own path is known, which no link can change then.
Result<Descriptor> open_beneath(const std::filesystem::path& path,
                                const std::filesystem::path& beneath) {
  const Descriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (found.get() < 0) return system_error("read", path, errno);
  std::error_code failure;
  const std::filesystem::path real = std::filesystem::read_symlink(link_of(found), failure);
  const auto [rest, end] = std::ranges::mismatch(real, beneath);
  if (failure || end != beneath.end())
    return Error(ErrorCode::bad_file, "lies outside the folder that files may be read from",
                 printable(path.native()), "copy it inside");
  Descriptor file(::open(link_of(found).c_str(), reading));
  if (file.get() < 0) return system_error("read", path, errno);
  return file;
}

Result<Descriptor> open_for_reading(const std::filesystem::path& path,
                                    const std::filesystem::path& beneath) {
  if (!beneath.empty()) return open_beneath(path, beneath);
  Descriptor file(::open(path.c_str(), reading));
  if (file.get() < 0) return system_error("read", path, errno);
  return file;
}

Error too_large(std::string_view size, std::size_t max_bytes, const std::filesystem::path& path) {
  return {
      ErrorCode::bad_file,
      cat("the file has ", size, " bytes, more than the ", max_bytes, " that such a file may have"),
      printable(path.string()), "check that it is the right file"};
}

// Bytes from `offset` on into `data`; fewer where the file ends before.
Result<std::size_t> read_some(int descriptor, const std::filesystem::path& path,
                              std::span<char> data, std::size_t offset) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t got = ::pread(descriptor, data.data() + done, data.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

// The kernel would grant more memory than there is, and kill the process when it is used.
Result<void> room_for_copy(std::size_t size, const std::filesystem::path& path) {
  MOTLEY_TRY(const MachineMemory memory, machine_memory());
  if (size <= memory.available) return {};
  return Error(ErrorCode::out_of_memory,
               cat("a file of ", format_bytes(size), " does not fit into the ",
                   format_bytes(memory.available), " that ", memory.bound, " leaves"),
               printable(path.string()), "check that it is the right file, or free some memory");
}

Error shortened_file(std::size_t got, std::size_t size, const std::filesystem::path& path) {
  return {ErrorCode::bad_file,
          cat("the file ended after ", got, " of its ", size, " bytes while it was read"),
          printable(path.string()),
          "someone writes to it; write under another name and rename, then try again"};
}

// Everything up to the end of a file or a stream.
Result<std::string> read_to_end(int descriptor, const std::filesystem::path& path,
                                std::size_t max_bytes) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  std::string text;
  while (true) {
    const std::size_t done = text.size();
    text.resize(std::max(done + piece, done + done / 2));
    const ssize_t got = ::read(descriptor, text.data() + done, text.size() - done);
    const int error = errno;
    text.resize(done + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error == EINTR) continue;
    if (got < 0) return system_error("read", path, error);
    if (got == 0) return text;
    if (text.size() > max_bytes) return too_large(cat("over ", done), max_bytes, path);
  }
}

}  // namespace

Error no_such_path(const std::filesystem::path& path) {
  return {ErrorCode::not_found, "no such file or folder", printable(path.native()),
          "check the path"};
}

Error inside_folder(Error error) {
  const bool misplaced = error.code() == ErrorCode::invalid_argument;
  if (!misplaced && error.code() != ErrorCode::not_found) return error;
  return {misplaced ? ErrorCode::bad_file : error.code(), error.what(), error.where(),
          "the folder is damaged; copy or download it again"};
}

Result<OpenFile> OpenFile::open(const std::filesystem::path& path, const FileRules& rules) {
  MOTLEY_TRY_VOID(without_zero_byte(path));
  MOTLEY_TRY(Descriptor file, open_for_reading(path, rules.beneath));
  MOTLEY_TRY(const struct stat status, regular_file(file.get(), path));
  return OpenFile(path, rules, file.release(), status);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      access_(other.access_),
      copies_in_(std::move(other.copies_in_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      status_(other.status_) {}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> OpenFile::read_at(std::size_t offset, std::size_t bytes) const {
  std::string text(std::min(bytes, size() - std::min(offset, size())), '\0');
  MOTLEY_TRY(const std::size_t got,
             read_some(descriptor_, path_, {text.data(), text.size()}, offset));
  text.resize(got);
  return text;
}

Result<MappedFile> OpenFile::load() const {
  if (size() == 0) return MappedFile(path_, nullptr, 0);
  const bool mapped = access_ == FileAccess::mapped;
  if (!mapped && !copies_in_.empty()) return copy_to_disk();
  if (!mapped) MOTLEY_TRY_VOID(room_for_copy(size(), path_));
  void* const data =
      mapped ? ::mmap(nullptr, size(), PROT_READ, MAP_SHARED, descriptor_, 0)
             : ::mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return system_error(mapped ? "map" : "make room for", path_, errno);
  MappedFile opened(path_, static_cast<const std::byte*>(data), size());
  if (mapped) {
    opened.range_ = MappedRange(path_, data, size(), status_);
    return opened;
  }
  ::madvise(data, size(), MADV_HUGEPAGE);
  MOTLEY_TRY_VOID(read_whole({static_cast<char*>(data), size()}));
  return opened;
}

// By several threads: to clear fresh pages takes one far longer than to copy into them.
Result<void> OpenFile::read_whole(std::span<char> data) const {
  constexpr std::size_t piece = std::size_t{16} << 20;
  std::vector<Result<std::size_t>> got((data.size() + piece - 1) / piece, std::size_t{0});
  for_each_index(got.size(), data.size(), [&](std::size_t i) {
    const std::span<char> part = data.subspan(i * piece);
    got[i] = read_some(descriptor_, path_, part.first(std::min(piece, part.size())), i * piece);
  });
  std::size_t whole = 0;
  for (const Result<std::size_t>& each : got) {
    if (!each.ok()) return each.error();
    whole += *each;
    // What follows a piece that the file did not fill lies after its end.
    if (*each < piece) break;
  }
  if (whole < data.size()) return shortened_file(whole, data.size(), path_);
  return {};
}

Result<MappedFile> OpenFile::copy_to_disk() const {
  MOTLEY_TRY(UnnamedFile copy, UnnamedFile::create(copies_in_));
  MOTLEY_TRY_VOID(copy.reserve(size()));
  std::vector<char> piece(std::min(size(), std::size_t{1} << 20));
  while (copy.size() < size()) {
    const std::size_t wanted =
        std::min(piece.size(), size() - static_cast<std::size_t>(copy.size()));
    MOTLEY_TRY(const std::size_t got,
               read_some(descriptor_, path_, {piece.data(), wanted}, copy.size()));
    if (got < wanted) return shortened_file(copy.size() + got, size(), path_);
    MOTLEY_TRY_VOID(copy.write(std::string_view(piece.data(), got)));
  }
  return std::move(copy).map(path_.native());
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, const FileRules& rules) {
  MOTLEY_TRY(const OpenFile file, OpenFile::open(path, rules));
  return file.load();
}

Result<MappedFile> MappedFile::zeros(std::string_view name, std::size_t bytes) {
  if (bytes == 0) return MappedFile(name, nullptr, 0);
  constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const data = ::mmap(nullptr, bytes, PROT_READ, kind, -1, 0);
  if (data == MAP_FAILED) return system_error("make room for", name, errno);
  return MappedFile(name, static_cast<const std::byte*>(data), bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      range_(std::move(other.range_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(range_, other.range_);
  return *this;
}

// The kernel visits every page that was read, at 20 GB per second and thread: several threads unmap
// a checkpoint seconds faster.
MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  // Other mappings may get these addresses at once.
  range_ = {};
  auto* const data = const_cast<std::byte*>(data_);
  constexpr std::size_t piece = std::size_t{256} << 20;
  const std::size_t pieces = (size_ + piece - 1) / piece;
  if (pieces > 1) {
    for_each_index(pieces, size_, [&](std::size_t i) {
      ::madvise(data + i * piece, std::min(piece, size_ - i * piece), MADV_DONTNEED);
    });
  }
  ::munmap(data, size_);
}

void MappedFile::prefetch(std::size_t offset, std::size_t size) const {
  MOTLEY_CHECK(offset <= size_ && size <= size_ - offset, "prefetch inside the file");
  if (size == 0) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(data_) + begin, offset + size - begin, MADV_WILLNEED);
}

Result<std::string> read_text(const std::filesystem::path& path, std::size_t max_bytes,
                              const std::filesystem::path& beneath) {
  FileRules rules;
  rules.beneath = beneath;
  MOTLEY_TRY(const OpenFile file, OpenFile::open(path, rules));
  if (file.size() > max_bytes) return too_large(cat(file.size()), max_bytes, path);
  return file.read_at(0, file.size());
}

Result<std::string> read_input(const std::filesystem::path& path, std::size_t max_bytes) {
  if (path == "-") return read_to_end(STDIN_FILENO, "standard input", max_bytes);
  MOTLEY_TRY_VOID(without_zero_byte(path));
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("read", path, errno);
  return read_to_end(file.get(), path, max_bytes);
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  MOTLEY_TRY_VOID(without_zero_byte(path));
  MOTLEY_TRY(const PathKind standing, path_kind(path));
  if (standing == PathKind::folder) return system_error("write", path, EISDIR);
  if (standing == PathKind::other) return not_regular(path);
  static std::atomic<std::uint64_t> serial{0};
  while (true) {
    const std::filesystem::path temporary =
        cat(path.native(), ".", ::getpid(), "-", serial.fetch_add(1), ".part");
    // Not mkostemp(): its file is readable by the owner only, and the umask cannot be read without
    // changing it for every thread.
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return AtomicFile(path, temporary, descriptor);
    // Left by a killed process with the same id.
    if (errno != EEXIST) return system_error("write", path, errno);
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  MOTLEY_CHECK(descriptor_ >= 0, "no write after commit");
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Result<void> AtomicFile::commit() {
  MOTLEY_CHECK(descriptor_ >= 0, "commit once");
  if (::fsync(descriptor_) != 0) return system_error("write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_error("rename", path_, errno);
  ::close(std::exchange(descriptor_, -1));
  return {};
}

Result<void> remove_file(const std::filesystem::path& path) {
  MOTLEY_TRY_VOID(without_zero_byte(path));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("remove", path, errno);
  return {};
}

Result<std::vector<std::string>> list_folder(const std::filesystem::path& folder,
                                             const std::filesystem::path& beneath) {
  MOTLEY_TRY_VOID(without_zero_byte(folder));
  MOTLEY_TRY(Descriptor opened, open_for_reading(folder, beneath));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(opened.get()), ::closedir);
  if (!stream && errno == ENOTDIR)
    return Error(ErrorCode::invalid_argument, "this is not a folder", printable(folder.string()),
                 "name a folder");
  if (!stream) return system_error("read", folder, errno);
  opened.release();  // the stream closes it
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return system_error("read", folder, errno);
  std::sort(names.begin(), names.end());
  return names;
}

Result<PathKind> path_kind(const std::filesystem::path& path) {
  MOTLEY_TRY_VOID(without_zero_byte(path));
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) return system_error("read", path, error);
    if (auto dangling = dangling_link(path)) return *std::move(dangling);
    return PathKind::missing;
  }
  if (S_ISREG(status.st_mode)) return PathKind::file;
  if (S_ISDIR(status.st_mode)) return PathKind::folder;
  return PathKind::other;
}

}  // namespace motley
