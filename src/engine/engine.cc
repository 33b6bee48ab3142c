#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/cat.h"
#include "base/check.h"
#include "base/queue_share.h"
#include "base/system/out_of_memory.h"
#include "base/system/watchdog.h"
#include "engine/execution/executor.h"
#include "engine/replica.h"
#include "engine/residency/adapter_directory.h"
#include "engine/residency/adapter_store.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduling/admission.h"
#include "engine/scheduling/scheduler.h"
#include "engine/validate_request.h"

namespace motley::engine {
namespace {

struct SubmitMessage {
  Scheduler::Arrival arrival;
  std::optional<Error> error = {};  // set if it could not be prepared
};
struct CancelMessage {
  RequestId request = 0;
  std::optional<int> choice = {};
  std::optional<std::int64_t> kept = {};
};
struct LoadMessage {
  AdapterSpec spec;
  bool replace = false;
  bool hold = false;
  Engine::Done done;
};
struct SettleMessage {
  std::string name;
  Replica::Hold hold = Replica::Hold::drop;
  Engine::Done done;
};
struct UnloadMessage {
  std::string name;
  Engine::Done done;
};
using Message =
    std::variant<CancelMessage, SubmitMessage, LoadMessage, SettleMessage, UnloadMessage>;
// A list, so that a message that has been allocated can be queued without failing.
using Messages = std::list<Message>;

// The interval at which counts of sequences by adapter are published while nothing is loaded or
// unloaded.
constexpr Duration describe_every = std::chrono::milliseconds(100);

Error stopping_error() {
  return {ErrorCode::unavailable, "the server is shutting down", {}, "ask another one"};
}

class ThreadedEngine final : public Replica {
 public:
  ThreadedEngine(const Collaborators& collaborators, const Options& options)
      : executor_(collaborators.executor),
        samplers_(collaborators.samplers),
        store_(collaborators.adapters),
        clock_(collaborators.clock),
        options_(options),
        bounds_(bounds_of(executor_->limits())),
        max_ranks_(executor_->limits().mix_rank),
        page_bytes_(store_->usage().page_bytes),
        scheduler_(executor_, store_, clock_,
                   {.adapter_patience = options.adapter_patience,
                    .max_adapters = options.max_adapters,
                    .prefix_cache = options.prefix_cache,
                    .snapshot_interval = options.snapshot_interval,
                    .validate = options.validate,
                    .watchdog = options.watchdog}) {
    publish(true);
    store_->set_wake([this] { wake(store_done_); });
    samplers_->set_wake([this] { wake(sampler_ready_); });
    thread_ = std::thread([this] { run(); });
  }

  ~ThreadedEngine() override {
    shutdown(Drain::cancel);
    thread_.join();
  }

  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override {
    return within_memory([&] { return try_submit(std::move(request), std::move(sink)); });
  }

  void cancel(RequestId request) override { cancel_choices({.request = request}); }
  void cancel(RequestId request, int choice, std::optional<std::int64_t> kept) override {
    cancel_choices({.request = request, .choice = choice, .kept = kept});
  }

  void load_adapter(AdapterSpec spec, bool replace, Done done) override {
    post_or_answer(LoadMessage{std::move(spec), replace, false, std::move(done)});
  }
  void hold_adapter(AdapterSpec spec, bool replace, Done done) override {
    post_or_answer(LoadMessage{std::move(spec), replace, true, std::move(done)});
  }
  void settle_adapter(std::string name, Hold hold, Done done) override {
    post_or_answer(SettleMessage{std::move(name), hold, std::move(done)});
  }
  void unload_adapter(std::string name, Done done) override {
    post_or_answer(UnloadMessage{std::move(name), std::move(done)});
  }

