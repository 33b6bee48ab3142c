#include "engine/engine.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/out_of_memory.h"
#include "engine/engine_thread.h"
#include "engine/execution/executor.h"
#include "engine/messages.h"
#include "engine/replica.h"
#include "engine/residency/adapter_store.h"
#include "engine/sampling/sampler.h"
#include "engine/sequences/admission.h"
#include "engine/validate_request.h"

namespace motley::engine {
namespace {

RequestBounds bounds_of(const Executor::Limits& limits) {
  return {
      .vocabulary = limits.vocabulary,
      .sequence_tokens = longest_sequence(limits.sequence_tokens, limits.pages, limits.page_tokens),
      .prompt_top = limits.prompt_top,
      .routed_experts = limits.routed_experts.kept()};
}

AdmissionControl::Limits admission_of(const Executor::Limits& limits,
                                      const Engine::Options& options) {
  return {.queue = options.max_queue, .sequences = limits.sequences, .ranks = limits.mix_rank};
}

struct SettlementMessage final : Replica::Settlement {
  SettlementMessage(std::string name, Engine::Done done) {
    message.emplace_back().emplace<SettleMessage>(
        SettleMessage{.name = std::move(name), .done = std::move(done)});
  }
  Messages message;
};

// Checks what is asked on the caller's thread, and leaves the rest to the engine's.
class ThreadedEngine final : public Replica {
 public:
  ThreadedEngine(const Collaborators& collaborators, const Options& options)
      : collaborators_(collaborators),
        bounds_(bounds_of(collaborators.executor->limits())),
        page_bytes_(collaborators.adapters->usage().page_bytes),
        shared_(admission_of(collaborators.executor->limits(), options)),
        thread_(collaborators, options, &shared_) {}

  ~ThreadedEngine() override { shutdown(Drain::cancel); }

  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override {
    return within_memory([&] { return try_submit(std::move(request), std::move(sink)); });
  }

  void cancel(RequestId request) override { cancel_choices({.request = request}); }
  void cancel(RequestId request, int choice, std::optional<std::int64_t> kept) override {
    cancel_choices({.request = request, .choice = choice, .kept = kept});
  }
  void abort(RequestId request) override {
    cancel_choices({.request = request, .reason = FinishReason::aborted});
  }

  void pause(Pause pause, Done done) override {
    Messages made;
    const Result<void> begun = within_memory([&] {
      made.emplace_back().emplace<PauseMessage>(PauseMessage{.pause = pause, .done = done});
      return begin_pause(pause, made);
    });
    if (!begun.ok()) done(begun);
  }
  void resume(std::string adapter, Done done) override {
    Messages made;
    const Result<void> begun = within_memory([&]() -> Result<void> {
      made.emplace_back().emplace<ResumeMessage>(ResumeMessage{adapter, done});
      MOTLEY_TRY_VOID(post(made));
      const std::lock_guard held(shared_.lock);
      shared_.pauses.end(adapter);
      return {};
    });
    if (!begun.ok()) done(begun);
  }
  Pauses paused() const override {
    const std::lock_guard held(shared_.lock);
    return shared_.pauses;
  }
  void reset_prefix_cache(bool preempts, Done done) override {
    post_or_answer(ResetCacheMessage{preempts, std::move(done)});
  }

  void load_adapter(AdapterSpec spec, bool replace, Done done) override {
    post_or_answer(LoadMessage{std::move(spec), replace, false, std::move(done)});
  }
  void hold_adapter(AdapterSpec spec, bool replace, Done done) override {
    post_or_answer(LoadMessage{std::move(spec), replace, true, std::move(done)});
  }
  std::unique_ptr<Settlement> settlement_of(std::string name, Done done) override {
    return std::make_unique<SettlementMessage>(std::move(name), std::move(done));
  }
  void settle_adapter(std::unique_ptr<Settlement> settlement, Hold hold) override {
    Messages& made = dynamic_cast<SettlementMessage&>(*settlement).message;
    auto& message = std::get<SettleMessage>(made.front());
    message.hold = hold;
    Result<void> posted = within_memory([&] { return post(made); });
    if (!posted.ok()) message.done(std::move(posted));
  }
  void unload_adapter(std::string name, Done done) override {
    post_or_answer(UnloadMessage{std::move(name), std::move(done)});
  }

  std::vector<AdapterInfo> adapters() const override {
    std::vector<AdapterInfo> named = stats().adapters;
    std::erase_if(named,
                  [](const AdapterInfo& info) { return info.state == AdapterState::closing; });
    return named;
  }
  std::optional<AdapterInfo> adapter(std::string_view name) const override {
    AdapterDirectory::Shared known;
    {
      const std::lock_guard held(shared_.lock);
      known = shared_.directory.find(name);
    }
    return known == nullptr ? std::nullopt : std::optional(described(*known));
  }
  // Adapters are copied without the lock, which steps need too.
  Stats stats() const override {
    std::vector<AdapterDirectory::Shared> named;
    Stats stats;
    {
      const std::lock_guard held(shared_.lock);
      stats = shared_.stats;
      named = shared_.directory.list();
    }
    stats.adapters.reserve(named.size());
    for (const AdapterDirectory::Shared& each : named) stats.adapters.push_back(described(*each));
    return stats;
  }
  ReplicaStatus status(std::span<const lora::ScaledAdapter> adapters) const override {
    const std::lock_guard held(shared_.lock);
    ReplicaStatus status{.serves = !shared_.inbox.broken() && !shared_.inbox.stopping(),
                         .sequences = shared_.admission.sequences()};
    for (const lora::ScaledAdapter& each : adapters) {
      const AdapterDirectory::Shared known = shared_.directory.find(each.name);
      status.ready_adapters.push_back(known != nullptr && known->ready);
    }
    return status;
  }
  std::int64_t max_sequence_tokens() const override { return bounds_.sequence_tokens; }
  bool keeps_states() const override { return collaborators_.executor->limits().state_slots > 0; }
  RoutedExpertsSizes routed_experts() const override {
    return collaborators_.executor->limits().routed_experts;
  }

