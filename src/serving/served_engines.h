#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/replicas/replicated_engine.h"
#include "serving/engine_settings.h"
#include "serving/engine_stack.h"

namespace motley::serving {

// What `serve` runs: one engine, or the replicas of --dp behind one.
class ServedEngines {
 public:
  // One after the other, with the devices of choose_devices(). On the CPU replicas read the same
  // mapped files.
  static Result<std::unique_ptr<ServedEngines>> load(const EngineSettings& settings,
                                                     EngineStack::Source source);

  engine::Engine& engine();
  const model::Config& config() const { return stacks_.front()->config(); }
  // Of the first engine; the others are alike.
  const EngineStack& stack() const { return *stacks_.front(); }

 private:
  ServedEngines() = default;

  std::vector<std::unique_ptr<EngineStack>> stacks_;
  std::unique_ptr<engine::ReplicatedEngine> replicas_;  // null: one engine
};

}  // namespace motley::serving