  std::vector<AdapterInfo> adapters() const override {
    std::vector<AdapterInfo> named = stats().adapters;
    std::erase_if(named,
                  [](const AdapterInfo& info) { return info.state == AdapterState::draining; });
    return named;
  }
  std::optional<AdapterInfo> adapter(std::string_view name) const override {
    AdapterDirectory::Shared known;
    {
      const std::lock_guard held(lock_);
      known = directory_.find(name);
    }
    return known == nullptr ? std::nullopt : std::optional(described(*known));
  }
  // Adapters are copied without the lock, which steps need too.
  Stats stats() const override {
    std::vector<AdapterDirectory::Shared> named;
    Stats stats;
    {
      const std::lock_guard held(lock_);
      stats = stats_;
      named = directory_.list();
    }
    stats.adapters.reserve(named.size());
    for (const AdapterDirectory::Shared& each : named) stats.adapters.push_back(described(*each));
    return stats;
  }
  Standing standing(std::span<const lora::ScaledAdapter> adapters) const override {
    const std::lock_guard held(lock_);
    Standing standing{.serves = !broken_ && !stopping_,
                      .sequences = stats_.running + stats_.waiting +
                                   static_cast<std::int64_t>(preparing_.size() + posted_submits_)};
    for (const lora::ScaledAdapter& each : adapters) {
      const AdapterDirectory::Shared known = directory_.find(each.name);
      standing.ready_adapters.push_back(known != nullptr && known->ready);
    }
    return standing;
  }
  std::int64_t max_sequence_tokens() const override { return bounds_.sequence_tokens; }
  bool keeps_states() const override { return executor_->limits().state_slots > 0; }

  void shutdown(Drain drain) override {
    std::unique_lock held(lock_);
    stopping_ = true;
    cancels_all_ = cancels_all_ || drain == Drain::cancel;
    if (drain == Drain::cancel) {
      // None of these allocates.
      for (auto at = preparing_.begin(); at != preparing_.end();) {
        const SamplerFactory::Abandon abandon = std::exchange(at->second.abandon, {});
        if (!abandon) {
          ++at;
          continue;
        }
        held.unlock();
        abandon();
        held.lock();
        at = preparing_.begin();
      }
    }
    woken_.notify_one();
    ended_now_.wait(held, [this] { return ended_; });
  }

  Result<void> health() const override {
    const std::lock_guard held(lock_);
    if (broken_) return *broken_;
    return {};
  }

 private:
  // With where its bytes are now.
  AdapterInfo described(const AdapterDirectory::Named& named) const {
    AdapterInfo info = named.info;
    const AdapterStore::Memory memory = store_->memory_of(info.name, named.version);
    info.on_device = memory.device;
    info.in_host = memory.host;
    info.bytes = info.pages * page_bytes_;
    return info;
  }

  static RequestBounds bounds_of(const Executor::Limits& limits) {
    return {.vocabulary = limits.vocabulary,
            .sequence_tokens =
                longest_sequence(limits.sequence_tokens, limits.pages, limits.page_tokens),
            .prompt_top = limits.prompt_top};
  }

  // Each request allocates the message that cancels it in advance, so that cancelling it once
  // cannot fail.
  void cancel_choices(const CancelMessage& cancel) {
    Messages message;
    const bool made = cancel.choice && within_memory([&] { message.emplace_back(); }).ok();
    SamplerFactory::Abandon abandon;
    {
      const std::lock_guard held(lock_);
      if (!made && !spare_cancels_.empty())
        message.splice(message.end(), spare_cancels_, spare_cancels_.begin());
      if (message.empty() && !within_memory([&] { message.emplace_back(); }).ok()) return;
      message.front() = cancel;
      const auto found = preparing_.find(cancel.request);
      const bool prepares = found != preparing_.end();
      if (prepares && !cancel.choice) abandon = std::exchange(found->second.abandon, {});
      Messages& to = prepares ? found->second.cancels : inbox_;
      to.splice(to.end(), message);
      woken_.notify_one();
    }
    if (abandon) abandon();
  }

