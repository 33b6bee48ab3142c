#include "server/fair_workers.h"

#include <algorithm>
#include <utility>

namespace motley::server {
namespace {

// The cost of a task besides its bytes.
constexpr std::size_t task_bytes = 4096;

}  // namespace

struct FairWorkers::Task {
  std::size_t bytes = 0;
  bool large = false;
  bool taken = false;
  std::function<void()> work;
};

FairWorkers::FairWorkers(const Options& options)
    : options_(options), max_large_(std::max(1, options.threads - 1)) {
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
}

FairWorkers::~FairWorkers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

FairWorkers::Ticket FairWorkers::submit(const Client& client, std::size_t bytes,
                                        std::function<void()> work) {
  auto task = std::make_shared<Task>(
      Task{.bytes = bytes, .large = bytes > options_.large_bytes, .work = std::move(work)});
  {
    const std::lock_guard lock(mutex_);
    FairFlows<Queue>::Flow& queue = clients_.of(client.name);
    queue.weight = client.weight;
    (task->large ? queue.large : queue.small).push_back(task);
  }
  changed_.notify_one();
  return task;
}

void FairWorkers::hurry(const Ticket& ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (ticket->taken) return;
    ticket->large = false;
    hurried_.push_back(ticket);
  }
  changed_.notify_one();
}

// Null: none that may run now.
FairWorkers::Ticket FairWorkers::first_of_locked(Queue& queue) const {
  const auto drop_taken = [](std::deque<Ticket>& tasks) {
    while (!tasks.empty() && tasks.front()->taken) tasks.pop_front();
  };
  drop_taken(queue.small);
  drop_taken(queue.large);
  std::deque<Ticket>* const tasks = !queue.small.empty()                              ? &queue.small
                                    : !queue.large.empty() && may_take_large_locked() ? &queue.large
                                                                                      : nullptr;
  return tasks == nullptr ? nullptr : tasks->front();
}

FairWorkers::Ticket FairWorkers::take_locked() {
  while (!hurried_.empty()) {
    Ticket task = std::move(hurried_.front());
    hurried_.pop_front();
    if (task->taken) continue;
    task->taken = true;
    return task;
  }
  FairFlows<Queue>::Flow* const first =
      clients_.first([this](Queue& queue) { return first_of_locked(queue) != nullptr; });
  if (first == nullptr) return nullptr;
  Ticket task = first_of_locked(*first);
  clients_.begin(clients_.charge(*first, task->bytes + task_bytes));
  task->taken = true;
  return task;
}

void FairWorkers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    Ticket task;
    changed_.wait(lock, [&] {
      if (!ending_) task = take_locked();
      return ending_ || task != nullptr;
    });
    if (ending_) return;
    const bool large = task->large;
    if (large) ++large_running_;
    lock.unlock();
    task->work();
    task->work = nullptr;
    task.reset();
    lock.lock();
    if (!large) continue;
    --large_running_;
    changed_.notify_one();
  }
}

}  // namespace motley::server
