#include "engine/inbox.h"

#include <utility>

#include "base/system/out_of_memory.h"
#include "engine/stopping_error.h"

namespace motley::engine {

Inbox::Place::Place() {
  AllPreparing one;
  one.try_emplace(RequestId{});
  preparing_ = one.extract(one.begin());
}

Result<void> Inbox::takes_requests() const {
  if (broken_) return *broken_;
  if (stopping_) return stopping_error();
  return {};
}

Result<void> Inbox::takes_messages() const {
  if (broken_) return *broken_;
  if (closed_) return stopping_error();
  return {};
}

RequestId Inbox::enter(Place& place) {
  const RequestId id = next_id_++;
  place.preparing_.key() = id;
  preparing_.insert(std::move(place.preparing_));
  spare_cancels_.splice(spare_cancels_.end(), place.cancel_);
  return id;
}

bool Inbox::attach(RequestId request, SamplerFactory::Abandon& abandon) {
  const auto found = preparing_.find(request);
  if (found == preparing_.end()) return false;
  if (cancels_all_) return abandon != nullptr;
  found->second.abandon = std::move(abandon);
  return false;
}

bool Inbox::withdraw(RequestId request) {
  if (preparing_.erase(request) == 0) return false;
  woken_ = true;  // a pause may have waited for it
  return true;
}

bool Inbox::submit(RequestId request, Messages& message) {
  const auto found = preparing_.find(request);
  if (found == preparing_.end()) return false;
  messages_.splice(messages_.end(), message);
  messages_.splice(messages_.end(), found->second.cancels);
  preparing_.erase(found);
  return true;
}

SamplerFactory::Abandon Inbox::cancel(const CancelMessage& cancel, Messages& message) {
  if (message.empty() && !spare_cancels_.empty())
    message.splice(message.end(), spare_cancels_, spare_cancels_.begin());
  if (message.empty() && !within_memory([&] { message.emplace_back(); }).ok()) return {};
  message.front() = cancel;
  const auto found = preparing_.find(cancel.request);
  if (found == preparing_.end()) {
    post(message);
    return {};
  }
  found->second.cancels.splice(found->second.cancels.end(), message);
  // An aborted request arrives, so that it ends as such and not with an error.
  if (cancel.choice || cancel.reason == FinishReason::aborted) return {};
  return std::exchange(found->second.abandon, {});
}

void Inbox::stop(bool cancels) {
  stopping_ = true;
  cancels_all_ = cancels_all_ || cancels;
}

SamplerFactory::Abandon Inbox::next_abandon() {
  for (auto& [id, preparing] : preparing_) {
    if (preparing.abandon) return std::exchange(preparing.abandon, {});
  }
  return {};
}

void Inbox::fail(const Error& error) {
  if (!within_memory([&] { broken_ = error; }).ok()) broken_ = out_of_memory_error();
  stopping_ = true;
}

Messages Inbox::take() {
  woken_ = false;
  return std::exchange(messages_, {});
}

void Inbox::trim_cancels(std::size_t requests) {
  while (spare_cancels_.size() > requests + preparing_.size()) spare_cancels_.pop_back();
}

}  // namespace motley::engine
