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

  // Reserves memory for this many more: every end that is still to come has its place.
  void provide(std::size_t ends) {
    const std::size_t needed = letters_.size() + events_ + ends;
    if (letters_.capacity() < needed) letters_.reserve(std::max(needed, 2 * letters_.capacity()));
  }

  void add(std::shared_ptr<EventSink> sink, Event event) {
    letters_.push_back({.sink = std::move(sink), .event = std::move(event)});
  }
  bool empty() const { return letters_.empty(); }

  // Delivers in order, and releases the sinks.
  void deliver() {
    while (delivered_ < letters_.size()) {
      Letter& letter = letters_[delivered_++];
      letter.sink->take(std::move(letter.event));
    }
    letters_.clear();
    delivered_ = 0;
  }

 private:
  struct Letter {
    std::shared_ptr<EventSink> sink;
    Event event;
  };

  std::size_t events_;
  std::size_t delivered_ = 0;
  std::vector<Letter> letters_;
};

}  // namespace motley::engine
