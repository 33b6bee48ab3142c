#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "base/system/watchdog.h"
#include "engine/execution/executor.h"
#include "engine/memory/kv_pages.h"
#include "engine/requests/pauses.h"
#include "engine/residency/residency.h"
#include "engine/scheduling/outbox.h"
#include "engine/scheduling/step_plan.h"
#include "engine/sequences/admission.h"
#include "engine/sequences/jobs.h"
#include "engine/sequences/request_counts.h"
#include "engine/sequences/running_batch.h"
#include "engine/sequences/sequence.h"
#include "engine/sequences/sequence_states.h"
#include "engine/sequences/waiting_queue.h"
#include "engine/stats/stats.h"

namespace motley::engine {

// Decides what runs in each step. It runs on the caller's thread and depends only on its
// collaborators, so it can be tested with a scripted clock and without a model.
//
// A sequence is waiting or running. Waiting ones are ordered by priority and fair share; one whose
// adapters are not ready is skipped, one that finds no pages is not. In a step every running
// sequence past its prompt computes its next token, and prompts share the remaining rows. A
// sequence that needs a page when none is left preempts the last one in the order.
class Scheduler {
 public:
  struct Options {
    Duration adapter_patience{};
    // How long a client that runs fewer sequences than another waits for a place before one of the
    // other's is preempted.
    Duration client_patience = std::chrono::milliseconds(50);
    std::size_t max_adapters = 0;  // by name; 0: unlimited
    bool prefix_cache = true;
    // Positions of a sequence after which its state is saved anyway; 0: never.
    std::int64_t snapshot_interval = 4096;
    bool validate = false;
    Watchdog* watchdog = nullptr;
  };

