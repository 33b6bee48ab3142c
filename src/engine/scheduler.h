#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "engine/adapter_line.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/fair_order.h"
#include "engine/kv_pages.h"
#include "engine/outbox.h"
#include "engine/residency.h"
#include "engine/sequence.h"
#include "engine/stats.h"

namespace motley::engine {

// Decides what runs, step by step. All of it happens on the caller's thread and depends on nothing
// but what it is told, so that it can be tested with a scripted clock and without a model.
//
// A sequence waits or runs. Waiting ones stand in order of priority and fair share; one whose
// adapters are not there is passed by, one that finds no pages is not. In a step every running
// sequence that has its prompt behind it computes its next token, and prompts share what is left of
// the step's rows. Who needs a page when none is left pushes back the last in the order.
class Scheduler {
 public:
  struct Options {
    Duration adapter_patience{};
    bool prefix_cache = true;
    bool validate = false;
  };

  Scheduler(Executor* executor, AdapterStore* store, const Clock* clock, const Options& options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  struct Arrival {
    RequestId id = 0;
    Request request;
    std::shared_ptr<RequestSink> sink;
    std::unique_ptr<Sampler> sampler;
    TimePoint accepted;
  };
  void submit(Arrival arrival);
  void cancel(RequestId request, std::optional<int> choice = {});
  void cancel_all();
  // All requests fail.
  void fail_all(const Error& error);

  Residency& residency() { return residency_; }

  // Takes what the adapter store has done, begins what can begin, and runs a step. `idle`: there
  // was nothing to run. An error is the executor's, and final; all requests have failed then.
  // What came of the step before is delivered once this one has been queued, and so is `meanwhile`
  // done; an idle step delivers and leaves it.
  enum class Step : std::uint8_t { ran, idle };
  Result<Step> step(FunctionRef<void()> meanwhile = [] {});
  // What came of the last step, at once.
  void deliver() { outbox_.deliver(); }
  // Adapters were loaded, unloaded or replaced since the last call.
  bool adapters_changed() { return std::exchange(adapters_changed_, false); }

  // Nothing is to be done, nor to be delivered.
  bool empty() const { return jobs_.empty() && outbox_.empty(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return running_.size(); }
  const KvPages& pages() const { return pages_; }

  // All but the list of adapters.
  void fill(Stats& stats) const;
  // Counts who runs and who waits by adapter, for Residency::describe.
  void count_by_adapter();

  Result<void> check() const;

 private:
  using Waiting = std::map<Order, WaitingSequence>;

  // Where a broken invariant is counted, not fatal.
  static constexpr std::uint64_t steps_between_checks = 4096;

  // scheduler_admit.cc
  void admit();
  // Claims for whoever waits for adapters.
  void give_adapters(TimePoint now);
  void make_room_for(const Want& want);
  void take_claims_back(TimePoint now);
  // Whether its adapters are there.
  bool has_adapters(WaitingSequence& waiting, TimePoint now);
  bool find_room(const WaitingSequence& waiting);
  Shortage shortage_of(const WaitingSequence& waiting) const;
  // Pages that a sequence is provided with ahead.
  std::int64_t growth_of(const Sequence& sequence) const;
  void begin(WaitingSequence waiting);
  void push_back_last();
  void insert_running(std::unique_ptr<RunningSequence> running);
  static std::string flow_of(const Request& request);

  // scheduler_step.cc
  Result<void> lay_out();
  Result<void> lay_out_decodes();
  void lay_out_prompts();
  void add_chunk(RunningSequence& running, std::int64_t count);
  void add_draws(RunningSequence& running);
  void settle();
  void deliver_scores(RunningSequence& running, const StepChunk& chunk);
  void bear(RunningSequence& running, std::span<const Draw> draws);
  void accept(RunningSequence& running, const Draw& draw);

  void validate();
  void wait(WaitingSequence waiting);
  void finish_choice(Job& job, int choice, FinishReason reason,
                     std::optional<std::int32_t> stop_token = {});
  // Its sequences go, wherever they are.
  void fail(const std::shared_ptr<Job>& job, const Error& error);
  void forget(const Job& job);

  Executor* executor_;
  const Clock* clock_;
  Options options_;
  Executor::Limits limits_;
  std::int64_t longest_ = 0;  // sequence that can run

  // Sequences hold pages and claims: these come first and go last.
  KvPages pages_;
  Residency residency_;

  std::map<RequestId, std::shared_ptr<Job>> jobs_;
  Waiting waiting_;
  std::vector<std::unique_ptr<RunningSequence>> running_;  // in order
  Outbox outbox_;
  FairOrder fair_;
  Foresight foresight_;
  AdapterLine line_;  // of a step, for adapters
  bool adapters_changed_ = false;
  bool has_run_ = false;  // since the executor let go

  // The step at hand.
  struct Planned {
    RunningSequence* running = nullptr;
    std::size_t first_draw = 0;
    std::size_t draws = 0;
  };
  std::int64_t rows_left_ = 0;
  std::size_t slots_left_ = 0;  // for choices that are born
  std::vector<Planned> planned_;
  std::vector<StepChunk> chunks_;
  std::vector<Draw> draws_;
  // Of choices that are born in this step, behind the first; in order of draws.
  std::vector<std::unique_ptr<Sampler>> newborn_;
  std::size_t newborn_cursor_ = 0;

  Stats stats_;
};

}  // namespace motley::engine