  Result<void> admissible_locked(const Request& request) {
    if (broken_) return *broken_;
    if (stopping_) return stopping_error();
    int ranks = 0;
    for (const lora::ScaledAdapter& each : request.adapters) {
      const AdapterDirectory::Shared known = directory_.find(each.name);
      if (known == nullptr)
        return Error(ErrorCode::not_found, cat("no adapter ", quote(each.name)), "adapters",
                     "name one that is loaded");
      ranks += known->info.rank;
      const std::string& exclusive = known->exclusive;
      if (exclusive.empty() || (request.adapters.size() == 1 && each.scale == 1)) continue;
      return Error(ErrorCode::invalid_argument,
                   cat(quote(each.name), " can't be mixed or scaled: ", exclusive), "adapters",
                   "use it alone, with the scale 1");
    }
    if (max_ranks_ > 0 && ranks > max_ranks_)
      return Error(ErrorCode::invalid_argument,
                   cat("the ranks of ", ranks_locked(request), " add up to ", ranks,
                       ", and steps have room for ", max_ranks_),
                   "adapters", "use fewer or smaller ones at once");
    const std::int64_t ahead =
        stats_.waiting + static_cast<std::int64_t>(preparing_.size() + posted_submits_);
    const QueueAtArrival queue = queue_locked(request.client, ahead);
    if (!has_place(queue)) {
      ++refused_;
      return Error(ErrorCode::busy,
                   cat(ahead, " requests wait already, ", queue.own, " of them yours"), {},
                   "try again later");
    }
    return {};
  }

  QueueAtArrival queue_locked(const std::string& client, std::int64_t ahead) const {
    QueueAtArrival queue{
        .places = options_.max_queue, .free = free_places_locked(), .waiting = ahead};
    if (queue.waiting < queue.places + queue.free) return queue;
    const auto count_of = [&](const auto& counts) {
      const auto found = counts.find(client);
      return found == counts.end() ? 0 : found->second;
    };
    queue.own = count_of(waiting_) + count_of(arriving_);
    queue.clients = static_cast<std::int64_t>(waiting_.size()) + (queue.own == 0 ? 1 : 0);
    for (const auto& [name, count] : arriving_)
      if (!waiting_.contains(name)) ++queue.clients;
    return queue;
  }

  // Free places in the batch for new requests: none if others wait already. Requests that the
  // scheduler has just taken still count as waiting.
  std::int64_t free_places_locked() const {
    if (stats_.waiting > taken_submits_) return 0;
    return executor_->limits().sequences - stats_.running;
  }

  // 'a' (16) and 'b' (8).
  std::string ranks_locked(const Request& request) const {
    std::vector<std::string> each;
    for (const lora::ScaledAdapter& adapter : request.adapters)
      each.push_back(cat(quote(adapter.name), " (", directory_.find(adapter.name)->info.rank, ")"));
    return join(each, " and ");
  }

  Result<RequestId> try_submit(Request request, std::shared_ptr<EventSink> sink) {
    MOTLEY_TRY_VOID(validate(request, bounds_));
    // No more tokens can ever be drawn, and memory is provided for no more.
    request.max_tokens =
        std::min(request.max_tokens,
                 bounds_.sequence_tokens - static_cast<std::int64_t>(request.tokens.size()));
    Messages cancel(1);
    const auto message = std::make_shared<Messages>();
    Scheduler::Arrival& arrival =
        message->emplace_back().emplace<SubmitMessage>(SubmitMessage{}).arrival;
    {
      const std::lock_guard held(lock_);
      MOTLEY_TRY_VOID(admissible_locked(request));
      arrival.id = next_id_++;
      std::int64_t& arriving = arriving_[request.client];
      preparing_.try_emplace(arrival.id);
      ++arriving;
      spare_cancels_.splice(spare_cancels_.end(), cancel);
    }
    const RequestId id = arrival.id;
    arrival.request = std::move(request);
    arrival.sink = std::move(sink);
    arrival.accepted = clock_->now();
    SamplerFactory::Abandon abandon;
    const Result<void> begun = within_memory([&] {
      abandon = samplers_->prepare(arrival.request,
                                   [this, id, message](Result<std::unique_ptr<Sampler>> made) {
                                     prepared(id, *message, std::move(made));
                                   });
    });
    std::unique_lock held(lock_);
    if (begun.ok()) {
      const auto still = preparing_.find(id);
      if (still != preparing_.end() && !cancels_all_) {
        still->second.abandon = std::move(abandon);
      } else if (still != preparing_.end() && abandon) {
        held.unlock();
        abandon();
      }
      return id;
    }
    // If it has been prepared nevertheless, it runs.
    if (preparing_.erase(id) == 0) return id;
    leave_arriving_locked(arrival.request.client);
    woken_.notify_one();
    return begun.error();
  }

