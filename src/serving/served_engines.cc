#include "serving/served_engines.h"

#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "dist/launch_gate.h"
#include "serving/devices.h"

namespace motley::serving {
namespace {

// Its part of the places for waiting requests.
std::int64_t queue_of_replica(std::int64_t max_queue, int replica, int replicas) {
  return max_queue / replicas + (replica < max_queue % replicas ? 1 : 0);
}

}  // namespace

Result<std::unique_ptr<ServedEngines>> ServedEngines::load(const EngineSettings& settings,
                                                           EngineStack::Source source) {
  std::unique_ptr<ServedEngines> served(new ServedEngines);
  const int replicas = settings.compute.replicas;
  if (replicas == 1) {
    MOTLEY_TRY(std::unique_ptr<EngineStack> stack, EngineStack::load(settings, source));
    served->stacks_.push_back(std::move(stack));
    return served;
  }
  source.gate = std::make_shared<dist::LaunchGate>();
  std::vector<engine::Replica*> engines;
  for (int i = 0; i < replicas; ++i) {
    EngineSettings own = settings;
    own.adapters.clear();
    own.compute = settings_of_replica(settings.compute, i);
    own.max_queue = queue_of_replica(settings.max_queue, i, replicas);
    auto loaded = EngineStack::load(std::move(own), source);
    if (!loaded.ok()) return std::move(loaded).error().within(cat("replica ", i));
    EngineStack& stack = *served->stacks_.emplace_back(*std::move(loaded));
    log::info("engine.replica", {{"replica", i}, {"device", stack.device().description()}});
    engines.push_back(&stack.engine());
    if (stack.device().id().kind == tensor::DeviceKind::cpu)
      source.checkpoint = stack.model().shared_checkpoint();
  }
  served->replicas_ = std::make_unique<engine::ReplicatedEngine>(std::move(engines));
  MOTLEY_TRY_VOID(load_adapters(*served->replicas_, settings));
  return served;
}

engine::Engine& ServedEngines::engine() {
  if (replicas_ != nullptr) return *replicas_;
  return stacks_.front()->engine();
}

}  // namespace motley::serving
