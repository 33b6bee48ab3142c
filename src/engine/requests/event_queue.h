#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "engine/requests/events.h"

namespace motley::engine {

// Carries the events of several requests from the engine's thread to the one that answers.
class EventQueue : public std::enable_shared_from_this<EventQueue> {
 public:
  struct Entry {
    std::size_t request = 0;  // its number in this queue
    Event event;
  };

  // Far more than a reader leaves untaken.
  static constexpr std::size_t default_max_bytes = std::size_t{256} << 20;

  // Called on the engine's thread when there is something to take for the first time since take().
  // False: it could not wake the reader, so it is called again for the next event.
  using Wake = std::function<bool()>;

  explicit EventQueue(Wake wake, std::size_t max_bytes = default_max_bytes)
      : wake_(std::move(wake)), max_bytes_(max_bytes) {}

  // For the request of this number.
  std::shared_ptr<EventSink> sink_for(std::size_t request);

  // How many bytes of events may wait; beyond that all are dropped.
  void limit(std::size_t max_bytes);

  // All events that wait. `busy`: more came than may wait; out of memory: an event found none.
  // These errors stay.
  Result<std::vector<Entry>> take();
  // Whether it has dropped its events because too many waited.
  bool overflowed() const;

 private:
  enum class State : std::uint8_t { open, overflowed, lost };
  class Sink;

  void post(Entry entry);
  void lose();
  void wake_reader();

  const Wake wake_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::size_t bytes_ = 0;
  std::size_t max_bytes_;
  State state_ = State::open;
  bool woken_ = false;  // since take()
};

}  // namespace motley::engine
