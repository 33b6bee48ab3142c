#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/cat.h"
#include "base/check.h"
#include "engine/adapter_store.h"
#include "engine/admission.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "engine/validate_request.h"

namespace motley::engine {
namespace {

struct SubmitMessage {
  Scheduler::Arrival arrival;
  std::optional<Error> error = {};  // it could not be prepared
};
struct CancelMessage {
  RequestId request = 0;
  std::optional<int> choice = {};
};
struct CancelAllMessage {};
struct LoadMessage {
  AdapterSpec spec;
  bool replace = false;
  Engine::Done done;
};
struct UnloadMessage {
  std::string name;
  Engine::Done done;
};
using Message =
    std::variant<SubmitMessage, CancelMessage, CancelAllMessage, LoadMessage, UnloadMessage>;

// How often the list of adapters is described anew while nothing is loaded or unloaded.
constexpr Duration describe_every = std::chrono::milliseconds(100);

Error stopping_error() {
  return {ErrorCode::unavailable, "the server is shutting down", {}, "ask another one"};
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const Collaborators& collaborators, const Options& options)
      : executor_(collaborators.executor),
        store_(collaborators.adapters),
        clock_(collaborators.clock),
        options_(options),
        bounds_(bounds_of(executor_->limits())),
        most_ranks_(executor_->limits().mix_rank),
        scheduler_(executor_, store_, clock_,
                   {.adapter_patience = options.adapter_patience,
                    .prefix_cache = options.prefix_cache,
                    .validate = options.validate}) {
    publish(true);
    store_->set_wake([this] { wake(); });
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    shutdown(Drain::cancel);
    thread_.join();
  }

  Result<RequestId> submit(Request request, std::shared_ptr<RequestSink> sink) {
    MOTLEY_TRY_VOID(validate(request, bounds_));
    // No more than that is ever drawn, and no more is provided for.
    request.max_tokens =
        std::min(request.max_tokens,
                 bounds_.sequence_tokens - static_cast<std::int64_t>(request.tokens.size()));
    auto arrival = std::make_shared<Scheduler::Arrival>();
    {
      const std::lock_guard held(lock_);
      MOTLEY_TRY_VOID(admissible_locked(request));
      arrival->id = next_id_++;
      preparing_.try_emplace(arrival->id);
    }
    arrival->request = std::move(request);
    arrival->sink = std::move(sink);
    arrival->accepted = clock_->now();
    const RequestId id = arrival->id;
    executor_->prepare(arrival->request, [this, arrival](Result<std::unique_ptr<Sampler>> made) {
      prepared(*arrival, std::move(made));
    });
    return id;
  }

  void cancel(RequestId request, std::optional<int> choice) {
    const std::lock_guard held(lock_);
    const CancelMessage message{.request = request, .choice = choice};
    if (const auto found = preparing_.find(request); found != preparing_.end()) {
      found->second.push_back(message);
    } else {
      post_locked(message);
    }
  }

  void load(AdapterSpec spec, bool replace, Done done) {
    post_or_answer(LoadMessage{std::move(spec), replace, std::move(done)});
  }
  void unload(std::string name, Done done) {
    post_or_answer(UnloadMessage{std::move(name), std::move(done)});
  }

  std::vector<AdapterInfo> adapters() const {
    const std::lock_guard held(lock_);
    std::vector<AdapterInfo> named = stats_.adapters;
    std::erase_if(named,
                  [](const AdapterInfo& info) { return info.state == AdapterState::draining; });
    return named;
  }
  Stats stats() const {
    const std::lock_guard held(lock_);
    return stats_;
  }
  std::int64_t max_sequence_tokens() const { return bounds_.sequence_tokens; }

  void shutdown(Drain drain) {
    std::unique_lock held(lock_);
    stopping_ = true;
    if (drain == Drain::cancel) {
      for (auto& [id, cancels] : preparing_) cancels.push_back({.request = id});
      post_locked(CancelAllMessage{});
    }
    woken_.notify_one();
    ended_now_.wait(held, [this] { return ended_; });
  }

  Result<void> health() const {
    const std::lock_guard held(lock_);
    if (broken_) return *broken_;
    return {};
  }

 private:
  // An adapter that can be named, and how it can be mixed.
  struct Named {
    int rank = 0;
    std::string exclusive;
  };

  static RequestBounds bounds_of(const Executor::Limits& limits) {
    return {.vocabulary = limits.vocabulary,
            .sequence_tokens =
                longest_sequence(limits.sequence_tokens, limits.pages, limits.page_tokens)};
  }

