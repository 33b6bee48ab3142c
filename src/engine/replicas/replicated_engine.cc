#include "engine/replicas/replicated_engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "base/system/out_of_memory.h"
#include "engine/replicas/total_stats.h"
#include "engine/stopping_error.h"

namespace motley::engine {
namespace {

Error no_adapter(std::string_view name, std::string where) {
  return {ErrorCode::not_found, cat("no adapter ", quote(name)), std::move(where),
          "name one that is loaded"};
}

Error changing_error(std::string_view name, AdapterState state) {
  return {ErrorCode::busy,
          state == AdapterState::closing ? "it is being unloaded" : "it is being loaded",
          cat("adapter ", quote(name)), "try again when that is done"};
}

}  // namespace

// A load or an unload on its way through the replicas.
struct ReplicatedEngine::Change {
  std::string name;
  bool was_ready = false;
  Done done;
  // Those that it concerns, and by replica what they have answered to the last call.
  std::vector<std::size_t> replicas;
  std::vector<Result<void>> answers;
  std::atomic<std::size_t> left{0};
  // By replica, of a load. They hold the change, until it ends.
  std::vector<std::unique_ptr<Replica::Settlement>> settlements;
  Result<void> refusal;  // for which the adapter is given back
};

ReplicatedEngine::ReplicatedEngine(std::vector<Replica*> replicas)
    : replicas_(std::move(replicas)),
      placement_(
          {.replicas = replicas_.size(), .keeps_states = replicas_.front()->keeps_states()}) {
  max_sequence_tokens_ = replicas_.front()->max_sequence_tokens();
  for (const Replica* const each : replicas_)
    max_sequence_tokens_ = std::min(max_sequence_tokens_, each->max_sequence_tokens());
}

// Behind it no replica calls back.
ReplicatedEngine::~ReplicatedEngine() { shutdown(Drain::cancel); }

RequestId ReplicatedEngine::id_of(RequestId request, std::size_t replica) const {
  return request * replicas_.size() + replica;
}
Replica& ReplicatedEngine::replica_of(RequestId request) const {
  return *replicas_[request % replicas_.size()];
}
RequestId ReplicatedEngine::own_id(RequestId request) const { return request / replicas_.size(); }

Result<RequestId> ReplicatedEngine::submit(Request request, std::shared_ptr<EventSink> sink) {
  return within_memory([&] { return try_submit(request, sink); });
}

bool ReplicatedEngine::is_ready_locked(std::string_view name) const {
  const auto known = names_.find(name);
  return known != names_.end() && known->second.ready();
}

Result<void> ReplicatedEngine::check_names(const Request& request) const {
  const std::lock_guard held(lock_);
  for (const lora::ScaledAdapter& each : request.adapters)
    if (!is_ready_locked(each.name)) return no_adapter(each.name, "adapters");
  return {};
}

// A replica whose queue is full, or that stops just then, passes the request on to the next.
Result<RequestId> ReplicatedEngine::try_submit(const Request& request,
                                               const std::shared_ptr<EventSink>& sink) {
  if (stopping_) return stopping_error();
  MOTLEY_TRY_VOID(health());
  MOTLEY_TRY_VOID(check_names(request));
  std::vector<ReplicaStatus> statuses;
  for (const Replica* const each : replicas_) statuses.push_back(each->status(request.adapters));
  std::vector<std::size_t> order;
  const Placement::Keys keys = placement_.keys_of(request);
  {
    const std::lock_guard held(lock_);
    order = placement_.order(keys, statuses);
  }
  Result<RequestId> refused = stopping_error();
  for (const std::size_t replica : order) {
    refused = replicas_[replica]->submit(request, sink);
    if (refused.ok()) {
      const std::lock_guard held(lock_);
      // A request that runs is not refused for want of memory to remember it.
      std::ignore = within_memory([&] { placement_.place(keys, replica); });
      return id_of(*refused, replica);
    }
    const bool full = refused.error().code() == ErrorCode::busy;
    if (!full && replicas_[replica]->status({}).serves) return refused;
  }
  if (refused.error().code() == ErrorCode::busy) {
    const std::lock_guard held(lock_);
    ++refused_;
  }
  return refused;
}

void ReplicatedEngine::cancel(RequestId request) { replica_of(request).cancel(own_id(request)); }
void ReplicatedEngine::cancel(RequestId request, int choice, std::optional<std::int64_t> kept) {
  replica_of(request).cancel(own_id(request), choice, kept);
}

void ReplicatedEngine::abort(RequestId request) { replica_of(request).abort(own_id(request)); }

void ReplicatedEngine::pause(Pause pause, Done done) {
  if (stopping_) return done(stopping_error());
  const auto is_known = [&] {
    const std::lock_guard held(lock_);
    return pause.adapter.empty() || is_ready_locked(pause.adapter);
  };
  if (!is_known()) return done(no_adapter(pause.adapter, "lora_name"));
  call_all(done, [&](Replica& replica, const Done& each) { replica.pause(pause, each); });
}

void ReplicatedEngine::resume(std::string adapter, Done done) {
  call_all(done, [&](Replica& replica, const Done& each) { replica.resume(adapter, each); });
}

Pauses ReplicatedEngine::paused() const {
  const std::vector<std::size_t> serve = serving();
  return replicas_[serve.empty() ? 0 : serve.front()]->paused();
}

void ReplicatedEngine::reset_prefix_cache(bool preempts, Done done) {
  {
    const std::lock_guard held(lock_);
    placement_.forget();
  }
  call_all(done,
           [&](Replica& replica, const Done& each) { replica.reset_prefix_cache(preempts, each); });
}

void ReplicatedEngine::call_all(const Done& done, Call call) {
  const auto change = within_memory([&]() -> Result<std::shared_ptr<Change>> {
    MOTLEY_TRY_VOID(health());
    auto made = std::make_shared<Change>();
    made->done = done;
    made->replicas = serving();
    made->answers.resize(replicas_.size());
    return made;
  });
  if (!change.ok()) return done(change.error());
  call_each(*change, call, &ReplicatedEngine::end_call);
}

void ReplicatedEngine::end_call(const std::shared_ptr<Change>& change) {
  Result<void> outcome = outcome_of(*change);
  change->done(std::move(outcome));
}

std::vector<std::size_t> ReplicatedEngine::serving() const {
  std::vector<std::size_t> serving;
  for (std::size_t i = 0; i < replicas_.size(); ++i)
    if (replicas_[i]->health().ok()) serving.push_back(i);
  return serving;
}

Result<std::shared_ptr<ReplicatedEngine::Change>> ReplicatedEngine::begin_load(
    const AdapterSpec& spec, const Done& done) {
  MOTLEY_TRY_VOID(health());
  auto change = std::make_shared<Change>();
  change->name = spec.name;
  change->done = done;
  change->replicas = serving();
  change->answers.resize(replicas_.size());
  const std::lock_guard held(lock_);
  Name& name = names_[spec.name];
  if (name.changing()) return changing_error(spec.name, name.state);
  change->was_ready = name.ready();
  name = change->was_ready ? Name{.state = AdapterState::ready, .replacing = true}
                           : Name{.state = AdapterState::loading};
  return change;
}

Result<std::shared_ptr<ReplicatedEngine::Change>> ReplicatedEngine::begin_unload(
    const std::string& name, const Done& done) {
  MOTLEY_TRY_VOID(health());
  auto change = std::make_shared<Change>();
  change->name = name;
  change->done = done;
  change->replicas = serving();
  change->answers.resize(replicas_.size());
  const std::lock_guard held(lock_);
  if (!is_ready_locked(name)) return no_adapter(name, {});
  Name& known = names_.find(name)->second;
  if (known.replacing) return changing_error(name, known.state);
  known = {.state = AdapterState::closing};
  return change;
}

void ReplicatedEngine::load_adapter(AdapterSpec spec, bool replace, Done done) {
  const auto change = within_memory([&] { return begin_load(spec, done); });
  if (!change.ok()) return done(change.error());
  Result<void> prepared = prepare_settling(*change);
  if (!prepared.ok()) return end(**change, (*change)->was_ready, std::move(prepared));
  call_each(
      *change,
      [&](Replica& replica, const Done& each) { replica.hold_adapter(spec, replace, each); },
      &ReplicatedEngine::settle);
}

Result<void> ReplicatedEngine::prepare_settling(const std::shared_ptr<Change>& change) {
  return within_memory([&] {
    change->settlements.resize(replicas_.size());
    for (const std::size_t replica : change->replicas) {
      const auto settled = [this, change, replica](Result<void> result) {
        answered(change, replica, std::move(result), &ReplicatedEngine::end_load);
      };
      change->settlements[replica] = replicas_[replica]->settlement_of(change->name, settled);
    }
  });
}

void ReplicatedEngine::unload_adapter(std::string name, Done done) {
  const auto change = within_memory([&] { return begin_unload(name, done); });
  if (!change.ok()) return done(change.error());
  call_each(
      *change, [&](Replica& replica, const Done& each) { replica.unload_adapter(name, each); },
      &ReplicatedEngine::end_unload);
}

void ReplicatedEngine::call_each(const std::shared_ptr<Change>& change, Call call, Step next) {
  // The change may go on, with fewer replicas, when the last has been called.
  const std::size_t count = change->replicas.size();
  change->left = count;
  if (count == 0) return (this->*next)(change);
  for (std::size_t at = 0; at < count; ++at) {
    const std::size_t replica = change->replicas[at];
    std::optional<Done> answer;
    const Result<void> made = within_memory([&] {
      answer.emplace([this, change, replica, next](Result<void> result) {
        answered(change, replica, std::move(result), next);
      });
      call(*replicas_[replica], *answer);
    });
    if (!made.ok()) answered(change, replica, made, next);
  }
}

void ReplicatedEngine::answered(const std::shared_ptr<Change>& change, std::size_t replica,
                                Result<void> result, Step next) {
  change->answers[replica] = std::move(result);
  if (--change->left == 0) (this->*next)(change);
}

Result<void> ReplicatedEngine::outcome_of(Change& change) const {
  std::erase_if(change.replicas, [&](std::size_t i) { return !replicas_[i]->health().ok(); });
  if (change.replicas.empty()) return health();
  for (const std::size_t i : change.replicas) {
    if (!change.answers[i].ok()) return std::move(change.answers[i]).error();
  }
  return {};
}

// All have read and checked the adapter, or some refuse it: then the others give it back. From here
// on only the loss of a replica keeps it from settling.
void ReplicatedEngine::settle(const std::shared_ptr<Change>& change) {
  change->refusal = outcome_of(*change);
  const bool enters = change->refusal.ok();
  if (!enters)
    std::erase_if(change->replicas, [&](std::size_t i) { return !change->answers[i].ok(); });
  if (change->replicas.empty()) return end(*change, change->was_ready, std::move(change->refusal));
  const Replica::Hold hold = enters ? Replica::Hold::enter : Replica::Hold::drop;
  // The change may end, with fewer replicas, when the last has been called.
  const std::size_t count = change->replicas.size();
  change->left = count;
  for (std::size_t at = 0; at < count; ++at) {
    const std::size_t replica = change->replicas[at];
    replicas_[replica]->settle_adapter(std::move(change->settlements[replica]), hold);
  }
}

void ReplicatedEngine::end_load(const std::shared_ptr<Change>& change) {
  if (!change->refusal.ok()) return end(*change, change->was_ready, std::move(change->refusal));
  Result<void> entered = outcome_of(*change);
  end(*change, !change->replicas.empty(), std::move(entered));
}

void ReplicatedEngine::end_unload(const std::shared_ptr<Change>& change) {
  // What one does not have is unloaded there.
  for (Result<void>& answer : change->answers)
    if (!answer.ok() && answer.error().code() == ErrorCode::not_found) answer = {};
  Result<void> outcome = outcome_of(*change);
  // Where it failed it can be asked for again.
  const bool ready = !outcome.ok();
  end(*change, ready, std::move(outcome));
}

void ReplicatedEngine::end(Change& change, bool ready, Result<void> result) {
  change.settlements.clear();
  {
    const std::lock_guard held(lock_);
    const auto known = names_.find(change.name);
    known->second = {.state = AdapterState::ready};
    if (!ready) names_.erase(known);
  }
  change.done(std::move(result));
}

std::vector<AdapterInfo> ReplicatedEngine::adapters() const {
  std::vector<std::vector<AdapterInfo>> lists;
  for (const std::size_t i : serving()) lists.push_back(replicas_[i]->adapters());
  std::vector<const std::vector<AdapterInfo>*> each;
  for (const auto& list : lists) each.push_back(&list);
  std::vector<AdapterInfo> all = united_adapters(each);
  const std::lock_guard held(lock_);
  std::erase_if(all, [&](const AdapterInfo& info) { return !is_ready_locked(info.name); });
  return all;
}

std::optional<AdapterInfo> ReplicatedEngine::adapter(std::string_view name) const {
  {
    const std::lock_guard held(lock_);
    if (!is_ready_locked(name)) return std::nullopt;
  }
  std::vector<std::vector<AdapterInfo>> lists;
  for (const std::size_t i : serving())
    if (auto one = replicas_[i]->adapter(name)) lists.push_back({*std::move(one)});
  std::vector<const std::vector<AdapterInfo>*> each;
  for (const auto& list : lists) each.push_back(&list);
  std::vector<AdapterInfo> united = united_adapters(each);
  return united.empty() ? std::nullopt : std::optional(std::move(united.front()));
}

Stats ReplicatedEngine::stats() const {
  std::vector<Stats> replicas;
  for (const Replica* const each : replicas_) {
    replicas.push_back(each->stats());
    replicas.back().stopped = !each->health().ok();
  }
  Stats all = total_stats(std::move(replicas));
  const std::lock_guard held(lock_);
  all.refused_queue = refused_;
  return all;
}

std::int64_t ReplicatedEngine::max_sequence_tokens() const { return max_sequence_tokens_; }

void ReplicatedEngine::shutdown(Drain drain) {
  stopping_ = true;
  for (Replica* const each : replicas_) each->shutdown(drain);
}

Result<void> ReplicatedEngine::health() const {
  Result<void> first;
  for (const Replica* const each : replicas_) {
    Result<void> health = each->health();
    if (health.ok()) return {};
    if (first.ok()) first = std::move(health);
  }
  return first;
}

std::vector<Engine::LostReplica> ReplicatedEngine::lost_replicas() const {
  std::vector<LostReplica> lost;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    Result<void> health = replicas_[i]->health();
    if (!health.ok()) lost.push_back({static_cast<int>(i), std::move(health).error()});
  }
  return lost;
}

}  // namespace motley::engine