  // Called on any thread; allocates nothing.
  void prepared(RequestId id, Messages& message, Result<std::unique_ptr<Sampler>> made) {
    auto& submit = std::get<SubmitMessage>(message.front());
    if (made.ok()) {
      submit.arrival.sampler = *std::move(made);
    } else {
      submit.error = std::move(made).error();
    }
    const std::lock_guard held(lock_);
    const auto found = preparing_.find(id);
    if (found == preparing_.end()) return;  // it was refused or cancelled meanwhile
    ++posted_submits_;
    inbox_.splice(inbox_.end(), message);
    inbox_.splice(inbox_.end(), found->second.cancels);
    preparing_.erase(found);
    woken_.notify_one();
  }

  template <class WithDone>
  void post_or_answer(WithDone message) {
    Messages made;
    Result<void> posted = within_memory([&] { made.emplace_back().emplace<WithDone>(message); });
    if (posted.ok()) posted = within_memory([&] { return post(made); });
    if (!posted.ok()) message.done(std::move(posted));
  }

  Result<void> post(Messages& message) {
    const std::lock_guard held(lock_);
    if (broken_) return *broken_;
    if (closed_) return stopping_error();
    inbox_.splice(inbox_.end(), message);
    woken_.notify_one();
    return {};
  }

  void wake(bool& reason) {
    const std::lock_guard held(lock_);
    reason = true;
    woken_.notify_one();
  }

  // Everything from here on runs on the engine's thread.
  void run() {
    bool idle = false;
    while (take_messages(idle)) {
      // Known failures of allocation fail their request; this catches the others.
      const Result<void> ran = within_memory([&] { idle = run_once(); });
      if (ran.ok()) continue;
      scheduler_.fail_all(ran.error());
      idle = taken_.empty();
    }
    // A request that fails in the last step leaves no work, so no later step publishes.
    std::ignore = within_memory([this] { publish(true); });
    if (!within_memory([this] { scheduler_.residency().give_up(stopping_error()); }).ok())
      scheduler_.residency().give_up(out_of_memory_error());
    store_->set_wake({});
    samplers_->set_wake({});
    const std::lock_guard held(lock_);
    ended_ = true;
    ended_now_.notify_all();
  }

  // Returns whether there is nothing to do for now.
  bool run_once() {
    while (!taken_.empty()) {
      Messages first;
      first.splice(first.end(), taken_, taken_.begin());
      std::visit([this](auto& each) { handle(each); }, first.front());
    }
    if (cancels_now_) scheduler_.cancel_all();
    bool idle = true;
    if (!dead_) {
      const auto step = scheduler_.step([this] { publish(false); });
      if (!step.ok()) die(step.error());
      idle = !step.ok() || *step == Scheduler::Step::idle;
    }
    if (!idle) return false;
    publish(true);
    return !works_ahead();
  }

  bool works_ahead() {
    if (dead_) return false;
    const auto details = [] { return std::string("graphs of steps are captured"); };
    const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::work_ahead, details);
    Result<bool> worked = false;
    // Later steps prepare themselves what is missing.
    if (!within_memory([&] { worked = executor_->work_ahead(); }).ok()) return false;
    if (!worked.ok()) die(worked.error());
    return worked.ok() && *worked;
  }

