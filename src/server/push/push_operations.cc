#include "server/push/push_operations.h"

#include <tuple>
#include <vector>

#include "base/cat.h"
#include "base/system/out_of_memory.h"

namespace motley::server {
namespace {

// Whether a repetition may have another outcome.
bool asks_to_try_again(const HttpResponse& answer) {
  return answer.status == 408 || answer.status == 429 || answer.status >= 499;
}

}  // namespace

void PushOperations::Operation::end(const HttpResponse& answer) {
  if (owner_ == nullptr || asks_to_try_again(answer) || answer.body.size() > max_answer_bytes)
    return;
  Answer kept;
  std::ignore = within_memory([&] { kept = std::make_shared<const HttpResponse>(answer); });
  std::exchange(owner_, nullptr)->end(key_, kept);
}

boost::asio::awaitable<PushOperations::Operation> PushOperations::begin(
    boost::asio::any_io_executor executor, std::string_view name, std::string_view id) {
  Operation operation;
  operation.key_ = cat(name, "\n", id);
  std::shared_ptr<Handover<Answer>> wait;
  {
    const std::lock_guard held(lock_);
    const auto [found, first] = entries_.try_emplace(operation.key_);
    if (found->second.answer) {
      operation.answer_ = found->second.answer;
    } else if (!first) {
      wait = std::make_shared<Handover<Answer>>(executor);
      found->second.waiting.push_back(wait);
    }
  }
  if (wait != nullptr) operation.answer_ = co_await wait->take();
  if (operation.answer_ == nullptr) operation.owner_ = this;
  co_return operation;
}

std::size_t PushOperations::answers() const {
  const std::lock_guard held(lock_);
  return answered_.size();
}

// All that wait get the answer; without one the first of them does the push.
void PushOperations::end(const std::string& key, const Answer& answer) {
  std::list<std::shared_ptr<Handover<Answer>>> woken;
  std::shared_ptr<Handover<Answer>> next;
  {
    const std::lock_guard held(lock_);
    const auto found = entries_.find(key);
    Entry& entry = found->second;
    const bool kept = answer != nullptr && within_memory([&] { answered_.push_back(key); }).ok();
    if (kept) {
      entry.answer = answer;
      woken.swap(entry.waiting);
      if (answered_.size() > max_answers) {
        entries_.erase(entries_.find(answered_.front()));
        answered_.pop_front();
      }
    } else if (entry.waiting.empty()) {
      entries_.erase(found);
      return;
    } else {
      next = std::move(entry.waiting.front());
      entry.waiting.pop_front();
    }
  }
  if (next != nullptr) next->give(nullptr);
  for (const auto& each : woken) each->give(answer);
}

}  // namespace motley::server
