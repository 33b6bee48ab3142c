#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/system/clock.h"
#include "engine/requests/adapter_spec.h"
#include "engine/requests/events.h"
#include "engine/requests/pauses.h"
#include "engine/requests/request.h"
#include "engine/requests/routed_experts.h"
#include "engine/stats/stats.h"

namespace motley {
class Watchdog;
}

namespace motley::engine {

class AdapterStore;
class Executor;
class SamplerFactory;

inline constexpr std::int64_t default_snapshot_interval = 4096;

struct EngineOptions {
  // The limit of waiting requests; more are refused with `busy`. 0: requests that find no place in
  // the batch are refused.
  std::int64_t max_queue = 1024;
  // An adapter in use closes for requests that wait for other adapters once they have waited,
  // together, for this long times the number of sequences that run with it.
  Duration adapter_patience = std::chrono::seconds(1);
  bool prefix_cache = true;
  // Of a model that keeps states: positions of a sequence after which its state is saved anyway; 0:
  // never.
  std::int64_t snapshot_interval = default_snapshot_interval;
  // The limit of adapters by name, those being loaded included. Each takes about 1 KiB, and a line
  // of lists of models.
  std::size_t max_adapters = 10'000;
  Watchdog* watchdog = nullptr;  // of steps; must outlive the engine
  // Checks all invariants after every step.
  bool validate =
#ifdef MOTLEY_DEBUG
      true;
#else
      false;
#endif
};

// Serves requests: many sequences in each step, each with its own mix of adapters. All work runs on
// one thread, which owns all state; the calls below send it messages and are thread-safe.
class Engine {
 public:
  using Options = EngineOptions;
  // Called once, on the engine's thread; must not block.
  using Done = std::function<void(Result<void>)>;

  // Must outlive the engine.
  struct Collaborators {
    Executor* executor = nullptr;
    SamplerFactory* samplers = nullptr;
    AdapterStore* adapters = nullptr;
    const Clock* clock = nullptr;
  };

  static std::unique_ptr<Engine> create(const Collaborators& collaborators, const Options& options);
  // Cancels all requests, as shutdown(Drain::cancel) does.
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Refuses at once: `invalid_argument` for values out of range, `not_found` for an unknown
  // adapter, `too_long` for what can never fit, `busy` if the queue is full, `unavailable` while
  // shutting down. An accepted request reports through the sink until its last call.
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;

  // Ends the request, or one choice of it, before the next step begins: its choices finish as
  // `cancelled`. Does nothing if it has ended. `kept`: the choice's first tokens, which a next
  // prompt may repeat; nothing: all of them.
  virtual void cancel(RequestId request) = 0;
  virtual void cancel(RequestId request, int choice, std::optional<std::int64_t> kept) = 0;
  // As cancel(), but its choices finish as `aborted`: the client gets what they have.
  virtual void abort(RequestId request) = 0;

  // From now on requests are refused, or queue, as the pause says. Done when all that were accepted
  // before have ended, or stand still; `conflict` if the pause ends or changes before that. A pause
  // replaces an earlier one of the same adapter, or of all. Adapters can be loaded in a pause, and
  // shutdown() ends it.
  virtual void pause(Pause pause, Done done) = 0;
  // Ends the pause of this adapter; empty: that of all, and those of adapters remain. Done when
  // requests run again; fine if nothing is paused.
  virtual void resume(std::string adapter, Done done) = 0;
  virtual Pauses paused() const = 0;
  // No later request finds what earlier ones have computed: pages and snapshots of states.
  // `preempts`: running sequences are preempted, and compute all their tokens again.
  virtual void reset_prefix_cache(bool preempts, Done done) = 0;

  // Reads and checks the adapter while steps run; when done, requests can name it. A name that is
  // taken is an error unless `replace`: then requests that begin later use the new content.
  virtual void load_adapter(AdapterSpec spec, bool replace, Done done) = 0;
  // From now on no request can name it; done when every accepted request with it has ended.
  virtual void unload_adapter(std::string name, Done done) = 0;

  // The adapters that a request may name now, in order of name.
  virtual std::vector<AdapterInfo> adapters() const = 0;
  // One of them, without a look at the others; nothing if no request may name it now.
  virtual std::optional<AdapterInfo> adapter(std::string_view name) const;
  virtual Stats stats() const = 0;
  // The longest sequence, prompt and output together, that can be served.
  virtual std::int64_t max_sequence_tokens() const = 0;
  // Whether a request begins only where the state of an earlier one was saved, so that
  // Request::conversation_tokens matters.
  virtual bool keeps_states() const { return false; }
  // Of the experts that requests may ask for (Request::routed_experts_from).
  virtual RoutedExpertsSizes routed_experts() const { return {}; }

  enum class Drain : std::uint8_t { finish, cancel };
  // Refuses new requests from now on; returns when all others have finished or been cancelled. A
  // second call with `cancel` cuts a first one short.
  virtual void shutdown(Drain drain) = 0;
  // The error that stopped the engine, if any: a failed device. All requests have failed by then,
  // and the process should exit.
  virtual Result<void> health() const = 0;

  // One of several engines behind this one that has stopped, and why; the others go on.
  struct LostReplica {
    int replica = 0;
    Error error;
  };
  // In order; empty for a single engine.
  virtual std::vector<LostReplica> lost_replicas() const { return {}; }

 protected:
  Engine() = default;
};

}  // namespace motley::engine
