#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tensor/device/device.h"
#include "tensor/device/reservation.h"

// For tests of what must hold on a GPU for any timing: a device in host memory whose streams run
// late, in small pieces, and in an order between streams that depends on a seed.
namespace motley::tensor::test {

class ScriptedDevice;

struct ScriptedEventState {
  std::uint64_t recorded = 0;  // times that a record was queued
  std::uint64_t reached = 0;   // times that a stream passed one
};

// One thing in a stream's queue.
struct ScriptedWork {
  enum class Kind : std::uint8_t { copy, fill, call, record, wait };
  Kind kind = Kind::call;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  // null: `own`, read when it was queued
  std::vector<std::byte> own;
  std::size_t bytes = 0;
  std::size_t done = 0;
  std::byte value{};
  std::function<void()> call;
  std::shared_ptr<ScriptedEventState> event;
  std::uint64_t number = 0;  // of the record that is queued or waited for
};

class ScriptedEvent final : public Event {
 public:
  explicit ScriptedEvent(ScriptedDevice* device) : device_(device) {}
  Result<bool> reached() const override;
  Result<void> synchronize() const override;

 private:
  friend class ScriptedStream;
  ScriptedDevice* device_;
  std::shared_ptr<ScriptedEventState> state_ = std::make_shared<ScriptedEventState>();
};

class ScriptedStream final : public Stream {
 public:
  explicit ScriptedStream(ScriptedDevice* device);
  ScriptedStream(const ScriptedStream&) = delete;
  ScriptedStream& operator=(const ScriptedStream&) = delete;
  ~ScriptedStream() override;

  StreamHandle handle() const override { return {}; }
  Result<void> copy(void* to, const void* from, std::size_t bytes) override;
  Result<void> fill(void* to, std::byte value, std::size_t bytes) override;
  Result<void> record(Event& event) override;
  Result<std::unique_ptr<Event>> record() override;
  Result<void> wait(const Event& event) override;
  Result<void> synchronize() override;
  Result<std::unique_ptr<Graph>> capture(FunctionRef<Result<void>()> work) override;

  // A kernel, as it were. It must not call the device.
  void call(std::function<void()> body);

 private:
  friend class ScriptedDevice;
  friend class ScriptedGraph;
  void queue_locked(ScriptedWork work);

  ScriptedDevice* device_;
  std::deque<ScriptedWork> queue_;
  std::vector<ScriptedWork>* captured_ = nullptr;
};

class ScriptedGraph final : public Graph {
 public:
  ScriptedGraph(ScriptedDevice* device, std::vector<ScriptedWork> work)
      : device_(device), work_(std::move(work)) {}
  Result<void> launch(Stream& stream) const override;
  std::int64_t work_count() const override { return static_cast<std::int64_t>(work_.size()); }

 private:
  ScriptedDevice* device_;
  std::vector<ScriptedWork> work_;
};

class ScriptedDevice final : public Device {
 public:
  explicit ScriptedDevice(std::uint32_t seed) : random_(seed), pinned_(this) {}

  DeviceId id() const override { return {.kind = DeviceKind::cuda}; }
  std::string description() const override { return "a script"; }
  Result<MemoryInfo> memory() const override { return MemoryInfo{}; }
  Result<std::unique_ptr<Stream>> create_stream() override {
    return std::unique_ptr<Stream>(new_stream());
  }
  Result<std::unique_ptr<Event>> create_event() override {
    return std::unique_ptr<Event>(std::make_unique<ScriptedEvent>(this));
  }
  Allocator& pinned_memory() override { return pinned_; }

  std::unique_ptr<ScriptedStream> new_stream() { return std::make_unique<ScriptedStream>(this); }

  // Does a piece of what some stream has to do next; whether there was any.
  bool advance() {
    const std::lock_guard held(lock_);
    return advance_locked();
  }
  // Reservations of pinned memory are committed in pieces of so many bytes, whole pages of 4 KiB.
  void set_pinned_pieces(std::size_t bytes) { pinned_piece_ = bytes; }
  // So many pieces can be committed from now on, then there is no memory for any.
  void fail_after_pieces(int pieces) { pieces_left_ = pieces; }
  // Called before each copy is queued, by the thread that queues it. Set while none does.
  void before_copies(std::function<void()> call) { before_copy_ = std::move(call); }
  // Copies that are queued from now on succeed this often, then every one fails.
  void fail_after(int copies) {
    const std::lock_guard held(lock_);
    copies_left_ = copies;
  }

 private:
  friend class ScriptedEvent;
  friend class ScriptedStream;
  friend class ScriptedGraph;

