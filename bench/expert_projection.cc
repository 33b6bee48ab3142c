// One projection of a 30B-A3B's experts on the CPU: K 2048 -> N 768, 128 experts, 8 for each token,
// uniform random routing; bf16 and int4 in groups of 128, of several layers, so that no cache holds
// them. Cases take turns, and memory's ceiling is measured in each round: bytes of weights read a
// second as a share of it (the median of the rounds' shares), operations a second, and the best
// time beside llama.cpp's.
//   build/release/bench/bench_expert_projection [threads [rounds]]

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/number_types.h"
#include "base/system/clock.h"
#include "base/system/thread_pool.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"
#include "memory_ceiling.h"

namespace motley::bench {
namespace {

constexpr std::int64_t inputs = 2048;
constexpr std::int64_t outputs = 768;
constexpr std::int64_t experts = 128;
constexpr std::int64_t experts_per_token = 8;
constexpr std::int64_t group = 128;
constexpr std::int64_t bytes_of_all_layers = std::int64_t{600} << 20;  // at least
constexpr int routings = 12;

std::uint32_t random_bits() {
  static std::uint64_t state = 88172645463325252U;
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<std::uint32_t>(state >> 33);
}

// Experts of several layers, one after the other.
struct Weights {
  std::vector<std::uint8_t> data;
  std::vector<float> scales;
  std::int64_t layers = 0;
  std::int64_t bytes_an_expert = 0;
  bool int4 = false;

  kernels::WeightView expert(std::int64_t layer, std::int64_t e) const {
    const std::int64_t first = (layer * experts + e) * outputs;
    kernels::WeightView view{.kind = kernels::WeightKind::bf16,
                             .data = data.data() + first * inputs * 2,
                             .out = outputs,
                             .in = inputs};
    if (int4) {
      view.kind = kernels::WeightKind::int4_group;
      view.data = data.data() + first * inputs / 2;
      view.scales = scales.data() + first * (inputs / group);
      view.block_columns = group;
    }
    return view;
  }
};

Weights make_weights(bool int4) {
  Weights weights;
  weights.int4 = int4;
  const std::int64_t bytes_a_layer = experts * outputs * inputs * (int4 ? 1 : 4) / 2;
  weights.layers = (bytes_of_all_layers + bytes_a_layer - 1) / bytes_a_layer;
  weights.data.resize(static_cast<std::size_t>(weights.layers * bytes_a_layer));
  weights.bytes_an_expert = bytes_a_layer / experts;
  if (int4) {
    for (std::uint8_t& byte : weights.data) byte = static_cast<std::uint8_t>(random_bits());
    weights.scales.resize(
        static_cast<std::size_t>(weights.layers * experts * outputs * (inputs / group)));
    for (float& scale : weights.scales) scale = 1e-3F * static_cast<float>(random_bits() % 100);
    weights.bytes_an_expert += outputs * (inputs / group) * 4;
  } else {
    for (std::size_t i = 0; i < weights.data.size(); i += 2) {
      const float value = static_cast<float>(random_bits() % 2001) * 1e-3F - 1.0F;
      const bf16 narrow = bf16::from(value);
      std::memcpy(&weights.data[i], &narrow, 2);
    }
  }
  return weights;
}

struct Anchor {
  std::int64_t tokens;
  // Milliseconds of llama.cpp (bf16, q4_K) and ik_llama.cpp (bf16, q4_K_R4).
  double bf16[2];
  double int4[2];
};
// cpu-anchors of the reference: another machine, 2 cores of Zen 4, 28-53 GB/s, 2026-11-21.
constexpr Anchor anchors[] = {{1, {0.71, 0.76}, {0.20, 0.19}},
                              {8, {4.9, 5.0}, {1.52, 1.17}},
                              {32, {11.9, 10.7}, {5.5, 3.0}},
                              {128, {28.8, 14.4}, {19.7, 9.2}},
                              {512, {105, 35.2}, {79.5, 33.9}}};

// One format at one number of tokens.
class Case {
 public:
  Case(const Weights& weights, const Anchor& anchor) : weights_(weights), anchor_(anchor) {
    const std::int64_t tokens = anchor.tokens;
    x_.resize(static_cast<std::size_t>(tokens * inputs));
    for (bf16& value : x_) value = bf16::from(static_cast<float>(random_bits() % 2001) * 1e-3F - 1);
    y_.resize(static_cast<std::size_t>(pairs() * outputs));
    for (Routing& routing : routings_) route(routing);
  }

  // Seconds of each of a round's runs.
  void run_round(ThreadPool& pool, double ceiling) {
    const int runs = anchor_.tokens <= 32 ? routings : 3;
    for (int run = 0; run < runs; ++run) {
      const Routing& routing = routings_[next_++ % routings];
      const auto start = std::chrono::steady_clock::now();
      multiply(routing, pool);
      const double time = seconds(std::chrono::steady_clock::now() - start);
      times_.push_back(time);
      const auto bytes = static_cast<double>(routing.experts_used * weights_.bytes_an_expert);
      shares_.push_back(bytes / time / ceiling);
      speeds_.push_back(bytes / time);
    }
  }
  void forget() {
    times_.clear();
    shares_.clear();
    speeds_.clear();
  }

