// What the engine's scheduling costs a step of decodes beside the model: an executor that answers
// at once, by the number of sequences that run and of requests that wait behind them, for their
// turn or each for an adapter of its own.
//   build/release/bench/bench_engine_steps

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/cat.h"
#include "base/system/clock.h"
#include "engine/execution/executor.h"
#include "engine/residency/adapter_store.h"
#include "engine/scheduling/scheduler.h"
#include "engine/test_world.h"

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
  Result<void> takes(const lora::Mix&) const override { return {}; }
  Result<void> copy_page(std::int32_t, std::int32_t) override { return {}; }
  Result<void> copy_state(std::int32_t, std::int32_t) override { return {}; }
  Result<void> save_state(std::int32_t, std::int32_t) override { return {}; }
  Result<void> restore_state(std::int32_t, std::int32_t) override { return {}; }
  Result<void> step(std::span<const runner::Chunk>, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    meanwhile();
    for (const ChunkOutput& output : outputs) {
      for (Draw& draw : output.draws) draw.token = static_cast<std::int32_t>(++drawn_ % 1000);
    }
    return {};
  }
  Result<void> release_adapters() override { return {}; }

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

class NoSink final : public EventSink {
 public:
  void take(Event) override {}
};

void submit(Scheduler& scheduler, std::int64_t i, std::vector<lora::ScaledAdapter> adapters) {
  static const auto sink = std::make_shared<NoSink>();
  Request request{.adapters = std::move(adapters), .max_tokens = sequence_tokens};
  for (std::int64_t t = 0; t < prompt_tokens; ++t)
    request.tokens.push_back(static_cast<std::int32_t>((i + t) % 1000));
  scheduler.submit({.id = static_cast<RequestId>(i + 1),
                    .request = std::move(request),
                    .sink = sink,
                    .sampler = std::make_unique<NoSampler>(),
                    .accepted = SteadyClock().now()});
}

void measure(benchmark::State& state, Scheduler& scheduler) {
  for (int i = 0; i < 100; ++i) scheduler.step().value();
  for ([[maybe_unused]] auto iteration : state) scheduler.step().value();
  scheduler.cancel_all();
}

void decode(benchmark::State& state) {
  const std::int64_t running = state.range(0);
  const std::int64_t waiting = state.range(1);
  NoModel model(running);
  NoAdapters adapters;
  const SteadyClock clock;
  Scheduler scheduler(&model, &adapters, &clock, {.prefix_cache = true});
  for (std::int64_t i = 0; i < running + waiting; ++i) submit(scheduler, i, {});
  measure(state, scheduler);
}

// Every place is taken by an adapter that one sequence runs with, and patience lasts for ever.
void decode_before_wants(benchmark::State& state) {
  const std::int64_t running = state.range(0);
  const std::int64_t waiting = state.range(1);
  const std::int64_t adapters = state.range(2);
  NoModel model(running);
  test::FakeStore store(static_cast<std::uint64_t>(running));
  const SteadyClock clock;
  Scheduler scheduler(&model, &store, &clock,
                      {.adapter_patience = std::chrono::hours(100), .prefix_cache = true});
  for (std::int64_t i = 0; i < adapters; ++i) {
    const std::string name = cat("adapter-", i);
    store.put(name, 1, static_cast<std::uint32_t>(i));
    scheduler.residency().load({.name = name, .path = name}, false,
                               [](const Result<void>& done) { done.value(); });
    scheduler.residency().collect();
  }
  for (std::int64_t i = 0; i < running + waiting; ++i) {
    submit(scheduler, i, {{cat("adapter-", i), 1}});
    if (i + 1 == running) scheduler.step().value();
  }
  measure(state, scheduler);
}

BENCHMARK(decode)
    ->ArgNames({"running", "waiting"})
    ->Args({1, 0})
    ->Args({64, 0})
    ->Args({64, 1000})
    ->Args({256, 0})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(2000);
BENCHMARK(decode_before_wants)
    ->ArgNames({"running", "waiting", "adapters"})
    ->Args({64, 0, 64})
    ->Args({64, 0, 1000})
    ->Args({64, 500, 1000})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(500);

}  // namespace
}  // namespace motley::engine

BENCHMARK_MAIN();