  // Waits while there is nothing to do. False: everything is done, and no more messages will come.
  bool take_messages(bool idle) {
    std::unique_lock held(lock_);
    const auto something = [this] {
      return !inbox_.empty() || store_done_ || sampler_ready_ || cancels_all_ != cancels_now_ ||
             finished_locked();
    };
    if (idle && (scheduler_.waiting() > 0 || unpublished_)) {
      // The end of an adapter's patience, or of a memory shortage, sends no message.
      woken_.wait_for(held, std::max<Duration>(options_.adapter_patience / 8, shortest_wait),
                      something);
    } else if (idle) {
      woken_.wait(held, something);
    }
    if (finished_locked()) {
      closed_ = true;
      return false;
    }
    store_done_ = false;
    sampler_ready_ = false;
    for (const Message& message : inbox_) {
      if (const auto* const submit = std::get_if<SubmitMessage>(&message)) take_in_locked(*submit);
    }
    taken_.splice(taken_.end(), inbox_);
    cancels_now_ = cancels_all_;
    while (spare_cancels_.size() > scheduler_.requests() + preparing_.size() + posted_submits_)
      spare_cancels_.pop_back();
    taken_submits_ = static_cast<std::int64_t>(std::exchange(posted_submits_, 0));
    stats_.waiting += taken_submits_;
    return true;
  }

  // Counts as waiting from now on, until the scheduler publishes what waits.
  void take_in_locked(const SubmitMessage& message) {
    const std::string& client = message.arrival.request.client;
    leave_arriving_locked(client);
    // If memory is short, it is not counted until then.
    std::ignore = within_memory([&] { ++waiting_[client]; });
    waiting_changes_.reset();
  }

  void leave_arriving_locked(const std::string& client) {
    const auto arriving = arriving_.find(client);
    if (--arriving->second == 0) arriving_.erase(arriving);
  }

  bool finished_locked() const {
    return stopping_ && inbox_.empty() && taken_.empty() && preparing_.empty() &&
           scheduler_.empty();
  }

  void handle(SubmitMessage& message) {
    if (dead_ || message.error) {
      tell_failure(*message.arrival.sink, dead_ ? *dead_ : *message.error);
      return;
    }
    scheduler_.submit(std::move(message.arrival));
  }
  void handle(const CancelMessage& message) {
    scheduler_.cancel(message.request, message.choice, message.kept);
  }
  void handle(LoadMessage& message) {
    const Result<Done> done = within_memory([&] { return announcing(message.done); });
    if (!done.ok()) return message.done(done.error());
    if (message.hold) return scheduler_.residency().hold(message.spec, message.replace, *done);
    scheduler_.residency().load(message.spec, message.replace, *done);
  }
  void handle(SettleMessage& message) {
    const Result<Done> done = within_memory([&] { return announcing(message.done); });
    if (!done.ok()) return message.done(done.error());
    scheduler_.residency().settle(message.name, message.hold == Replica::Hold::enter, *done);
  }
  void handle(UnloadMessage& message) {
    const Result<Done> done = within_memory([&] { return announcing(message.done); });
    if (!done.ok()) return message.done(done.error());
    scheduler_.residency().unload(message.name, *done);
    publish_adapters();
  }

  // Publishes adapters first, so that a client that learns of a load can name the adapter at once.
  Done announcing(Done done) {
    return [this, answer = std::move(done)](Result<void> result) {
      publish_adapters();
      answer(std::move(result));
    };
  }

  void die(const Error& error) {
    if (!within_memory([&] { dead_ = error; }).ok()) dead_ = out_of_memory_error();
    {
      const std::lock_guard held(lock_);
      if (!within_memory([&] { broken_ = error; }).ok()) broken_ = out_of_memory_error();
      stopping_ = true;
    }
    // Publishes the failure first, so that a client that learns of it finds the engine broken.
    scheduler_.fail_all(error);
    scheduler_.residency().give_up(error);
  }

