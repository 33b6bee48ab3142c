#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "base/system/clock.h"
#include "base/system/watchdog.h"
#include "dist/launch_gate.h"
#include "engine/engine.h"
#include "engine/execution/runner_executor.h"
#include "engine/replica.h"
#include "engine/residency/pool_store.h"
#include "engine/sampling/sampler_maker.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/other_ranks.h"
#include "runner/runner.h"
#include "serving/engine_settings.h"
#include "serving/load_model.h"
#include "serving/memory_plan.h"
#include "tensor/device/metered_device.h"
#include "text/model_text.h"

namespace motley::serving {

// The error of memory that an option sizes: where there is no room, its advice names the option.
Error sized_by(Error error, std::string_view option);

// A model, its device and memory, and the engine over them.
class EngineStack {
 public:
  // The sources of a stack's parts.
  struct Source {
    // On that device; with several ranks, the shard of one of them. May adjust the settings' sizes
    // to the model.
    std::function<Result<std::unique_ptr<model::Model>>(
        tensor::Device& device, EngineSettings& settings, const ModelRank& rank)>
        model;
    // Empty: their folders.
    std::function<Result<lora::Adapter>(const engine::AdapterSpec&, const lora::BaseView&)> adapter;
    const text::ModelText* text = nullptr;  // null: requests cannot use grammars
    Watchdog* watchdog = nullptr;           // must outlive the stack
    // The open files of another replica's model, which this one reads too.
    std::shared_ptr<const tensor::Checkpoint> checkpoint = {};
    // Of all replicas; null: there are no others.
    std::shared_ptr<dist::LaunchGate> gate = {};
  };

  // Loads the model and the adapters; logs the backends and the memory.
  static Result<std::unique_ptr<EngineStack>> load(EngineSettings settings, const Source& source);

  engine::Replica& engine() { return *engine_; }
  const model::Model& model() const { return *model_; }
  const tensor::Device& device() const { return *device_; }
  const model::Config& config() const { return model_->config(); }

 private:
  EngineStack() = default;

  bool on_gpu() const;
  Machine machine(const ComputeSettings& compute) const;
  Result<void> load_models(EngineSettings& settings, const Source& source);
  // `available`, `memory`: the device's memory without the weights.
  Result<void> make_pools(const EngineSettings& settings, std::uint64_t available);
  // The pool in host memory for a GPU pool with these options.
  Result<void> make_host_pools(const EngineSettings& settings, lora::Pool::Options pool);
  Result<void> make_runner(const EngineSettings& settings, const tensor::MemoryInfo& memory);
  std::uint64_t pool_bytes() const;
  // Of snapshots on the host, of all ranks.
  std::uint64_t host_state_bytes() const;
  Result<void> make_executor(const EngineSettings& settings, const text::ModelText* text);
  // `before`: the device's memory when it was opened; `weights`: their bytes.
  Result<void> warm_up(const tensor::MemoryInfo& before, std::uint64_t weights);

  // In order of use.
  SteadyClock clock_;
  std::unique_ptr<tensor::MeteredDevice> device_;
  std::unique_ptr<runner::OtherRanks> others_;  // null: one rank
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<lora::Pool> host_pool_;  // of adapters on their way to a GPU
  std::unique_ptr<runner::Runner> runner_;
  std::unique_ptr<engine::SamplerMaker> samplers_;
  std::unique_ptr<engine::RunnerExecutor> executor_;
  std::unique_ptr<engine::PoolStore> store_;
  std::unique_ptr<engine::Replica> engine_;
};

// Loads those of the settings into an engine, several at a time.
Result<void> load_adapters(engine::Engine& engine, const EngineSettings& settings);

}  // namespace motley::serving
