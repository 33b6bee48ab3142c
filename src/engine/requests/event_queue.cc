#include "engine/requests/event_queue.h"

#include <utility>

#include "base/system/out_of_memory.h"

namespace motley::engine {
namespace {

std::size_t bytes_of(const EventQueue::Entry& entry) {
  std::size_t bytes = sizeof entry;
  if (const auto* const token = std::get_if<TokenEvent>(&entry.event))
    bytes +=
        token->top.size() * sizeof(TopLogprob) + token->top_ranks.size() * sizeof(std::int32_t);
  if (const auto* const scores = std::get_if<PromptEvent>(&entry.event))
    bytes += scores->logprobs.size() * sizeof(float) + scores->ranks.size() * sizeof(std::int32_t) +
             scores->top.size() * sizeof(TopLogprob);
  if (const auto* const routed = std::get_if<RoutedExpertsEvent>(&entry.event))
    bytes += routed->ids.size();
  return bytes;
}

}  // namespace

class EventQueue::Sink final : public EventSink {
 public:
  Sink(std::shared_ptr<EventQueue> queue, std::size_t request)
      : queue_(std::move(queue)), request_(request) {}

  // The engine does not learn that an event found no memory; the reader does.
  void take(Event event) override {
    if (!within_memory([&] { queue_->post({request_, std::move(event)}); }).ok()) queue_->lose();
  }

 private:
  std::shared_ptr<EventQueue> queue_;
  std::size_t request_;
};

std::shared_ptr<EventSink> EventQueue::sink_for(std::size_t request) {
  return std::make_shared<Sink>(shared_from_this(), request);
}

void EventQueue::limit(std::size_t max_bytes) {
  const std::lock_guard held(mutex_);
  max_bytes_ = max_bytes;
}

bool EventQueue::overflowed() const {
  const std::lock_guard held(mutex_);
  return state_ == State::overflowed;
}

void EventQueue::post(Entry entry) {
  {
    const std::lock_guard held(mutex_);
    if (state_ != State::open) return;
    bytes_ += bytes_of(entry);
    if (bytes_ > max_bytes_) {
      state_ = State::overflowed;
      entries_ = {};
    } else {
      entries_.push_back(std::move(entry));
      if (woken_) return;
    }
    woken_ = true;
  }
  wake_reader();
}

void EventQueue::lose() {
  {
    const std::lock_guard held(mutex_);
    state_ = State::lost;
    entries_ = {};
    woken_ = true;
  }
  wake_reader();
}

void EventQueue::wake_reader() {
  if (wake_()) return;
  const std::lock_guard held(mutex_);
  woken_ = false;
}

Result<std::vector<EventQueue::Entry>> EventQueue::take() {
  std::vector<Entry> entries;
  const std::lock_guard held(mutex_);
  if (state_ == State::lost) return out_of_memory_error();
  if (state_ == State::overflowed)
    return Error(ErrorCode::busy, "the answer came faster than it could be written", "",
                 "try again later, or ask for less at once");
  entries.swap(entries_);
  bytes_ = 0;
  woken_ = false;
  return entries;
}

}  // namespace motley::engine
