// What the engine's scheduling costs a step of decodes beside the model: an executor that answers
// at once, by the number of sequences that run and of requests that wait behind them.
//   build/release/bench/bench_engine_steps

#include <algorithm>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "engine/adapter_store.h"
#include "engine/executor.h"
#include "engine/scheduler.h"

namespace motley::engine {
namespace {

constexpr std::int64_t sequence_tokens = 4096;
constexpr std::int64_t prompt_tokens = 32;

class NoSampler final : public Sampler {
 public:
  std::unique_ptr<Sampler> fork(int) const override { return std::make_unique<NoSampler>(); }
};

class NoModel final : public Executor {
 public:
  explicit NoModel(std::int64_t sequences) : sequences_(sequences) {}

  Limits limits() const override {
    return {.rows = 2 * sequences_ + 512,
            .sequences = sequences_,
            .sequence_tokens = sequence_tokens,
            .pages = (sequences_ + 1) * sequence_tokens / 16,
            .page_tokens = 16,
            .vocabulary = 1000};
  }
  void prepare(const Request&, Prepared done) override {
    done(std::unique_ptr<Sampler>(std::make_unique<NoSampler>()));
  }
  Result<void> takes(const lora::Mix&) const override { return {}; }
  Result<void> copy_page(std::int32_t, std::int32_t) override { return {}; }
  Result<void> step(std::span<StepChunk> chunks, FunctionRef<void()> meanwhile) override {
    meanwhile();
    for (const StepChunk& chunk : chunks) {
      for (Draw& draw : chunk.draws) draw.token = static_cast<std::int32_t>(++drawn_ % 1000);
    }
    return {};
  }
  Result<void> let_go() override { return {}; }

 private:
  std::int64_t sequences_;
  std::uint64_t drawn_ = 0;
};

class NoAdapters final : public AdapterStore {
 public:
  void set_wake(std::function<void()>) override {}
  void begin(Job) override {}
  std::optional<Done> take_done() override { return {}; }
  lora::Handle acquire(const std::string&, lora::ContentVersion) override { return {}; }
  Usage usage() const override { return {}; }
};

class NoSink final : public RequestSink {
 public:
  void started(const StartEvent&) override {}
  void prompt_scored(const PromptEvent&) override {}
  void token(const TokenEvent&) override {}
  void choice_finished(const ChoiceEvent&) override {}
  void finished(const Usage&) override {}
  void failed(const Error&) override {}
};

void decode(benchmark::State& state) {
  const std::int64_t running = state.range(0);
  const std::int64_t waiting = state.range(1);
  NoModel model(running);
  NoAdapters adapters;
  const SteadyClock clock;
  Scheduler scheduler(&model, &adapters, &clock, {.prefix_cache = true});
  const auto sink = std::make_shared<NoSink>();
  for (std::int64_t i = 0; i < running + waiting; ++i) {
    Request request{.max_tokens = sequence_tokens};
    for (std::int64_t t = 0; t < prompt_tokens; ++t)
      request.tokens.push_back(static_cast<std::int32_t>((i + t) % 1000));
    scheduler.submit({.id = static_cast<RequestId>(i + 1),
                      .request = std::move(request),
                      .sink = sink,
                      .sampler = std::make_unique<NoSampler>(),
                      .accepted = clock.now()});
  }
  for (int i = 0; i < 100; ++i) scheduler.step().value();
  for ([[maybe_unused]] auto iteration : state) scheduler.step().value();
  scheduler.cancel_all();
}

BENCHMARK(decode)
    ->ArgNames({"running", "waiting"})
    ->Args({1, 0})
    ->Args({64, 0})
    ->Args({64, 1000})
    ->Args({256, 0})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(2000);

}  // namespace
}  // namespace motley::engine

BENCHMARK_MAIN();
