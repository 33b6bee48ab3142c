#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/requests/request.h"

namespace motley::engine {

// What placement asks of an engine for each request.
struct ReplicaStatus {
  bool serves = true;                     // false: it has stopped, or is stopping
  std::int64_t sequences = 0;             // that run, wait, or are about to
  std::vector<bool> ready_adapters = {};  // of those asked about: whether steps can read it
};

// An engine that can be one of several behind one front (ReplicatedEngine).
class Replica : public Engine {
 public:
  static std::unique_ptr<Replica> create(const Collaborators& collaborators,
                                         const Options& options);

  // From what the engine has published; waits for no step.
  virtual ReplicaStatus status(std::span<const lora::ScaledAdapter> adapters) const = 0;

  // load_adapter() in two steps, so that several engines load an adapter all or none. Done when it
  // has been read and checked; if that went well, it is held until settle_adapter() ends that.
  virtual void hold_adapter(AdapterSpec spec, bool replace, Done done) = 0;
  enum class Hold : std::uint8_t {
    enter,  // requests can name it, or use its new content, from now on
    drop,   // as if it had never been read
  };
  // What settling takes, made before an adapter is held.
  class Settlement {
   public:
    virtual ~Settlement() = default;
  };
  virtual std::unique_ptr<Settlement> settlement_of(std::string name, Done done) = 0;
  // Takes no memory, and fails on an engine only that has stopped: so an adapter that all engines
  // hold enters all that serve.
  virtual void settle_adapter(std::unique_ptr<Settlement> settlement, Hold hold) = 0;

 protected:
  Replica() = default;
};

}  // namespace motley::engine
