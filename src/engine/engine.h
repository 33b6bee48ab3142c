#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/system/clock.h"
#include "engine/events.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "lora/files/load.h"

namespace motley {
class Watchdog;
}

namespace motley::engine {

class AdapterStore;
class Executor;
class SamplerFactory;

// Where an adapter comes from.
struct AdapterSpec {
  std::string name;
  std::filesystem::path path;
  bool pinned = false;  // stays ready whatever happens
  lora::LoadOptions load = {};
};

struct EngineOptions {
  // Requests that may wait; more are refused with `busy`. 0: a request that finds no place in the
  // batch is refused.
  std::int64_t max_queue = 1024;
  // Requests that wait for an adapter let others pass until all of them have waited, together, for
  // this long times the sequences that run with the adapter that would have to make room.
  Duration adapter_patience = std::chrono::seconds(1);
  bool prefix_cache = true;
  Watchdog* watchdog = nullptr;  // of steps; outlives the engine
  // Checks all invariants after every step.
  bool validate =
#ifdef MOTLEY_DEBUG
      true;
#else
      false;
#endif
};

// Serves requests: many sequences in each step, each under its own mix of adapters. All work is
// done on one thread of its own, which owns everything; the calls below may come from any thread
// and hand over messages.
class Engine {
 public:
  using Options = EngineOptions;
  // Called once, on the engine's thread: it must not block.
  using Done = std::function<void(Result<void>)>;

  // They outlive the engine.
  struct Collaborators {
    Executor* executor = nullptr;
    SamplerFactory* samplers = nullptr;
    AdapterStore* adapters = nullptr;
    const Clock* clock = nullptr;
  };

  static std::unique_ptr<Engine> create(const Collaborators& collaborators, const Options& options);
  // Cancels what runs, as shutdown(Drain::cancel) does.
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Refused at once: `invalid_argument` for what is out of range, `not_found` for an unknown
  // adapter, `too_long` for what can never fit, `busy` while the queue is full, `unavailable` while
  // shutting down. What is accepted is heard of through the sink until its last call.
  virtual Result<RequestId> submit(Request request, std::shared_ptr<RequestSink> sink) = 0;

  // The request, or one choice of it, ends before the next step begins: its choices finish as
  // `cancelled`. Nothing happens where it has ended already.
  virtual void cancel(RequestId request) = 0;
  virtual void cancel(RequestId request, int choice) = 0;

  // Reads and checks the adapter beside running steps; once done it can be named. A name that is
  // taken is an error unless `replace`; then requests that begin later see the new content only.
  virtual void load_adapter(AdapterSpec spec, bool replace, Done done) = 0;
  // No request can name it from now on; done when every request that was accepted with it has
  // ended.
  virtual void unload_adapter(std::string name, Done done) = 0;

  // In order of name: those that a request may name now.
  virtual std::vector<AdapterInfo> adapters() const = 0;
  virtual Stats stats() const = 0;
  // The longest sequence, prompt and output together, that can be served.
  virtual std::int64_t max_sequence_tokens() const = 0;

  enum class Drain : std::uint8_t { finish, cancel };
  // New requests are refused from now on; returns when all others have ended, finished or
  // cancelled. A second call with `cancel` cuts a first one short.
  virtual void shutdown(Drain drain) = 0;
  // Why the engine has stopped by itself, if it has: a device that failed. All requests have
  // failed by then, and the process should end.
  virtual Result<void> health() const = 0;

 protected:
  Engine() = default;
};

}  // namespace motley::engine