  class PinnedMemory final : public Allocator {
   public:
    explicit PinnedMemory(ScriptedDevice* device) : device_(device) {}
    DeviceId id() const override { return {}; }
    bool pinned() const override { return true; }
    Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override {
      MOTLEY_TRY(AddressRange range, AddressRange::reserve(bytes));
      return std::unique_ptr<Reservation>(
          std::make_unique<PinnedReservation>(std::move(range), device_));
    }

   private:
    Result<void*> take(std::size_t bytes) override { return device_->take(bytes); }
    void give_back(void* data, std::size_t bytes) noexcept override {
      device_->give_back(data, bytes);
    }
    ScriptedDevice* device_;
  };

  // Each piece is memory of its own to the device, and addresses behind the last can't be touched.
  class PinnedReservation final : public Reservation {
   public:
    PinnedReservation(AddressRange range, ScriptedDevice* device)
        : Reservation({.data = range.data(),
                       .size = range.size(),
                       .piece_bytes = device->pinned_piece_,
                       .pinned = true}),
          range_(std::move(range)),
          device_(device) {}
    ~PinnedReservation() override {
      const std::lock_guard held(device_->lock_);
      for (std::size_t begin = 0; begin < committed(); begin += piece_bytes())
        device_->known_.erase(range_.data() + begin);
    }

   private:
    Result<void> commit_piece(std::size_t begin, std::size_t bytes) override {
      if (device_->pieces_left_ == 0)
        return Error(ErrorCode::out_of_memory, "the script says so", "a script");
      if (device_->pieces_left_ < std::numeric_limits<int>::max()) --device_->pieces_left_;
      MOTLEY_TRY_VOID(range_.open(begin, bytes));
      const std::lock_guard held(device_->lock_);
      device_->known_[range_.data() + begin] = bytes;
      return {};
    }

    AddressRange range_;
    ScriptedDevice* device_;
  };

  Result<void*> take(std::size_t bytes) override {
    const std::lock_guard held(lock_);
    void* const data =
        std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    MOTLEY_CHECK(data != nullptr, "memory for a test");
    known_[static_cast<std::byte*>(data)] = bytes;
    return data;
  }
  void give_back(void* data, std::size_t) noexcept override {
    const std::lock_guard held(lock_);
    known_.erase(static_cast<std::byte*>(data));
    std::free(data);
  }

