#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "engine/events.h"

namespace motley::engine {

// What came of a step and nobody was told yet. Sinks are called once the next step has been queued,
// so that a GPU does not wait for them.
class Outbox {
 public:
  using Event = std::variant<TokenEvent, ChoiceEvent, Usage>;

  // So many events at once take nothing from the heap.
  explicit Outbox(std::size_t events) { letters_.reserve(events); }

  void add(std::shared_ptr<RequestSink> sink, const Event& event) {
    letters_.push_back({.sink = std::move(sink), .event = event});
  }
  bool empty() const { return letters_.empty(); }

  // In order; lets go of the sinks.
  void deliver() {
    for (const Letter& letter : letters_) std::visit(Call{letter.sink.get()}, letter.event);
    letters_.clear();
  }

 private:
  struct Letter {
    std::shared_ptr<RequestSink> sink;
    Event event;
  };
  struct Call {
    RequestSink* sink;
    void operator()(const TokenEvent& event) const { sink->token(event); }
    void operator()(const ChoiceEvent& event) const { sink->choice_finished(event); }
    void operator()(const Usage& usage) const { sink->finished(usage); }
  };

  std::vector<Letter> letters_;
};

}  // namespace motley::engine
