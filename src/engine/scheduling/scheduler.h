#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "base/system/watchdog.h"
#include "engine/execution/executor.h"
#include "engine/residency/residency.h"
#include "engine/scheduling/adapter_line.h"
#include "engine/scheduling/admission.h"
#include "engine/scheduling/clients.h"
#include "engine/scheduling/kv_pages.h"
#include "engine/scheduling/order.h"
#include "engine/scheduling/outbox.h"
#include "engine/scheduling/sequence.h"
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
  // The number of waiting sequences of each client at the begin of the last step.
  const std::unordered_map<std::string, std::int64_t>& waiting_by_client() const {
    return waiting_by_client_;
  }
  // Grows whenever waiting_by_client() changes.
  std::uint64_t waiting_changes() const { return waiting_changes_; }

  // Fills everything except the list of adapters.
  void fill(Stats& stats) const;
  // Counts running and waiting sequences by adapter, for Residency::each_change.
  void count_by_adapter();

  Result<void> check() const;

 private:
  using Waiting = WaitingSequences;

  // A chunk of the current step.
  struct Planned {
    RunningSequence* running = nullptr;
    std::size_t first_draw = 0;
    std::size_t draws = 0;
    std::size_t first_fork = 0;
    bool saves_state = false;  // the prompt was split at its end for that
  };

  // The interval in builds where a broken invariant is counted instead of fatal.
  static constexpr std::uint64_t steps_between_checks = 4096;

  Result<Step> try_step(FunctionRef<void()> meanwhile);
  // turns.cc
  // Brings turns_ up to date: clients take turns, and the requests of each stand by Order.
  void order_waiting();
  // Updates running_: each client's first sequence, then each one's second, and so on.
  void order_running();
  std::int64_t running_of(const Client& client) const;
  bool has_right_of_way(const WaitingSequence& waiting, TimePoint now);
  void share_rows();
  void leave(const Job& job);
  static bool stands_before(const RunningSequence& a, const RunningSequence& b);

  // admit.cc
  Result<void> enter(Arrival arrival);
  void admit();
  // Whether it begins now; an error ends it.
  Result<bool> begins(WaitingSequence& waiting, bool& room, TimePoint now);
  // Grants claims to sequences that wait for adapters.
  void give_adapters(TimePoint now);
  void make_room_for(const Want& want);
  void take_claims_back(TimePoint now);
  // Whether its adapters are ready.
  bool has_adapters(WaitingSequence& waiting, TimePoint now);
  bool find_room(const WaitingSequence& waiting, TimePoint now);
  // Preempts a sequence in favour of a waiting one, if the rules allow it.
  bool preempt_for(const WaitingSequence& waiting, TimePoint now);
  Shortage shortage_of(const WaitingSequence& waiting) const;
  // Of a step; fewer where slots wait for the end of copies to them.
  std::int64_t max_running() const;
  // The pages provided ahead for a sequence.
  std::int64_t growth_of(const Sequence& sequence) const;
  void begin(Waiting::node_type place);
  // Saves the state of a sequence where it stands.
  void save_state(RunningSequence& running);
  // Of its prompt, in a step that has room for all of them.
  std::int64_t rows_wanted(const RunningSequence& running) const;
  // Where the sequence's prompt is split, so that its state can be saved there: the next position
  // after what is computed; 0: nowhere.
  std::int64_t next_split(const RunningSequence& running) const;
  // After a step with this chunk.
  void settle_state(const Planned& planned, const runner::Chunk& chunk);
  StateSlot copy_of(const StateSlot& slot);
  // Copies of states are made between steps; the first error is the next step's.
  void note(Result<void> copied);
  // Gives the slot the state that adopted pages end with. The number of the copy if it comes from
  // the host, else 0.
  std::uint64_t restore_state(const SequencePages::Adopted& adopted, StateSlot& slot);
  // Takes note of copies from and to the host that have ended, and begins others.
  Result<void> follow_copies();
  // Waits until all have ended.
  Result<void> finish_copies();
  // All that runs waits for its state or its sampler.
  Result<Step> wait_for_copies();
  void preempt_last();
  void preempt(std::size_t at);
  void insert_running(std::unique_ptr<RunningSequence> running);
  static std::string flow_of(const Request& request);

  // step.cc
  // Of requests whose next token can never be drawn.
  void fail_undrawable();
  Result<void> lay_out();
  Result<void> lay_out_decodes();
  Result<void> grow(RunningSequence& running);
  Result<void> compute(FunctionRef<void()> meanwhile);
  void lay_out_prompts();
  void add_chunk(RunningSequence& running, std::int64_t count);
  void add_draws(RunningSequence& running);
  void settle();
  std::string describe_step() const;
  // `length`: the tokens before the chunk.
  void deliver_scores(RunningSequence& running, std::int64_t length, const ChunkOutput& output);
  void fork(RunningSequence& running, std::span<const Draw> draws,
            std::span<std::unique_ptr<Sampler>> samplers);
  void accept(RunningSequence& running, const Draw& draw);
  void count_token(Job& job, Sequence& sequence, TimePoint now);
  void fail_overflowed(Job& job);

  void validate();
  void wait(Waiting::node_type place, WaitingSequence waiting);
  void finish_choice(Job& job, int choice, FinishReason reason,
                     std::optional<std::int32_t> stop_token = {});
  // Removes all its sequences.
  void fail(std::shared_ptr<Job> job, const Error& error);
  // Marks a job to fail when fail_marked() is called.
  void mark(Job& job, Error error);
  void fail_marked();
  // Memory ran out at an unknown place: fails what runs, and jobs that have lost a sequence.
  void fail_running(const Error& error);
  int open_sequences(const Job& job) const;
  void forget(const Job& job);
  // Calls count(traffic) for the base, or for each adapter of the request.
  template <class Count>
  void count_traffic(const Job& job, Count count) {
    if (job.request.internal) return;
    if (job.adapters.entries().empty()) count(stats_.base_traffic);
    for (AdapterEntry* const entry : job.adapters.entries()) count(residency_.traffic_of(*entry));
  }
  // Publishes the traffic of its adapters, even if no step counts its sequences again.
  void note_adapters(const Job& job) {
    for (AdapterEntry* const entry : job.adapters.entries()) residency_.note(*entry);
  }
  void count_finished(const Job& job);
  // Where a request and its tokens are counted.
  Stats& counts_of(const Request& request) { return request.internal ? uncounted_ : stats_; }

  Executor* executor_;
  const Clock* clock_;
  Options options_;
  Executor::Limits limits_;
  std::int64_t longest_ = 0;  // the longest sequence that can run

  // Sequences hold pages and claims, so these are constructed first and destroyed last.
  KvPages pages_;
  StateSlots slots_;
  Residency residency_;

  std::map<RequestId, std::shared_ptr<Job>> jobs_;
  Waiting waiting_;
  struct Turn {
    std::uint64_t turn = 0;
    std::uint64_t client = 0;
    std::uint32_t place = 0;  // index in the order of waiting_
    Waiting::iterator at;
  };
  std::vector<Turn> turns_;  // waiting sequences in the order in which they begin
  bool waiting_changed_ = false;
  std::unordered_map<std::string, std::int64_t> waiting_by_client_;
  std::uint64_t waiting_changes_ = 0;
  std::vector<std::unique_ptr<RunningSequence>> running_;  // in order, see order_running()
  bool running_changed_ = false;
  std::uint64_t admission_ = 0;  // the number of admit() calls
  std::uint64_t ordering_ = 0;   // the number of updates of that order
  Outbox outbox_;
  Clients clients_;
  std::vector<Client*> prompting_;  // the clients with prompts in the current step
  Foresight foresight_;
  AdapterLine line_;  // of the current step, for adapters
  bool adapters_changed_ = false;
  bool has_run_ = false;                          // since the executor's let_go()
  bool marked_ = false;                           // some job is marked to fail
  std::optional<TimePoint> non_finite_reported_;  // when it was logged for the base

  // The current step:
  std::int64_t rows_left_ = 0;
  std::size_t slots_left_ = 0;  // for choices that fork
  std::vector<Planned> planned_;
  std::vector<runner::Chunk> chunks_;
  std::vector<ChunkOutput> outputs_;  // one for each chunk
  std::vector<Draw> draws_;
  // For choices that fork in this step; in order of draws.
  std::vector<std::unique_ptr<Sampler>> forked_samplers_;

  Result<void> copied_;  // the copies of states since the last step
  // Copies of states from and to the host, numbered from 1.
  std::uint64_t copies_begun_ = 0;
  std::uint64_t copies_ended_ = 0;

  Stats stats_;
  Stats uncounted_;  // of internal requests
};

}  // namespace motley::engine
