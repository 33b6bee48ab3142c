#include "base/system/mapped_files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"

namespace motley {

struct MappedRange::Entry {
  std::filesystem::path path;
  struct stat status{};
  std::string last_words;  // printed if a page is lost
  std::size_t slot = 0;    // index in the table below
  bool reported = false;
};

namespace {

// Readable by a signal handler during writes: slots are taken and released, and never move.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};  // 0: free; written last
  std::atomic<std::uintptr_t> end{0};
  std::atomic<const char*> last_words{nullptr};
};

// For more mappings, far more than any checkpoint has, SIGBUS has its usual effect.
constexpr std::size_t max_slots = 4096;
constexpr std::size_t no_slot = max_slots;

struct Table {
  std::array<Slot, max_slots> slots;
  std::mutex lock;  // of what follows, and of writes to slots
  std::vector<std::weak_ptr<MappedRange::Entry>> entries;
};

Table& table() {
  static constinit Table one;
  return one;
}

const char* last_words_at(std::uintptr_t address) {
  for (const Slot& slot : table().slots) {
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < slot.end.load(std::memory_order_relaxed))
      return slot.last_words.load(std::memory_order_relaxed);
  }
  return nullptr;
}

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const char* words = last_words_at(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (words == nullptr) {
    // Not from a mapped file: the access is repeated, and ends the process as usual.
    std::signal(signal, SIG_DFL);
    return;
  }
  std::size_t length = 0;
  while (words[length] != '\0') ++length;
  while (length > 0) {
    // There may be no reader: text that cannot be written soon is dropped.
    pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 1000) <= 0) break;
    const ssize_t put = ::write(STDERR_FILENO, words, std::min(length, std::size_t{PIPE_BUF}));
    if (put <= 0) break;
    words += put;
    length -= static_cast<std::size_t>(put);
  }
  ::_exit(1);
}

std::size_t take_slot(const void* data, std::size_t size, const char* last_words) {
  auto& slots = table().slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots[i];
    if (slot.begin.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    slot.last_words.store(last_words, std::memory_order_relaxed);
    slot.end.store(begin + size, std::memory_order_relaxed);
    slot.begin.store(begin, std::memory_order_release);
    return i;
  }
  return no_slot;
}

bool is_same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

// How the file at the path differs from the mapped one; nothing if it does not.
std::optional<std::string> change_of(const MappedRange::Entry& entry) {
  struct stat now{};
  if (::stat(entry.path.c_str(), &now) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ESTALE) return "it is gone";
    return std::nullopt;  // a file system that does not answer is no evidence of a change
  }
  const struct stat& then = entry.status;
  if (now.st_dev != then.st_dev || now.st_ino != then.st_ino) return "another file is in its place";
  if (now.st_size != then.st_size)
    return cat("it had ", then.st_size, " bytes and has ", now.st_size);
  if (!is_same_time(now.st_mtim, then.st_mtim)) return "it was written";
  return std::nullopt;
}

}  // namespace

void explain_lost_pages() {
  table();
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigfillset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedRange::MappedRange(const std::filesystem::path& path, const void* data, std::size_t size,
                         const struct stat& status)
    : entry_(std::make_shared<Entry>()) {
  entry_->path = path;
  entry_->status = status;
  const Error lost(ErrorCode::io, "a page of the file can't be read any more",
                   printable(path.native()),
                   "it was cut short, or its disk failed, while it was in use: put it back and "
                   "start again (with --copy-weights, what happens to it later does not matter)");
  entry_->last_words = cat("motley: ", lost.message(), "\n");
  Table& all = table();
  const std::lock_guard held(all.lock);
  entry_->slot = take_slot(data, size, entry_->last_words.c_str());
  std::erase_if(all.entries, [](const auto& each) { return each.expired(); });
  all.entries.push_back(entry_);
}

MappedRange::MappedRange(MappedRange&& other) noexcept : entry_(std::move(other.entry_)) {}

MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

MappedRange::~MappedRange() {
  if (entry_ == nullptr || entry_->slot == no_slot) return;
  const std::lock_guard held(table().lock);
  table().slots[entry_->slot].begin.store(0, std::memory_order_release);
}

class MappedFilesWatch::Impl {
 public:
  Impl(Duration interval, const Clock* clock)
      : interval_(interval), clock_(clock_or_steady(clock)), thread_([this] { watch(); }) {}
  ~Impl() {
    {
      const std::lock_guard held(lock_);
      stopping_ = true;
    }
    woken_.notify_all();
    thread_.join();
  }

  Result<void> health() const {
    const std::lock_guard held(lock_);
    if (change_) return *change_;
    return {};
  }

  void look() {
    std::unique_lock held(lock_);
    const std::uint64_t wanted = begun_ + 1;
    wanted_ = std::max(wanted_, wanted);
    woken_.notify_all();
    woken_.wait(held, [&] { return ended_ >= wanted; });
  }

 private:
  void watch() {
    std::unique_lock held(lock_);
    while (!stopping_) {
      ++begun_;
      held.unlock();
      std::optional<Error> change;
      // If memory runs out, the next check finds the rest.
      std::ignore = within_memory([&] { look_for_changes(change); });
      held.lock();
      if (!change_) change_ = std::move(change);
      ended_ = begun_;
      woken_.notify_all();
      clock_.wait_until(woken_, held, clock_.now() + interval_,
                        [this] { return stopping_ || wanted_ > begun_; });
    }
  }

  // Logs each changed file once; the first of them is returned in `first`.
  static void look_for_changes(std::optional<Error>& first) {
    std::vector<std::shared_ptr<MappedRange::Entry>> entries;
    {
      const std::lock_guard held(table().lock);
      for (const auto& each : table().entries)
        if (auto entry = each.lock()) entries.push_back(std::move(entry));
    }
    // Without the lock, because a file system may hang.
    for (const auto& entry : entries) {
      if (entry->reported) continue;
      const std::optional<std::string> what = change_of(*entry);
      if (!what) continue;
      if (!first)
        first.emplace(ErrorCode::unavailable,
                      cat("the file ", quote(entry->path.filename().native()),
                          " has changed since it was loaded"),
                      "", "put it back and restart the server");
      entry->reported = true;
      log::error("files.changed_while_mapped",
                 {{"path", entry->path.native()},
                  {"what", *what},
                  {"advice", "restart; with --copy-weights files may change"}});
    }
  }

  const Duration interval_;
  const Clock& clock_;
  mutable std::mutex lock_;
  std::condition_variable woken_;
  std::optional<Error> change_;
  std::uint64_t begun_ = 0;  // looks
  std::uint64_t ended_ = 0;
  std::uint64_t wanted_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

MappedFilesWatch::MappedFilesWatch(Duration interval, const Clock* clock)
    : impl_(std::make_unique<Impl>(interval, clock)) {}
MappedFilesWatch::~MappedFilesWatch() = default;
Result<void> MappedFilesWatch::health() const { return impl_->health(); }
void MappedFilesWatch::look() { impl_->look(); }

}  // namespace motley
