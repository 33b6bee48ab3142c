#include "base/system/line_writer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "base/check.h"
#include "base/system/out_of_memory.h"

namespace motley {
namespace {

using Monotonic = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A ready pipe takes this many bytes without blocking, however it was opened.
constexpr std::size_t piece_bytes = 4096;

// The longest time until a waiting thread notices that it must stop.
constexpr milliseconds look_up{50};

enum class Written : std::uint8_t { some, none_yet, never };

// Waits at most this long for the reader. `never`: there is no reader any more.
Written write_some(int descriptor, std::string_view& text, milliseconds wait) {
  pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
  const int polled = ::poll(&ready, 1, static_cast<int>(wait.count()));
  if (polled == 0 || (polled < 0 && errno == EINTR)) return Written::none_yet;
  if (polled < 0 || (ready.revents & POLLNVAL) != 0) return Written::never;
  const ssize_t count =
      ::write(descriptor, text.data(), std::min<std::size_t>(text.size(), piece_bytes));
  if (count < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Written::none_yet
                                                                     : Written::never;
  text.remove_prefix(static_cast<std::size_t>(count));
  return Written::some;
}

// Signals are handled by other threads, and a broken pipe is an ordinary error.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

bool write_within(int descriptor, std::string_view text, milliseconds patience) {
  const auto end = Monotonic::now() + patience;
  while (!text.empty()) {
    const auto left = std::chrono::ceil<milliseconds>(end - Monotonic::now());
    const Written written = write_some(descriptor, text, std::max(left, milliseconds(0)));
    if (written == Written::never) return false;
    if (written == Written::none_yet && Monotonic::now() >= end) return false;
  }
  return true;
}

class LineWriter::Ring {
 public:
  explicit Ring(Options options)
      : options_(std::move(options)),
        clock_(clock_or_steady(options_.clock)),
        bytes_(options_.bytes, '\0') {}

  bool push(std::string_view line) {
    const std::lock_guard held(lock_);
    // Lines after a loss wait until the loss has been reported.
    const bool fits = say_lost_locked(line.size()) && line.size() <= free_locked();
    if (fits) {
      append_locked(line);
      some_.notify_one();
    } else {
      ++lost_;
      ++unreported_;
    }
    return fits;
  }

  std::uint64_t lost() const {
    const std::lock_guard held(lock_);
    return lost_;
  }

  bool flush(milliseconds patience) {
    std::unique_lock held(lock_);
    const std::uint64_t all = pushed_;
    return clock_.wait_until(changed_, held, clock_.now() + patience,
                             [&] { return taken_ >= all; });
  }

  // The thread's function: runs until it is stopped.
  void run() {
    block_signals();
    std::array<char, piece_bytes> piece{};
    for (std::size_t size = next(piece); size > 0; size = next(piece)) {
      const bool whole = write_all({piece.data(), size});
      done_with({piece.data(), size}, whole);
    }
    const std::lock_guard held(lock_);
    ended_ = true;
    changed_.notify_all();
  }

  // Drops what has not been written. Returns whether the thread has ended, rather than being
  // blocked by the descriptor.
  bool stop(milliseconds patience) {
    stopping_ = true;
    std::unique_lock held(lock_);
    some_.notify_one();
    return clock_.wait_until(changed_, held, clock_.now() + patience, [this] { return ended_; });
  }

 private:
  std::size_t free_locked() const {
    return bytes_.size() - static_cast<std::size_t>(pushed_ - taken_);
  }

  void append_locked(std::string_view text) {
    const auto at = static_cast<std::size_t>(pushed_ % bytes_.size());
    const std::size_t first = std::min(text.size(), bytes_.size() - at);
    std::ranges::copy(text.substr(0, first), bytes_.begin() + static_cast<std::ptrdiff_t>(at));
    std::ranges::copy(text.substr(first), bytes_.begin());
    pushed_ += text.size();
  }

  // Whether all losses have been reported, so that `more` bytes may follow.
  bool say_lost_locked(std::size_t more) {
    if (unreported_ == 0) return true;
    // A ring that was full is not refilled at once, so that losses are reported in one line.
    if (free_locked() < bytes_.size() / 4 + more) return false;
    const auto line =
        within_memory([&] { return options_.lost_line ? options_.lost_line(unreported_) : ""; });
    if (!line.ok() || line->size() + more > free_locked()) return false;
    unreported_ = 0;
    append_locked(*line);
    return true;
  }

  // The next bytes, waiting for them; 0: there will be no more.
  std::size_t next(std::array<char, piece_bytes>& piece) {
    std::unique_lock held(lock_);
    say_lost_locked(0);
    some_.wait(held, [this] { return pushed_ > taken_ || stopping_; });
    if (stopping_) return 0;
    const std::size_t size = std::min(static_cast<std::size_t>(pushed_ - taken_), piece.size());
    const auto at = static_cast<std::size_t>(taken_ % bytes_.size());
    const std::string_view ring(bytes_);
    const std::string_view first = ring.substr(at, size);
    const std::string_view rest = ring.substr(0, size - first.size());
    std::ranges::copy(rest, std::ranges::copy(first, piece.begin()).out);
    return size;
  }

  bool write_all(std::string_view text) const {
    while (!text.empty()) {
      if (stopping_ || write_some(options_.descriptor, text, look_up) == Written::never)
        return false;
    }
    return true;
  }

  void done_with(std::string_view piece, bool whole) {
    const std::lock_guard held(lock_);
    taken_ += piece.size();
    // Lost lines are not reported here, because the log has no reader.
    if (!whole) lost_ += static_cast<std::uint64_t>(std::ranges::count(piece, '\n'));
    changed_.notify_all();
  }

  Options options_;
  const Clock& clock_;
  mutable std::mutex lock_;
  std::condition_variable some_;
  std::condition_variable changed_;
  std::string bytes_;
  std::uint64_t pushed_ = 0;  // total bytes; those not taken yet are in the ring
  std::uint64_t taken_ = 0;
  std::uint64_t lost_ = 0;  // lines
  std::uint64_t unreported_ =
      0;  // of these, those that the ring had no space for, not reported yet
  bool ended_ = false;
  std::atomic<bool> stopping_ = false;
};

LineWriter::LineWriter(Options options) : patience_(options.patience) {
  MOTLEY_CHECK(options.bytes > 0, "a ring has space");
  ring_ = std::make_shared<Ring>(std::move(options));
  thread_ = std::thread([ring = ring_] { ring->run(); });
}

LineWriter::~LineWriter() {
  ring_->flush(patience_);
  if (ring_->stop(10 * look_up)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

bool LineWriter::write(std::string_view line) { return ring_->push(line); }
std::uint64_t LineWriter::lost() const { return ring_->lost(); }
bool LineWriter::flush(milliseconds patience) { return ring_->flush(patience); }

}  // namespace motley