  void print() {
    const double best = *std::ranges::min_element(times_);
    const double operations = 2.0 * static_cast<double>(pairs() * outputs * inputs);
    const double* const anchor = weights_.int4 ? anchor_.int4 : anchor_.bf16;
    std::printf(
        "%-9s %4d  best %8.3f ms, median %8.3f ms  %5.1f GB/s (%3.0f %% of DRAM)  %6.1f GFLOP/s  "
        "llama.cpp %6.2f ms (best x %.2f, median x %.2f), ik %5.2f ms\n",
        weights_.int4 ? "int4 g128" : "bf16", static_cast<int>(anchor_.tokens), best * 1e3,
        median(times_) * 1e3, median(speeds_) * 1e-9, 100 * median(shares_),
        operations / median(times_) * 1e-9, anchor[0], best * 1e3 / anchor[0],
        median(times_) * 1e3 / anchor[0], anchor[1]);
  }

 private:
  struct Routing {
    std::int64_t layer = 0;
    std::int64_t experts_used = 0;
    std::vector<std::vector<std::int32_t>> rows;  // of each expert
  };
  struct Task {
    std::int64_t expert;
    std::int64_t out_begin;
    std::int64_t first;  // row of y
  };

  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
  std::int64_t pairs() const { return anchor_.tokens * experts_per_token; }

  void route(Routing& routing) {
    routing.layer = random_bits() % static_cast<std::uint32_t>(weights_.layers);
    routing.rows.resize(experts);
    for (std::int64_t token = 0; token < anchor_.tokens; ++token) {
      std::vector<bool> taken(experts, false);
      for (int slot = 0; slot < experts_per_token;) {
        const std::size_t e = random_bits() % experts;
        if (taken[e]) continue;
        taken[e] = true;
        routing.rows[e].push_back(static_cast<std::int32_t>(token));
        ++slot;
      }
    }
    for (const auto& rows : routing.rows) routing.experts_used += rows.empty() ? 0 : 1;
  }

  void multiply(const Routing& routing, ThreadPool& pool) {
    const std::int64_t width = anchor_.tokens <= 8 ? 64 : 128;
    std::int64_t place = 0;
    tasks_.clear();
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto& rows = routing.rows[static_cast<std::size_t>(e)];
      if (rows.empty()) continue;
      for (std::int64_t o = 0; o < outputs; o += width) tasks_.push_back({e, o, place});
      place += static_cast<std::int64_t>(rows.size());
    }
    pool.for_tasks(static_cast<std::int64_t>(tasks_.size()), [&](std::int64_t at) {
      const Task& task = tasks_[static_cast<std::size_t>(at)];
      const auto& rows = routing.rows[static_cast<std::size_t>(task.expert)];
      kernels::cpu::gemm_tile({.x = x_.data(),
                               .x_type = DType::bf16,
                               .x_stride = inputs,
                               .x_rows = rows.data(),
                               .rows = static_cast<std::int64_t>(rows.size()),
                               .w = weights_.expert(routing.layer, task.expert),
                               .out_begin = task.out_begin,
                               .out_end = std::min(task.out_begin + width, outputs),
                               .y = y_.data() + task.first * outputs + task.out_begin,
                               .y_stride = outputs,
                               .exact = false});
    });
  }

  const Weights& weights_;
  const Anchor& anchor_;
  std::vector<bf16> x_;
  std::vector<float> y_;
  std::vector<Routing> routings_ = std::vector<Routing>(routings);
  std::vector<Task> tasks_;
  std::size_t next_ = 0;
  std::vector<double> times_;
  std::vector<double> shares_;
  std::vector<double> speeds_;
};

int number_at(int argc, char** argv, int at, int otherwise) {
  int number = otherwise;
  if (argc > at) {
    const std::string_view text = argv[at];
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

int run(int argc, char** argv) {
  ThreadPool pool({.threads = number_at(argc, argv, 1, 0)});
  const int rounds = number_at(argc, argv, 2, 9);
  MemoryCeiling memory(pool);
  const auto set = kernels::cpu::name(kernels::cpu::available_instruction_sets().back());
  std::printf("%d threads, %.*s, DRAM reads %.1f GB/s (best of 9 over 1 GiB), %d rounds\n",
              pool.size(), static_cast<int>(set.size()), set.data(), memory.measure(9) * 1e-9,
              rounds);
  std::printf(
      "llama.cpp and ik: the same shape on another machine (2 cores of Zen 4, 28-53 GB/s)\n\n");
  const Weights all[] = {make_weights(false), make_weights(true)};
  std::vector<Case> cases;
  for (const Weights& weights : all) {
    for (const Anchor& anchor : anchors) cases.emplace_back(weights, anchor);
  }
  for (int round = 0; round <= rounds; ++round) {
    for (Case& each : cases) {
      each.run_round(pool, memory.measure(2));
      // The first round warms up.
      if (round == 0) each.forget();
    }
  }
  for (Case& each : cases) each.print();
  return 0;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) { return motley::bench::run(argc, argv); }
