// What a call of the thread pool costs beside its work: an empty body, by the number of threads.
//   build/release/bench/bench_thread_pool

#include "base/system/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/system/clock.h"

namespace motley {
namespace {

// Medians beside the mean: one call that the system interrupts costs a thousand others.
void report(benchmark::State& state, std::vector<double>& microseconds) {
  if (microseconds.empty()) return;
  std::sort(microseconds.begin(), microseconds.end());
  const std::size_t last = microseconds.size() - 1;
  state.counters["median_us"] = microseconds[last / 2];
  state.counters["p99_us"] = microseconds[last * 99 / 100];
}

void measure(benchmark::State& state, ThreadPool& pool, Duration idle) {
  std::vector<double> microseconds;
  for ([[maybe_unused]] auto iteration : state) {
    if (idle > Duration::zero()) std::this_thread::sleep_for(idle);
    const auto start = std::chrono::steady_clock::now();
    pool.run([](int rank) { benchmark::DoNotOptimize(rank); });
    const double time = seconds(std::chrono::steady_clock::now() - start);
    state.SetIterationTime(time);
    microseconds.push_back(time * 1e6);
  }
  report(state, microseconds);
}

// Workers still spin when the next call comes.
void back_to_back(benchmark::State& state) {
  ThreadPool pool({.threads = static_cast<int>(state.range(0))});
  measure(state, pool, Duration::zero());
}

// Workers sleep and must be woken.
void after_one_millisecond_of_idleness(benchmark::State& state) {
  ThreadPool pool({.threads = static_cast<int>(state.range(0))});
  measure(state, pool, std::chrono::milliseconds(1));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("threads")->Arg(1)->Arg(2)->Arg(4)->UseManualTime()->Unit(
      benchmark::kMicrosecond);
}

BENCHMARK(back_to_back)->Apply(sizes)->Iterations(100'000);
BENCHMARK(after_one_millisecond_of_idleness)->Apply(sizes)->Iterations(500);

}  // namespace
}  // namespace motley

BENCHMARK_MAIN();