  Result<void> admissible_locked(const Request& request) const {
    if (broken_) return *broken_;
    if (stopping_) return stopping_error();
    int ranks = 0;
    for (const ScaledAdapter& each : request.adapters) {
      const auto known = named_.find(each.name);
      if (known == named_.end())
        return Error(ErrorCode::not_found, cat("no adapter ", quote(each.name)), "adapters",
                     "name one that is loaded");
      ranks += known->second.rank;
      const std::string& exclusive = known->second.exclusive;
      if (exclusive.empty() || (request.adapters.size() == 1 && each.scale == 1)) continue;
      return Error(ErrorCode::invalid_argument,
                   cat(quote(each.name), " can't be mixed or scaled: ", exclusive), "adapters",
                   "use it alone, with the scale 1");
    }
    if (most_ranks_ > 0 && ranks > most_ranks_)
      return Error(ErrorCode::invalid_argument,
                   cat("the ranks of ", ranks_locked(request), " add up to ", ranks,
                       ", and steps have room for ", most_ranks_),
                   "adapters", "use fewer or smaller ones at once");
    const std::int64_t ahead =
        stats_.waiting + static_cast<std::int64_t>(preparing_.size() + posted_submits_);
    if (ahead >= options_.max_queue + free_places_locked())
      return Error(ErrorCode::busy, cat(ahead, " requests wait already"), {}, "try again later");
    return {};
  }

  // In the batch, for those who need not wait: nobody stands in line before them. What the
  // scheduler has just taken is still counted as waiting.
  std::int64_t free_places_locked() const {
    if (stats_.waiting > taken_submits_) return 0;
    return executor_->limits().sequences - stats_.running;
  }

  // 'a' (16) and 'b' (8).
  std::string ranks_locked(const Request& request) const {
    std::vector<std::string> each;
    for (const ScaledAdapter& adapter : request.adapters)
      each.push_back(cat(quote(adapter.name), " (", named_.find(adapter.name)->second.rank, ")"));
    return join(each, " and ");
  }

  // On any thread.
  void prepared(Scheduler::Arrival& arrival, Result<std::unique_ptr<Sampler>> made) {
    SubmitMessage message;
    if (made.ok()) {
      arrival.sampler = *std::move(made);
    } else {
      message.error = std::move(made).error();
    }
    const RequestId id = arrival.id;
    message.arrival = std::move(arrival);
    const std::lock_guard held(lock_);
    ++posted_submits_;
    post_locked(std::move(message));
    const auto found = preparing_.find(id);
    MOTLEY_CHECK(found != preparing_.end(), "a request is prepared once");
    for (const CancelMessage& cancel : found->second) post_locked(cancel);
    preparing_.erase(found);
  }

  void post_locked(Message message) {
    inbox_.push_back(std::move(message));
    woken_.notify_one();
  }

  template <class WithDone>
  void post_or_answer(WithDone message) {
    Error error = stopping_error();
    {
      const std::lock_guard held(lock_);
      if (broken_) error = *broken_;
      if (!ended_ && !broken_) {
        post_locked(std::move(message));
        return;
      }
    }
    message.done(std::move(error));
  }

  void wake() {
    const std::lock_guard held(lock_);
    store_done_ = true;
    woken_.notify_one();
  }

  // From here on: the engine's thread.
  void run() {
    bool idle = false;
    while (take_messages(idle)) {
      for (Message& message : taken_) std::visit([this](auto& each) { handle(each); }, message);
      taken_.clear();
      idle = true;
      if (!dead_) {
        const auto step = scheduler_.step([this] { publish(false); });
        if (!step.ok()) die(step.error());
        idle = !step.ok() || *step == Scheduler::Step::idle;
      }
      if (idle) {
        publish(true);
        idle = !works_ahead();
      }
    }
    scheduler_.residency().give_up(stopping_error());
    store_->set_wake({});
    const std::lock_guard held(lock_);
    ended_ = true;
    ended_now_.notify_all();
  }

  bool works_ahead() {
    if (dead_) return false;
    const Result<bool> worked = executor_->work_ahead();
    if (!worked.ok()) die(worked.error());
    return worked.ok() && *worked;
  }

  // Waits while there is nothing to do. False: all is done, and nothing more will come.
  bool take_messages(bool idle) {
    std::unique_lock held(lock_);
    const auto something = [this] { return !inbox_.empty() || store_done_ || finished_locked(); };
    if (idle && scheduler_.waiting() > 0) {
      // Patience ends without anybody's message.
      woken_.wait_for(held, std::max<Duration>(options_.adapter_patience / 8, shortest_wait),
                      something);
    } else if (idle) {
      woken_.wait(held, something);
    }
    if (finished_locked()) return false;
    store_done_ = false;
    std::swap(inbox_, taken_);
    taken_submits_ = static_cast<std::int64_t>(std::exchange(posted_submits_, 0));
    stats_.waiting += taken_submits_;
    return true;
  }