  Scheduler(Executor* executor, AdapterStore* store, const Clock* clock, const Options& options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  struct Arrival {
    RequestId id = 0;
    Request request;
    std::shared_ptr<EventSink> sink;
    std::unique_ptr<Sampler> sampler;
    TimePoint accepted;
  };
  void submit(Arrival arrival);
  // `kept`: see Engine.
  void cancel(RequestId request, std::optional<int> choice = {},
              std::optional<std::int64_t> kept = {});
  void cancel_all();
  // Its choices finish as `aborted`.
  void abort(RequestId request);

  // pause.cc
  // In `abort` the requests end at once, and those that arrive later too; in `wait` they run on; in
  // `keep` they stand still.
  Result<void> pause(const Pause& pause);
  void resume(std::string_view adapter);
  void resume_all();
  // Whether a request with a smaller id than this has not ended; of an adapter, if it is given.
  bool has_requests(std::string_view adapter, RequestId before) const;
  // Later requests find nothing of what was computed with this adapter; empty: with any or none.
  void forget_prefixes(std::string_view adapter);
  // The same of all, where `preempts` also for what runs.
  void reset_prefix_cache(bool preempts);

  // Fails all requests.
  void fail_all(const Error& error);

  Residency& residency() { return residency_; }

  // Takes the adapter store's results, begins what can begin, and runs a step. `idle`: there was
  // nothing to run. An error is the executor's and final: call fail_all() then. Once this step has
  // been queued, the events of the previous step are delivered and `meanwhile` is called;
  // an idle step delivers, and does not call it.
  enum class Step : std::uint8_t { ran, idle };
  Result<Step> step(FunctionRef<void()> meanwhile = [] {});
  // Delivers the events of the last step at once.
  void deliver() { outbox_.deliver(); }
  // Whether adapters were loaded, unloaded or replaced since the last call.
  bool adapters_changed() { return std::exchange(adapters_changed_, false); }

  // Nothing is left to do or to deliver.
  bool empty() const { return jobs_.empty() && outbox_.empty(); }
  std::size_t requests() const { return jobs_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return running_.size(); }
  const KvPages& pages() const { return pages_; }
  const WaitingQueue& waiting_queue() const { return waiting_; }

  // Fills everything except the list of adapters.
  void fill(Stats& stats) const;
  // Counts running and waiting sequences by adapter, for Residency::each_change.
  void count_by_adapter();

  Result<void> check() const;

 private:
  // The interval in builds where a broken invariant is counted instead of fatal.
  static constexpr std::uint64_t steps_between_checks = 4096;

  // scheduler.cc
  Result<void> enter(Arrival arrival);
  // Ends these of its choices.
  void end_choices(const std::shared_ptr<Job>& job, int first, int last, FinishReason reason,
                   std::optional<std::int64_t> kept = {});
  void finish_choice(Job& job, int choice, FinishReason reason,
                     std::optional<std::int32_t> stop_token = {});
  // Removes all its sequences.
  void fail(const std::shared_ptr<Job>& job, const Error& error);
  void fail_marked();
  // Memory ran out at an unknown place: fails what runs, and jobs that have lost a sequence.
  void fail_running(const Error& error);
  int open_sequences(const Job& job) const;
  void forget(const Job& job);
  // The longest sequence that can run.
  std::int64_t longest() const {
    return longest_sequence(limits_.sequence_tokens, limits_.pages, limits_.page_tokens);
  }
  void validate();
  Result<void> check_running(const RunningSequence& running) const;
  Result<void> check_slots() const;

  // pause.cc
  void note_pauses();

  // replace.cc
  // What has begun goes on with content to which it switches.
  void follow_replacements();
  // Whether the sequence has switched.
  bool follow_replacements(Sequence& sequence, Claim& claim);

  // admit.cc
  void admit();
  // Whether it begins now; an error ends it.
  Result<bool> begins(WaitingSequence& waiting, bool& room, TimePoint now);
  bool has_right_of_way(const WaitingSequence& waiting, TimePoint now);
  bool find_room(const WaitingSequence& waiting, TimePoint now);
  // Preempts a sequence in favour of a waiting one, if the rules allow it.
  bool preempt_for(const WaitingSequence& waiting, TimePoint now);
  Shortage shortage_of(const WaitingSequence& waiting) const;
  // Of a step; fewer where slots wait for the end of copies to them.
  std::int64_t max_running() const;
  void begin(WaitingQueue::Place place);
  // Its pages, its slot, and what the cache has of it.
  std::unique_ptr<RunningSequence> make_running(WaitingSequence waiting, WaitingQueue::Place place);
  void preempt_last() { preempt(running_.size() - 1); }
  void preempt(std::size_t at);

  // step.cc
  Result<Step> try_step(FunctionRef<void()> meanwhile);
  // Nothing is left that runs.
  Result<Step> rest();
  // What runs waits for its state.
  Result<Step> wait_for_copies();
  // Of requests whose next token can never be drawn.
  void fail_undrawable();
  Result<void> lay_out();
  Result<void> lay_out_decodes();
  void lay_out_prompts();
  Result<void> grow(RunningSequence& running);
  void plan(RunningSequence& running, std::int64_t count);
  Result<void> compute(FunctionRef<void()> meanwhile);
  void settle();
  void settle(const StepPlan::Part& part);
  // `length`: the tokens before the chunk.
  void deliver_scores(RunningSequence& running, std::int64_t length, const ChunkOutput& output);
  void deliver_routed(RunningSequence& running, std::int64_t length, const ChunkOutput& output);
  void fork(RunningSequence& running, std::span<const Draw> draws,
            std::span<std::unique_ptr<Sampler>> samplers);
  void accept(RunningSequence& running, const Draw& draw);
  void fail_overflowed(Job& job);

  Executor* executor_;
  const Clock* clock_;
  Options options_;
  Executor::Limits limits_;

  // Sequences hold pages, slots and claims, so these are constructed first and destroyed last.
  KvPages pages_;
  SequenceStates states_;
  Residency residency_;

  Jobs jobs_;
  WaitingQueue waiting_;
  RunningBatch running_;
  StepPlan plan_;
  Outbox outbox_;
  RequestCounts counts_;
  Pauses pauses_;
  bool adapters_changed_ = false;
  bool has_run_ = false;  // since the executor's release_adapters()
};

}  // namespace motley::engine
