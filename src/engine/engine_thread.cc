#include "engine/engine_thread.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/system/out_of_memory.h"
#include "base/system/watchdog.h"
#include "engine/execution/executor.h"
#include "engine/residency/adapter_store.h"
#include "engine/sampling/sampler.h"
#include "engine/stopping_error.h"

namespace motley::engine {
namespace {

// The interval at which counts of sequences by adapter are published while nothing is loaded or
// unloaded.
constexpr Duration describe_every = std::chrono::milliseconds(100);
// The shortest pause of an idle thread that waits for time to pass.
constexpr Duration shortest_wait = std::chrono::milliseconds(1);

}  // namespace

EngineThread::EngineThread(const Engine::Collaborators& collaborators,
                           const Engine::Options& options, EngineShared* shared)
    : collaborators_(collaborators),
      options_(options),
      shared_(shared),
      scheduler_(collaborators.executor, collaborators.adapters, collaborators.clock,
                 {.adapter_patience = options.adapter_patience,
                  .max_adapters = options.max_adapters,
                  .prefix_cache = options.prefix_cache,
                  .snapshot_interval = options.snapshot_interval,
                  .validate = options.validate,
                  .watchdog = options.watchdog}) {
  publish(true);
  const auto wake = [shared] {
    const std::lock_guard held(shared->lock);
    shared->inbox.wake();
    shared->woken.notify_one();
  };
  collaborators_.adapters->set_wake(wake);
  collaborators_.samplers->set_wake(wake);
  thread_ = std::thread([this] { run(); });
}

void EngineThread::run() {
  bool idle = false;
  while (take_messages(idle)) {
    // Known failures of allocation fail their request; this catches the others.
    const Result<void> ran = within_memory([&] { idle = run_once(); });
    if (ran.ok()) continue;
    scheduler_.fail_all(ran.error());
    idle = taken_.empty();
  }
  // A request that fails in the last step leaves no work, so no later step rests or publishes.
  if (!dead_) {
    std::ignore =
        within_memory([this] { std::ignore = collaborators_.executor->release_adapters(); });
  }
  std::ignore = within_memory([this] { publish(true); });
  if (!within_memory([this] { give_up(stopping_error()); }).ok()) give_up(out_of_memory_error());
  collaborators_.adapters->set_wake({});
  collaborators_.samplers->set_wake({});
  const std::lock_guard held(shared_->lock);
  shared_->ended = true;
  shared_->ended_now.notify_all();
}

bool EngineThread::take_messages(bool idle) {
  std::unique_lock held(shared_->lock);
  Inbox& inbox = shared_->inbox;
  const auto something = [&] {
    return inbox.has_news() || inbox.cancels_all() != cancels_now_ ||
           inbox.stopping() != stopping_now_ || finished_locked();
  };
  if (idle && (scheduler_.waiting() > 0 || unpublished_)) {
    // The end of an adapter's patience, or of a memory shortage, sends no message.
    shared_->woken.wait_for(held, std::max<Duration>(options_.adapter_patience / 8, shortest_wait),
                            something);
  } else if (idle) {
    shared_->woken.wait(held, something);
  }
  if (finished_locked()) {
    inbox.close();
    return false;
  }
  Messages arrived = inbox.take();
  for (const Message& message : arrived) {
    if (const auto* const submit = std::get_if<SubmitMessage>(&message))
      shared_->admission.take(submit->arrival.request.client);
  }
  shared_->stats.waiting = shared_->admission.waiting();
  taken_.splice(taken_.end(), arrived);
  cancels_now_ = inbox.cancels_all();
  stopping_now_ = inbox.stopping();
  arrived_before_ = inbox.first_preparing();
  const auto submits = std::ranges::count_if(
      taken_, [](const Message& each) { return std::holds_alternative<SubmitMessage>(each); });
  inbox.trim_cancels(scheduler_.requests() + static_cast<std::size_t>(submits));
  return true;
}

bool EngineThread::finished_locked() const {
  return shared_->inbox.finished() && taken_.empty() && scheduler_.empty();
}

bool EngineThread::run_once() {
  while (!taken_.empty()) {
    Messages first;
    first.splice(first.end(), taken_, taken_.begin());
    std::visit([this](auto& each) { handle(each); }, first.front());
    const auto* const pause = std::get_if<PauseMessage>(&first.front());
    if (pause != nullptr && pause->done) pausing_.splice(pausing_.end(), first);
  }
  if (cancels_now_) scheduler_.cancel_all();
  // What stands still must come to its end.
  if (stopping_now_) scheduler_.resume_all();
  bool idle = true;
  if (!dead_) {
    const auto step = scheduler_.step([this] { publish(false); });
    if (!step.ok()) die(step.error());
    idle = !step.ok() || *step == Scheduler::Step::idle;
  }
  settle_pauses();
  if (!idle) return false;
  publish(true);
  return !works_ahead();
}

bool EngineThread::works_ahead() {
  if (dead_) return false;
  const auto details = [] { return std::string("graphs of steps are captured"); };
  const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::work_ahead, details);
  Result<bool> worked = false;
  // Later steps prepare themselves what is missing.
  if (!within_memory([&] { worked = collaborators_.executor->work_ahead(); }).ok()) return false;
  if (!worked.ok()) die(worked.error());
  return worked.ok() && *worked;
}

void EngineThread::handle(SubmitMessage& message) {
  if (dead_ || message.error) {
    report_failure(*message.arrival.sink, dead_ ? *dead_ : *message.error);
    return;
  }
  scheduler_.submit(std::move(message.arrival));
}

void EngineThread::handle(const CancelMessage& message) {
  if (message.reason == FinishReason::aborted) return scheduler_.abort(message.request);
  scheduler_.cancel(message.request, message.choice, message.kept);
}