  bool finished_locked() const {
    return stopping_ && inbox_.empty() && preparing_.empty() && scheduler_.empty();
  }

  void handle(SubmitMessage& message) {
    if (dead_ || message.error) {
      message.arrival.sink->failed(dead_ ? *dead_ : *message.error);
      return;
    }
    scheduler_.submit(std::move(message.arrival));
  }
  void handle(const CancelMessage& message) { scheduler_.cancel(message.request, message.choice); }
  void handle(const CancelAllMessage&) { scheduler_.cancel_all(); }
  void handle(LoadMessage& message) {
    scheduler_.residency().load(std::move(message.spec), message.replace,
                                announcing(std::move(message.done)));
  }
  void handle(UnloadMessage& message) {
    scheduler_.residency().unload(message.name, announcing(std::move(message.done)));
    publish_adapters();
  }

  // Who hears that an adapter is there can name it at once.
  Done announcing(Done done) {
    return [this, answer = std::move(done)](Result<void> result) {
      publish_adapters();
      answer(std::move(result));
    };
  }

  void die(const Error& error) {
    dead_ = error;
    {
      const std::lock_guard held(lock_);
      broken_ = error;
      stopping_ = true;
    }
    // A client that hears of it finds the engine broken.
    scheduler_.fail_all(error);
    scheduler_.residency().give_up(error);
  }

  void publish(bool idle) {
    const bool due = clock_->now() - described_ >= describe_every;
    if (scheduler_.adapters_changed() || due || idle) publish_adapters();
    const std::lock_guard held(lock_);
    scheduler_.fill(stats_);
    taken_submits_ = 0;
  }

  void publish_adapters() {
    described_ = clock_->now();
    scheduler_.count_by_adapter();
    std::vector<AdapterInfo> infos = scheduler_.residency().describe();
    std::map<std::string, Named, std::less<>> named;
    for (const auto& [name, entry] : scheduler_.residency().entries()) {
      if (!entry->draining) named.emplace(name, Named{entry->rank, entry->exclusive});
    }
    const std::lock_guard held(lock_);
    std::swap(stats_.adapters, infos);
    std::swap(named_, named);
  }

  static constexpr Duration shortest_wait = std::chrono::milliseconds(1);

  Executor* executor_;
  AdapterStore* store_;
  const Clock* clock_;
  Options options_;
  RequestBounds bounds_;
  int most_ranks_;  // of a request's adapters together; 0: any

  // The engine thread's own.
  Scheduler scheduler_;
  std::vector<Message> taken_;
  std::optional<Error> dead_;
  TimePoint described_;

  mutable std::mutex lock_;
  std::condition_variable woken_;
  std::condition_variable ended_now_;
  std::vector<Message> inbox_;
  std::size_t posted_submits_ = 0;  // in the inbox
  std::int64_t taken_submits_ = 0;  // out of it, for the step at hand
  // Requests that wait for their samplers, and what was cancelled of them meanwhile.
  std::map<RequestId, std::vector<CancelMessage>> preparing_;
  RequestId next_id_ = 1;
  bool store_done_ = false;
  bool stopping_ = false;
  bool ended_ = false;
  std::optional<Error> broken_;
  Stats stats_;
  std::map<std::string, Named, std::less<>> named_;

  std::thread thread_;  // last: it uses all of the above
};

std::unique_ptr<Engine> Engine::create(const Collaborators& collaborators, const Options& options) {
  MOTLEY_CHECK(collaborators.executor != nullptr && collaborators.adapters != nullptr &&
                   collaborators.clock != nullptr,
               "an engine has something to run, adapters and a clock");
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(collaborators, options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<RequestId> Engine::submit(Request request, std::shared_ptr<RequestSink> sink) {
  return impl_->submit(std::move(request), std::move(sink));
}
void Engine::cancel(RequestId request) { impl_->cancel(request, {}); }
void Engine::cancel(RequestId request, int choice) { impl_->cancel(request, choice); }
void Engine::load_adapter(AdapterSpec spec, bool replace, Done done) {
  impl_->load(std::move(spec), replace, std::move(done));
}
void Engine::unload_adapter(std::string name, Done done) {
  impl_->unload(std::move(name), std::move(done));
}
std::vector<AdapterInfo> Engine::adapters() const { return impl_->adapters(); }
Stats Engine::stats() const { return impl_->stats(); }
std::int64_t Engine::max_sequence_tokens() const { return impl_->max_sequence_tokens(); }
void Engine::shutdown(Drain drain) { impl_->shutdown(drain); }
Result<void> Engine::health() const { return impl_->health(); }

}  // namespace motley::engine