  void publish(bool idle) {
    const bool due = clock_->now() - described_ >= describe_every;
    if (scheduler_.adapters_changed() || due || idle || unpublished_) publish_adapters();
    const std::lock_guard held(lock_);
    scheduler_.fill(stats_);
    stats_.grammars = samplers_->grammar_stats();
    stats_.refused_queue = refused_;
    taken_submits_ = 0;
    if (waiting_changes_ == scheduler_.waiting_changes()) return;
    waiting_changes_ = scheduler_.waiting_changes();
    if (!within_memory([this] { waiting_ = scheduler_.waiting_by_client(); }).ok())
      waiting_changes_.reset();
  }

  void publish_adapters() {
    unpublished_ = !within_memory([this] { describe_adapters(); }).ok();
  }

  // Only what has changed: there may be thousands of names.
  void describe_adapters() {
    described_ = clock_->now();
    scheduler_.count_by_adapter();
    AdapterDirectory::Changes changes = AdapterDirectory::changes_of(scheduler_.residency());
    scheduler_.residency().forget_changes();
    AdapterDirectory::Changes before;  // freed without the lock
    const std::lock_guard held(lock_);
    before = directory_.apply(std::move(changes));
  }

  static constexpr Duration shortest_wait = std::chrono::milliseconds(1);

  Executor* executor_;
  SamplerFactory* samplers_;
  AdapterStore* store_;
  const Clock* clock_;
  Options options_;
  RequestBounds bounds_;
  int max_ranks_;             // of a request's adapters together; 0: unlimited
  std::uint64_t page_bytes_;  // of adapters' memory

  // Owned by the engine's thread:
  Scheduler scheduler_;
  Messages taken_;
  bool cancels_now_ = false;
  std::optional<Error> dead_;
  TimePoint described_;
  bool unpublished_ = false;  // memory was too short for the list of adapters

  mutable std::mutex lock_;
  std::condition_variable woken_;
  std::condition_variable ended_now_;
  Messages inbox_;
  Messages spare_cancels_;          // at least one for each request that has not ended
  bool cancels_all_ = false;        // from now on
  std::size_t posted_submits_ = 0;  // in the inbox
  std::int64_t taken_submits_ = 0;  // taken out of it for the current step
  // By client: requests that the scheduler has not taken yet, and sequences that wait.
  std::unordered_map<std::string, std::int64_t> arriving_;
  std::unordered_map<std::string, std::int64_t> waiting_;
  std::optional<std::uint64_t> waiting_changes_;  // the count to which waiting_ belongs
  std::uint64_t refused_ = 0;                     // because the queue was full
  // A request that waits for its sampler.
  struct Preparing {
    Messages cancels = {};  // that arrived meanwhile
    SamplerFactory::Abandon abandon = {};
  };
  std::map<RequestId, Preparing> preparing_;
  RequestId next_id_ = 1;
  bool store_done_ = false;
  bool sampler_ready_ = false;
  bool stopping_ = false;
  bool closed_ = false;  // takes no more messages
  bool ended_ = false;
  std::optional<Error> broken_;
  Stats stats_;
  AdapterDirectory directory_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::optional<AdapterInfo> Engine::adapter(std::string_view name) const {
  std::vector<AdapterInfo> all = adapters();
  const auto found = std::ranges::find(all, name, &AdapterInfo::name);
  return found == all.end() ? std::nullopt : std::optional(std::move(*found));
}

std::unique_ptr<Engine> Engine::create(const Collaborators& collaborators, const Options& options) {
  return Replica::create(collaborators, options);
}

std::unique_ptr<Replica> Replica::create(const Collaborators& collaborators,
                                         const Options& options) {
  MOTLEY_CHECK(collaborators.executor != nullptr && collaborators.samplers != nullptr &&
                   collaborators.adapters != nullptr && collaborators.clock != nullptr,
               "an engine with an executor, samplers, adapters and a clock");
  return std::make_unique<ThreadedEngine>(collaborators, options);
}

}  // namespace motley::engine