  void shutdown(Drain drain) override {
    std::unique_lock held(shared_.lock);
    shared_.inbox.stop(drain == Drain::cancel);
    while (drain == Drain::cancel) {
      const SamplerFactory::Abandon abandon = shared_.inbox.next_abandon();
      if (!abandon) break;
      held.unlock();
      abandon();
      held.lock();
    }
    shared_.woken.notify_one();
    shared_.ended_now.wait(held, [this] { return shared_.ended; });
  }

  Result<void> health() const override {
    const std::lock_guard held(shared_.lock);
    if (shared_.inbox.broken()) return *shared_.inbox.broken();
    return {};
  }

 private:
  // With where its bytes are now.
  AdapterInfo described(const AdapterDirectory::Named& named) const {
    AdapterInfo info = named.info;
    const AdapterStore::Memory memory =
        collaborators_.adapters->memory_of(info.name, named.version);
    info.on_device = memory.device;
    info.in_host = memory.host;
    info.bytes = info.pages * page_bytes_;
    return info;
  }

  Result<RequestId> try_submit(Request request, std::shared_ptr<EventSink> sink) {
    MOTLEY_TRY_VOID(validate(request, bounds_));
    // No more tokens can ever be drawn, and memory is provided for no more.
    request.max_tokens =
        std::min(request.max_tokens,
                 bounds_.sequence_tokens - static_cast<std::int64_t>(request.tokens.size()));
    Inbox::Place place;
    const auto message = std::make_shared<Messages>();
    Scheduler::Arrival& arrival =
        message->emplace_back().emplace<SubmitMessage>(SubmitMessage{}).arrival;
    {
      const std::lock_guard held(shared_.lock);
      MOTLEY_TRY_VOID(shared_.inbox.takes_requests());
      MOTLEY_TRY_VOID(shared_.pauses.check(request));
      MOTLEY_TRY_VOID(shared_.admission.admit(request, shared_.directory));
      arrival.id = shared_.inbox.enter(place);
    }
    const RequestId id = arrival.id;
    arrival.request = std::move(request);
    arrival.sink = std::move(sink);
    arrival.accepted = collaborators_.clock->now();
    SamplerFactory::Abandon abandon;
    const Result<void> begun = within_memory([&] {
      abandon = collaborators_.samplers->prepare(
          arrival.request, [this, id, message](Result<std::unique_ptr<Sampler>> made) {
            prepared(id, *message, std::move(made));
          });
    });
    std::unique_lock held(shared_.lock);
    if (begun.ok()) {
      const bool ends_now = shared_.inbox.attach(id, abandon);
      held.unlock();
      if (ends_now) abandon();
      return id;
    }
    // If it has been prepared nevertheless, it runs.
    if (!shared_.inbox.withdraw(id)) return id;
    shared_.admission.withdraw(arrival.request.client);
    shared_.woken.notify_one();
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
    const std::lock_guard held(shared_.lock);
    if (shared_.inbox.submit(id, message)) shared_.woken.notify_one();
  }

  // The cancel of one choice brings its message if it can; what a request has for its own is the
  // fallback.
  void cancel_choices(const CancelMessage& cancel) {
    Messages message;
    if (cancel.choice) std::ignore = within_memory([&] { message.emplace_back(); });
    SamplerFactory::Abandon abandon;
    {
      const std::lock_guard held(shared_.lock);
      abandon = shared_.inbox.cancel(cancel, message);
      shared_.woken.notify_one();
    }
    if (abandon) abandon();
  }

  // New requests see the pause at once.
  Result<void> begin_pause(const Pause& pause, Messages& message) {
    const std::lock_guard held(shared_.lock);
    MOTLEY_TRY_VOID(shared_.inbox.takes_requests());
    if (!pause.adapter.empty() && shared_.directory.find(pause.adapter) == nullptr)
      return Error(ErrorCode::not_found, cat("no adapter ", quote(pause.adapter)), "lora_name",
                   "name one that is loaded");
    MOTLEY_TRY_VOID(shared_.pauses.add(pause));
    std::get<PauseMessage>(message.front()).accepted_before = shared_.inbox.next_id();
    shared_.inbox.post(message);
    shared_.woken.notify_one();
    return {};
  }

  template <class WithDone>
  void post_or_answer(WithDone message) {
    Messages made;
    Result<void> posted = within_memory([&] { made.emplace_back().emplace<WithDone>(message); });
    if (posted.ok()) posted = within_memory([&] { return post(made); });
    if (!posted.ok()) message.done(std::move(posted));
  }

  Result<void> post(Messages& message) {
    const std::lock_guard held(shared_.lock);
    MOTLEY_TRY_VOID(shared_.inbox.takes_messages());
    shared_.inbox.post(message);
    shared_.woken.notify_one();
    return {};
  }

  Collaborators collaborators_;
  RequestBounds bounds_;
  std::uint64_t page_bytes_;  // of adapters' memory
  EngineShared shared_;
  EngineThread thread_;  // last: it uses what is shared
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