  // Device or pinned memory: read when the stream comes to it, not when the call is made.
  bool known_locked(const std::byte* data, std::size_t count) const {
    const auto after = known_.upper_bound(const_cast<std::byte*>(data));
    if (after == known_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    if (data >= begin + bytes) return false;
    MOTLEY_CHECK(count <= static_cast<std::size_t>(begin + bytes - data),
                 "a copy that stays in one piece of memory");
    return true;
  }

  bool advance_locked() {
    const std::size_t count = streams_.size();
    if (count == 0) return false;
    const std::size_t first = random_() % count;
    for (std::size_t i = 0; i < count; ++i) {
      ScriptedStream& stream = *streams_[(first + i) % count];
      if (stream.queue_.empty()) continue;
      ScriptedWork& work = stream.queue_.front();
      if (work.kind == ScriptedWork::Kind::wait && work.event->reached < work.number) continue;
      if (run_piece(work)) stream.queue_.pop_front();
      return true;
    }
    return false;
  }

  // Whether the work is done.
  bool run_piece(ScriptedWork& work) {
    using Kind = ScriptedWork::Kind;
    if (work.kind == Kind::call) work.call();
    if (work.kind == Kind::record) work.event->reached = work.number;
    if (work.kind != Kind::copy && work.kind != Kind::fill) return true;
    const std::size_t count = std::min<std::size_t>(work.bytes - work.done, 1 + random_() % 700);
    if (work.kind == Kind::fill) {
      std::memset(work.to + work.done, std::to_integer<int>(work.value), count);
    } else {
      const std::byte* const from = work.from == nullptr ? work.own.data() : work.from;
      std::memcpy(work.to + work.done, from + work.done, count);
    }
    work.done += count;
    return work.done == work.bytes;
  }

  template <class Reached>
  void run_until(Reached reached) {
    for (;;) {
      const std::lock_guard held(lock_);
      if (reached()) return;
      MOTLEY_CHECK(advance_locked(), "an event that is waited for can come");
    }
  }

  std::mutex lock_;
  std::mt19937 random_;
  PinnedMemory pinned_;
  std::map<std::byte*, std::size_t> known_;
  std::vector<ScriptedStream*> streams_;
  std::function<void()> before_copy_;
  int copies_left_ = std::numeric_limits<int>::max();
  std::size_t pinned_piece_ = std::size_t{64} << 10;
  std::atomic<int> pieces_left_ = std::numeric_limits<int>::max();
};

inline Result<bool> ScriptedEvent::reached() const {
  const std::lock_guard held(device_->lock_);
  return state_->reached >= state_->recorded;
}

inline Result<void> ScriptedEvent::synchronize() const {
  std::uint64_t number = 0;
  {
    const std::lock_guard held(device_->lock_);
    number = state_->recorded;
  }
  device_->run_until([&] { return state_->reached >= number; });
  return {};
}

inline ScriptedStream::ScriptedStream(ScriptedDevice* device) : device_(device) {
  const std::lock_guard held(device_->lock_);
  device_->streams_.push_back(this);
}

inline ScriptedStream::~ScriptedStream() {
  static_cast<void>(synchronize().ok());
  const std::lock_guard held(device_->lock_);
  std::erase(device_->streams_, this);
}

inline void ScriptedStream::queue_locked(ScriptedWork work) {
  if (captured_ == nullptr) {
    queue_.push_back(std::move(work));
  } else {
    MOTLEY_CHECK(work.event == nullptr, "a captured script without events");
    captured_->push_back(std::move(work));
  }
}

inline Result<void> ScriptedStream::copy(void* to, const void* from, std::size_t bytes) {
  if (device_->before_copy_) device_->before_copy_();
  const std::lock_guard held(device_->lock_);
  if (device_->copies_left_ == 0)
    return Error(ErrorCode::internal, "the script says so", "a script");
  if (device_->copies_left_ < std::numeric_limits<int>::max()) --device_->copies_left_;
  if (bytes == 0) return {};
  ScriptedWork work{.kind = ScriptedWork::Kind::copy,
                    .to = static_cast<std::byte*>(to),
                    .from = static_cast<const std::byte*>(from),
                    .bytes = bytes};
  if (!device_->known_locked(work.from, bytes)) {
    work.own.assign(work.from, work.from + bytes);
    work.from = nullptr;
  }
  queue_locked(std::move(work));
  return {};
}

inline Result<void> ScriptedStream::fill(void* to, std::byte value, std::size_t bytes) {
  const std::lock_guard held(device_->lock_);
  if (bytes == 0) return {};
  queue_locked({.kind = ScriptedWork::Kind::fill,
                .to = static_cast<std::byte*>(to),
                .bytes = bytes,
                .value = value});
  return {};
}

inline Result<void> ScriptedStream::record(Event& event) {
  auto& ours = dynamic_cast<ScriptedEvent&>(event);
  const std::lock_guard held(device_->lock_);
  queue_locked({.kind = ScriptedWork::Kind::record,
                .event = ours.state_,
                .number = ++ours.state_->recorded});
  return {};
}

inline Result<std::unique_ptr<Event>> ScriptedStream::record() {
  std::unique_ptr<Event> event = std::make_unique<ScriptedEvent>(device_);
  MOTLEY_TRY_VOID(record(*event));
  return event;
}

inline Result<void> ScriptedStream::wait(const Event& event) {
  const auto& theirs = dynamic_cast<const ScriptedEvent&>(event);
  const std::lock_guard held(device_->lock_);
  queue_locked({.kind = ScriptedWork::Kind::wait,
                .event = theirs.state_,
                .number = theirs.state_->recorded});
  return {};
}

inline Result<void> ScriptedStream::synchronize() {
  MOTLEY_TRY(const std::unique_ptr<Event> now, record());
  return now->synchronize();
}

inline Result<std::unique_ptr<Graph>> ScriptedStream::capture(FunctionRef<Result<void>()> work) {
  std::vector<ScriptedWork> captured;
  {
    const std::lock_guard held(device_->lock_);
    captured_ = &captured;
  }
  const Result<void> queued = work();
  {
    const std::lock_guard held(device_->lock_);
    captured_ = nullptr;
  }
  if (!queued.ok()) return queued.error();
  return std::unique_ptr<Graph>(std::make_unique<ScriptedGraph>(device_, std::move(captured)));
}

inline void ScriptedStream::call(std::function<void()> body) {
  const std::lock_guard held(device_->lock_);
  queue_locked({.kind = ScriptedWork::Kind::call, .call = std::move(body)});
}

inline Result<void> ScriptedGraph::launch(Stream& stream) const {
  auto& ours = dynamic_cast<ScriptedStream&>(stream);
  const std::lock_guard held(device_->lock_);
  for (const ScriptedWork& work : work_) ours.queue_locked(work);
  return {};
}

}  // namespace motley::tensor::test
