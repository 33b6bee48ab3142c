#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/system/clock.h"
#include "base/test_waits.h"
#include "engine/engine.h"
#include "engine/execution/runner_executor.h"
#include "engine/replica.h"
#include "engine/residency/pool_store.h"
#include "engine/sampling/sampler_maker.h"
#include "score/golden_model.h"

// An engine over a model of tests/goldens, on the device that the model is on.
namespace motley::engine_tests {

// What came of one request: tokens and log-probabilities by choice, or the error.
class Answer final : public engine::EventSink {
 public:
  explicit Answer(int choices = 1)
      : tokens(static_cast<std::size_t>(choices)),
        logprobs(tokens.size()),
        routed(tokens.size()),
        reasons(tokens.size()) {}

  void take(engine::Event event) override {
    monitor_.change([&] {
      closed_ = engine::is_last(event);
      std::visit([this](auto& each) { keep(each); }, event);
    });
  }

  const Answer& wait() const {
    monitor_.wait("the request ends", [this] { return closed_; });
    return *this;
  }
  bool closed() const {
    return monitor_.look([this] { return closed_; });
  }

  // Read once it is closed.
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<float>> logprobs;
  std::vector<std::uint8_t> routed_prompt;
  std::vector<std::vector<std::uint8_t>> routed;  // of each choice's own tokens
  std::vector<std::optional<engine::FinishReason>> reasons;
  std::vector<float> prompt_logprobs;
  std::int64_t cached_tokens = 0;
  std::optional<Error> error;

 private:
  void keep(const engine::StartEvent& event) { cached_tokens = event.cached_tokens; }
  void keep(const engine::VersionEvent&) {}
  void keep(const engine::PromptEvent& event) {
    prompt_logprobs.insert(prompt_logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  }
  void keep(const engine::RoutedExpertsEvent& event) {
    std::vector<std::uint8_t>& ids =
        event.choice ? routed[static_cast<std::size_t>(*event.choice)] : routed_prompt;
    ids.insert(ids.end(), event.ids.begin(), event.ids.end());
  }
  void keep(const engine::TokenEvent& event) {
    const auto choice = static_cast<std::size_t>(event.choice);
    tokens[choice].push_back(event.id);
    logprobs[choice].push_back(event.logprob);
  }
  void keep(const engine::ChoiceEvent& event) {
    reasons[static_cast<std::size_t>(event.choice)] = event.reason;
  }
  void keep(const engine::Usage&) {}
  void keep(Error& why) { error = std::move(why); }

  test::Monitor monitor_;
  bool closed_ = false;
};

class GoldenEngine {
 public:
  struct Options {
    std::int64_t max_rows = 64;
    std::int64_t max_sequences = 32;
    std::int64_t max_tokens = 64;
    std::int64_t pages = 256;
    // For models that keep states.
    std::int64_t state_slots = 16;
    std::int64_t snapshots = 16;
    std::int64_t host_snapshots = 0;
    std::int64_t snapshot_interval = engine::default_snapshot_interval;
    std::uint64_t adapter_bytes = std::uint64_t{16} << 20;
    bool prefix_cache = true;
    bool graphs = true;  // on a GPU
    // As a server begins: what steps need is captured before them and beside them, not in them.
    bool warm = false;
    // Adapters that leave the pool are kept in the host's memory; nothing: on a GPU.
    std::optional<bool> host_tier = {};
    bool routed_experts = false;  // are kept for requests that ask
  };

  GoldenEngine(score_tests::GoldenModel& golden, const Options& options);
  ~GoldenEngine() { engine_.reset(); }

  engine::Replica& engine() { return *engine_; }
  lora::Pool& pool() { return *pool_; }
  // How often an adapter's files were read.
  int reads() const { return reads_; }
  runner::Runner& runner() { return *runner_; }
  std::filesystem::path path_of(const std::string& adapter) const;
  // Every adapter that a case of the golden names, in the way the case says.
  void load_adapters();
  Result<void> load(const std::string& adapter, bool replace, const lora::LoadOptions& load = {});
  Result<void> unload(const std::string& adapter);

  std::shared_ptr<Answer> submit(engine::Request request);

 private:
  score_tests::GoldenModel* golden_;
  SteadyClock clock_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<lora::Pool> host_pool_;
  std::unique_ptr<runner::Runner> runner_;
  std::unique_ptr<engine::SamplerMaker> samplers_;
  std::unique_ptr<engine::RunnerExecutor> executor_;
  std::atomic<int> reads_{0};
  std::unique_ptr<engine::PoolStore> store_;
  std::unique_ptr<engine::Replica> engine_;
};

// The greedy continuation of a case.
engine::Request greedy_request(const json::Value& golden_case);
std::vector<lora::ScaledAdapter> adapters_of(const json::Value& golden_case);

}  // namespace motley::engine_tests
