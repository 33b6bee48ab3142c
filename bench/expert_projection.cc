// One projection of a 30B-A3B's experts on the CPU: K 2048 -> N 768, 128 experts, 8 for each token,
// uniform random routing; weights that no cache holds, bf16 and int4 in groups of 128. Beside each
// best time: bytes of weights read a second, as a share of what this machine's DRAM gave just
// before, and operations a second.
//   build/release/bench/bench_expert_projection [threads]

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <immintrin.h>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/number_types.h"
#include "base/thread_pool.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"

namespace motley {
namespace {

constexpr std::int64_t inputs = 2048;
constexpr std::int64_t outputs = 768;
constexpr std::int64_t experts = 128;
constexpr std::int64_t experts_per_token = 8;
constexpr std::int64_t group = 128;

std::uint32_t random_bits() {
  static std::uint64_t state = 88172645463325252U;
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<std::uint32_t>(state >> 33);
}

// Seconds of a run: on a machine that others use too, the median says how busy they were.
struct Times {
  double best;
  double median;
};
template <class Body>
Times time_of(int runs, const Body& body) {
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    body();
    times.push_back(seconds(std::chrono::steady_clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

// What all threads together read from memory in a second: each one its own stretch, in order.
double dram_bytes_a_second(ThreadPool& pool) {
  constexpr std::int64_t bytes = std::int64_t{1} << 30;
  std::vector<std::uint64_t> memory(bytes / 8, 1);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.size()) * 8);
  double best = 0;
  for (int run = 0; run < 9; ++run) {
    const auto start = std::chrono::steady_clock::now();
    pool.for_ranges(bytes / 64, 1, [&](std::int64_t begin, std::int64_t end) {
      const auto* line = reinterpret_cast<const __m128i*>(memory.data()) + begin * 4;
      __m128i a = _mm_setzero_si128();
      __m128i b = a;
      __m128i c = a;
      __m128i d = a;
      for (std::int64_t i = begin; i < end; ++i, line += 4) {
        a = _mm_add_epi64(a, _mm_loadu_si128(line));
        b = _mm_add_epi64(b, _mm_loadu_si128(line + 1));
        c = _mm_add_epi64(c, _mm_loadu_si128(line + 2));
        d = _mm_add_epi64(d, _mm_loadu_si128(line + 3));
      }
      const __m128i sum = _mm_add_epi64(_mm_add_epi64(a, b), _mm_add_epi64(c, d));
      // Written somewhere, so that the loop stays.
      _mm_storeu_si128(reinterpret_cast<__m128i*>(&sums[0]), sum);
    });
    best = std::max(best,
                    static_cast<double>(bytes) / seconds(std::chrono::steady_clock::now() - start));
  }
  return best;
}

struct Weights {
  std::vector<std::uint8_t> data;
  std::vector<float> scales;
  std::int64_t bytes_an_expert = 0;
  bool int4 = false;

  kernels::WeightView expert(std::int64_t e) const {
    kernels::WeightView view{.kind = kernels::WeightKind::bf16,
                             .data = data.data() + e * outputs * inputs * 2,
                             .out = outputs,
                             .in = inputs};
    if (int4) {
      view.kind = kernels::WeightKind::int4_group;
      view.data = data.data() + e * outputs * inputs / 2;
      view.scales = scales.data() + e * outputs * (inputs / group);
      view.block_columns = group;
    }
    return view;
  }
};

Weights make_weights(bool int4) {
  Weights weights;
  weights.int4 = int4;
  weights.data.resize(static_cast<std::size_t>(experts * outputs * inputs * (int4 ? 1 : 4) / 2));
  weights.bytes_an_expert = static_cast<std::int64_t>(weights.data.size()) / experts;
  if (int4) {
    for (std::uint8_t& byte : weights.data) byte = static_cast<std::uint8_t>(random_bits());
    weights.scales.resize(static_cast<std::size_t>(experts * outputs * (inputs / group)));
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
  std::string_view bf16;
  std::string_view int4;
};
// cpu-anchors of the reference: another machine, 2 cores of Zen 4, 28-53 GB/s, 2026-11-21.
constexpr Anchor anchors[] = {
    {1, "llama.cpp 0.71 ms, ik 0.76 ms", "llama.cpp q4_K 0.20 ms, ik q4_K_R4 0.19 ms"},
    {8, "llama.cpp 4.9 ms, ik 5.0 ms", "llama.cpp q4_K 1.52 ms, ik q4_K_R4 1.17 ms"},
    {32, "llama.cpp 11.9 ms, ik 10.7 ms", "llama.cpp q4_K 5.5 ms, ik q4_K_R4 3.0 ms"},
    {128, "llama.cpp 28.8 ms, ik 14.4 ms", "llama.cpp q4_K 19.7 ms, ik q4_K_R4 9.2 ms"},
    {512, "llama.cpp 105 ms, ik 35.2 ms", "llama.cpp q4_K 79.5 ms, ik q4_K_R4 33.9 ms"}};

struct Task {
  std::int64_t expert;
  std::int64_t out_begin;
};

void measure(const Weights& weights, const Anchor& anchor, ThreadPool& pool, double ceiling) {
  const std::int64_t tokens = anchor.tokens;
  std::vector<bf16> x(static_cast<std::size_t>(tokens * inputs));
  for (bf16& value : x) value = bf16::from(static_cast<float>(random_bits() % 2001) * 1e-3F - 1);
  const std::int64_t pairs = tokens * experts_per_token;
  std::vector<float> y(static_cast<std::size_t>(pairs * outputs));

  // Several routings, so that runs in a row do not find their experts in a cache.
  constexpr int routings = 15;
  std::vector<std::vector<std::vector<std::int32_t>>> rows_of(routings);
  double experts_used = 0;
  for (auto& routing : rows_of) {
    routing.resize(experts);
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<bool> taken(experts, false);
      for (int slot = 0; slot < experts_per_token;) {
        const std::size_t e = random_bits() % experts;
        if (taken[e]) continue;
        taken[e] = true;
        routing[e].push_back(static_cast<std::int32_t>(token));
        ++slot;
      }
    }
    for (const auto& rows : routing) experts_used += rows.empty() ? 0 : 1;
  }
  experts_used /= routings;

  int run = 0;
  std::vector<Task> tasks;
  const auto once = [&] {
    const auto& routing = rows_of[static_cast<std::size_t>(run++ % routings)];
    std::vector<std::int64_t> first(experts);
    std::int64_t place = 0;
    const std::int64_t width = tokens <= 8 ? 64 : 128;
    tasks.clear();
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto& rows = routing[static_cast<std::size_t>(e)];
      first[static_cast<std::size_t>(e)] = place;
      place += static_cast<std::int64_t>(rows.size());
      if (rows.empty()) continue;
      for (std::int64_t o = 0; o < outputs; o += width) tasks.push_back({e, o});
    }
    pool.for_tasks(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t at) {
      const Task& task = tasks[static_cast<std::size_t>(at)];
      const auto e = static_cast<std::size_t>(task.expert);
      kernels::cpu::gemm_tile({.x = x.data(),
                               .x_type = DType::bf16,
                               .x_stride = inputs,
                               .x_rows = routing[e].data(),
                               .rows = static_cast<std::int64_t>(routing[e].size()),
                               .w = weights.expert(task.expert),
                               .out_begin = task.out_begin,
                               .out_end = std::min(task.out_begin + width, outputs),
                               .y = y.data() + first[e] * outputs + task.out_begin,
                               .y_stride = outputs,
                               .exact = false});
    });
  };
  for (int warm = 0; warm < 3; ++warm) once();
  const Times times = time_of(tokens <= 32 ? 45 : 15, once);
  const double time = times.best;
  const double bytes = experts_used * static_cast<double>(weights.bytes_an_expert);
  const double operations = 2.0 * static_cast<double>(pairs * outputs * inputs);
  const std::string_view anchor_text = weights.int4 ? anchor.int4 : anchor.bf16;
  std::printf(
      "%-10s %4d  %8.3f ms (median %8.3f)  %6.1f GB/s (%3.0f %% of DRAM)  %7.1f GFLOP/s   %.*s\n",
      weights.int4 ? "int4 g128" : "bf16", static_cast<int>(tokens), time * 1e3, times.median * 1e3,
      bytes / time * 1e-9, 100 * bytes / time / ceiling, operations / time * 1e-9,
      static_cast<int>(anchor_text.size()), anchor_text.data());
}

int run(int argc, char** argv) {
  int threads = 0;
  if (argc > 1) {
    const std::string_view text = argv[1];
    std::from_chars(text.data(), text.data() + text.size(), threads);
  }
  ThreadPool pool({.threads = threads});
  const double ceiling = dram_bytes_a_second(pool);
  const auto set = kernels::cpu::name(kernels::cpu::available_instruction_sets().back());
  std::printf("%d threads, %.*s, DRAM reads %.1f GB/s (best of 9 over 1 GiB)\n", pool.size(),
              static_cast<int>(set.size()), set.data(), ceiling * 1e-9);
  std::printf("last column: the same shape on another machine (2 cores of Zen 4, 28-53 GB/s)\n\n");
  for (const bool int4 : {false, true}) {
    const Weights weights = make_weights(int4);
    for (const Anchor& anchor : anchors) measure(weights, anchor, pool, ceiling);
  }
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) { return motley::run(argc, argv); }
