#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/requests/events.h"

namespace motley::engine {

// Events of a step that have not been delivered. Sinks are called once the next step has been
// queued, so that a GPU does not wait for them.
class Outbox {
 public:
  // Reserves memory for this many events of a step.
  explicit Outbox(std::size_t events) : events_(events) { provide(0); }

  // Reserves memory for this many more: every end that is still to come has its place, and what
  // else a step says of a request.
  void provide(std::size_t ends) {
    const std::size_t needed = pending_.size() + events_ + ends;
    if (pending_.capacity() < needed) pending_.reserve(std::max(needed, 2 * pending_.capacity()));
  }

  void add(std::shared_ptr<EventSink> sink, Event event) {
    pending_.push_back({.sink = std::move(sink), .event = std::move(event)});
  }
  bool empty() const { return pending_.empty(); }

  // Delivers in order, and releases the sinks.
  void deliver() {
    while (delivered_ < pending_.size()) {
      PendingEvent& next = pending_[delivered_++];
      next.sink->take(std::move(next.event));
    }
    pending_.clear();
    delivered_ = 0;
  }

 private:
  struct PendingEvent {
    std::shared_ptr<EventSink> sink;
    Event event;
  };

  std::size_t events_;
  std::size_t delivered_ = 0;
  std::vector<PendingEvent> pending_;
};

}  // namespace motley::engine
