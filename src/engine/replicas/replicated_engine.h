#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "engine/replica.h"
#include "engine/replicas/placement.h"

namespace motley::engine {

// Several engines of one model as one. Each request runs on one of them, as Placement chooses. An
// adapter is loaded and unloaded in all that serve: a load reaches all of them or none. An engine
// that stops fails its own requests; the others serve on, and get all requests that follow.
//
// It has no thread: calls run on the callers' threads, and the steps of a load on the engines'.
class ReplicatedEngine final : public Engine {
 public:
  // They must outlive it.
  explicit ReplicatedEngine(std::vector<Replica*> replicas);
  ~ReplicatedEngine() override;

  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  void cancel(RequestId request) override;
  void cancel(RequestId request, int choice, std::optional<std::int64_t> kept) override;
  void abort(RequestId request) override;
  void pause(Pause pause, Done done) override;
  void resume(std::string adapter, Done done) override;
  Pauses paused() const override;
  void reset_prefix_cache(bool preempts, Done done) override;
  void load_adapter(AdapterSpec spec, bool replace, Done done) override;
  void unload_adapter(std::string name, Done done) override;
  std::vector<AdapterInfo> adapters() const override;
  std::optional<AdapterInfo> adapter(std::string_view name) const override;
  // The sums, and each replica's own.
  Stats stats() const override;
  std::int64_t max_sequence_tokens() const override;
  bool keeps_states() const override { return replicas_.front()->keeps_states(); }
  RoutedExpertsSizes routed_experts() const override { return replicas_.front()->routed_experts(); }
  void shutdown(Drain drain) override;
  // An error once all have stopped.
  Result<void> health() const override;
  std::vector<LostReplica> lost_replicas() const override;

 private:
  struct Change;
  using Step = void (ReplicatedEngine::*)(const std::shared_ptr<Change>& change);
  using Call = FunctionRef<void(Replica& replica, const Done& done)>;

  // A name in all replicas. Requests can use it while it is ready; one change at a time.
  struct Name {
    AdapterState state = AdapterState::absent;
    bool replacing = false;  // new content loads while the old one serves

    bool ready() const { return state == AdapterState::ready; }
    bool changing() const {
      return replacing || state == AdapterState::loading || state == AdapterState::closing;
    }
  };

  Result<RequestId> try_submit(const Request& request, const std::shared_ptr<EventSink>& sink);
  Result<void> check_names(const Request& request) const;
  // A request's id says which replica has it.
  RequestId id_of(RequestId request, std::size_t replica) const;
  Replica& replica_of(RequestId request) const;
  RequestId own_id(RequestId request) const;

  // Whether requests can use the name. Requires the lock.
  bool is_ready_locked(std::string_view name) const;
  // Calls all that serve; done when all have answered.
  void call_all(const Done& done, Call call);
  void end_call(const std::shared_ptr<Change>& change);
  // Begins a change of the name.
  Result<std::shared_ptr<Change>> begin_load(const AdapterSpec& spec, const Done& done);
  Result<std::shared_ptr<Change>> begin_unload(const std::string& name, const Done& done);
  // Makes what it takes to settle the change, so that memory can't run out then.
  Result<void> prepare_settling(const std::shared_ptr<Change>& change);
  // Calls each replica that the change concerns; the step follows when all have answered.
  void call_each(const std::shared_ptr<Change>& change, Call call, Step next);
  void answered(const std::shared_ptr<Change>& change, std::size_t replica, Result<void> result,
                Step next);
  void settle(const std::shared_ptr<Change>& change);
  void end_load(const std::shared_ptr<Change>& change);
  void end_unload(const std::shared_ptr<Change>& change);
  // A name that is not ready is forgotten.
  void end(Change& change, bool ready, Result<void> result);
  // Drops from the change what is lost; takes the first error of the others.
  Result<void> outcome_of(Change& change) const;
  std::vector<std::size_t> serving() const;

  std::vector<Replica*> replicas_;
  std::int64_t max_sequence_tokens_ = 0;
  std::atomic<bool> stopping_{false};

  mutable std::mutex lock_;
  Placement placement_;
  std::map<std::string, Name, std::less<>> names_;
  std::uint64_t refused_ = 0;  // because all queues were full
};

}  // namespace motley::engine