void EngineThread::handle(LoadMessage& message) {
  const Result<Engine::Done> done = within_memory([&] { return announcing(message.done); });
  if (!done.ok()) return message.done(done.error());
  if (message.hold) return scheduler_.residency().hold(message.spec, message.replace, *done);
  scheduler_.residency().load(message.spec, message.replace, *done);
}

void EngineThread::handle(SettleMessage& message) {
  const bool enters = message.hold == Replica::Hold::enter;
  const bool settled = scheduler_.residency().settle(message.name, enters);
  publish_adapters();
  if (settled) return message.done({});
  Result<void> stopped =
      within_memory([&]() -> Result<void> { return dead_ ? *dead_ : stopping_error(); });
  message.done(std::move(stopped));
}

void EngineThread::handle(UnloadMessage& message) {
  const Result<Engine::Done> done = within_memory([&] { return announcing(message.done); });
  if (!done.ok()) return message.done(done.error());
  scheduler_.residency().unload(message.name, *done);
  publish_adapters();
}

void EngineThread::handle(PauseMessage& message) {
  const Pause& pause = message.pause;
  Result<void> paused = within_memory([&] { return scheduler_.pause(pause); });
  if (!paused.ok()) {
    scheduler_.resume(pause.adapter);
    {
      const std::lock_guard held(shared_->lock);
      shared_->pauses.end(pause.adapter);
    }
    return std::exchange(message.done, {})(std::move(paused));
  }
  // Requests that an earlier pause waits for stand still now.
  if (pause.mode == PauseMode::keep) break_off_pauses(pause.adapter);
}

void EngineThread::handle(ResumeMessage& message) {
  scheduler_.resume(message.adapter);
  break_off_pauses(message.adapter);
  message.done({});
}

void EngineThread::handle(const ResetCacheMessage& message) {
  Result<void> reset = within_memory([&] {
    scheduler_.reset_prefix_cache(message.preempts);
    publish(true);
  });
  message.done(std::move(reset));
}

bool EngineThread::is_settled(const PauseMessage& each) const {
  if (each.pause.mode == PauseMode::keep) return true;
  return arrived_before_ >= each.accepted_before &&
         !scheduler_.has_requests(each.pause.adapter, each.accepted_before);
}

// Nothing is lost if memory runs out on the way: what is not answered is looked at again.
void EngineThread::settle_pauses() {
  for (auto at = pausing_.begin(); at != pausing_.end();) {
    auto& each = std::get<PauseMessage>(*at);
    if (!is_settled(each)) {
      ++at;
      continue;
    }
    if (each.pause.mode != PauseMode::keep && each.pause.clears_cache)
      scheduler_.forget_prefixes(each.pause.adapter);
    // A client that learns of the pause finds that nothing runs and that all events have come.
    scheduler_.deliver();
    publish(true);
    const Engine::Done done = std::move(each.done);
    at = pausing_.erase(at);
    done({});
  }
}

void EngineThread::break_off_pauses(std::string_view adapter) {
  for (auto at = pausing_.begin(); at != pausing_.end();) {
    auto& each = std::get<PauseMessage>(*at);
    if (each.pause.adapter != adapter) {
      ++at;
      continue;
    }
    Result<void> why = within_memory([]() -> Result<void> {
      return Error(ErrorCode::conflict, "the pause ended before the running requests", {},
                   "pause again, and resume when that is answered");
    });
    const Engine::Done done = std::move(each.done);
    at = pausing_.erase(at);
    done(std::move(why));
  }
}

void EngineThread::give_up(const Error& error) {
  scheduler_.residency().give_up(error);
  while (!pausing_.empty()) {
    Result<void> why = error;
    const Engine::Done done = std::move(std::get<PauseMessage>(pausing_.front()).done);
    pausing_.pop_front();
    done(std::move(why));
  }
}

Engine::Done EngineThread::announcing(Engine::Done done) {
  return [this, answer = std::move(done)](Result<void> result) {
    publish_adapters();
    answer(std::move(result));
  };
}

void EngineThread::die(const Error& error) {
  if (!within_memory([&] { dead_ = error; }).ok()) dead_ = out_of_memory_error();
  {
    const std::lock_guard held(shared_->lock);
    shared_->inbox.fail(error);
  }
  // Publishes the failure first, so that a client that learns of it finds the engine broken.
  scheduler_.fail_all(error);
  give_up(error);
}

void EngineThread::publish(bool idle) {
  const bool due = collaborators_.clock->now() - described_ >= describe_every;
  if (scheduler_.adapters_changed() || due || idle || unpublished_) publish_adapters();
  const std::lock_guard held(shared_->lock);
  Stats& stats = shared_->stats;
  scheduler_.fill(stats);
  stats.grammars = collaborators_.samplers->grammar_stats();
  stats.refused_queue = shared_->admission.refused();
  shared_->admission.publish({.running = stats.running,
                              .waiting = stats.waiting,
                              .waiting_by_client = &scheduler_.waiting_queue().by_client(),
                              .changes = scheduler_.waiting_queue().changes()});
}

void EngineThread::publish_adapters() {
  unpublished_ = !within_memory([this] { describe_adapters(); }).ok();
}

void EngineThread::describe_adapters() {
  described_ = collaborators_.clock->now();
  scheduler_.count_by_adapter();
  AdapterDirectory::Changes changes = AdapterDirectory::changes_of(scheduler_.residency());
  scheduler_.residency().forget_changes();
  AdapterDirectory::Changes before;  // freed without the lock
  const std::lock_guard held(shared_->lock);
  before = shared_->directory.apply(std::move(changes));
}

}  // namespace motley::engine
