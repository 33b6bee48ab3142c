// Adapters from their folders into the host's pages, by one loader thread and by more: how many
// times as fast as one. Every number of threads takes a turn in each of five rounds; the best
// counts. Files are warm.
//   build/release/bench/bench_adapter_loading [adapters] [threads]

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <random>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/clock.h"
#include "base/system/cpu.h"
#include "base/system/temporary_folder.h"
#include "engine/residency/pool_store.h"
#include "lora/pages/pool.h"
#include "lora/test_base.h"
#include "tensor/device/cpu_device.h"

namespace motley::bench {
namespace {

constexpr int rounds = 5;
constexpr std::int64_t rank = 8;
constexpr lora::test::ModelShape shape{
    .layers = 4, .hidden = 1024, .intermediate = 512, .experts = 8, .vocabulary = 32};

constexpr std::string_view config =
    R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none",
        "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"]})";

// q and every expert's maps in each layer: 3.3 million numbers in float32.
void write_adapter(const std::filesystem::path& folder, std::uint32_t seed) {
  std::mt19937 random(seed);
  lora::test::AdapterFiles files;
  const auto add = [&](const std::string& module, std::int64_t in, std::int64_t out) {
    files.add(module + ".lora_A.weight", {rank, in}, lora::test::random_numbers(random, rank * in));
    files.add(module + ".lora_B.weight", {out, rank},
              lora::test::random_numbers(random, out * rank));
  };
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string path = cat("model.layers.", layer, ".");
    add(path + "self_attn.q_proj", shape.hidden, shape.hidden + 8);
    for (int expert = 0; expert < shape.experts; ++expert) {
      const std::string module = cat(path, "mlp.experts.", expert, ".");
      add(module + "gate_proj", shape.hidden, shape.intermediate);
      add(module + "up_proj", shape.hidden, shape.intermediate);
      add(module + "down_proj", shape.intermediate, shape.hidden);
    }
  }
  std::filesystem::create_directory(folder);
  files.write(folder, std::string(config));
}

class Loading {
 public:
  explicit Loading(int adapters) : adapters_(adapters) {
    for (int i = 0; i < adapters; ++i) write_adapter(folder_ / cat(i), 1 + std::uint32_t(i));
  }

  // Until all adapters stand in the pages of a new pool.
  double seconds_with(int threads) {
    const auto pool = lora::Pool::create(device_, {.bytes = std::uint64_t(adapters_) * (16 << 20),
                                                   .dtype = DType::bf16})
                          .value();
    engine::PoolStore store({.base = &base_, .pool = pool.get(), .loaders = threads});
    int done = 0;
    std::mutex lock;
    std::condition_variable changed;
    store.set_wake([&] {
      const std::lock_guard held(lock);
      ++done;
      changed.notify_all();
    });
    const TimePoint begin = clock_.now();
    for (int i = 0; i < adapters_; ++i) {
      store.begin({.id = static_cast<std::uint64_t>(i),
                   .spec = {.name = cat(i), .path = folder_ / cat(i)}});
    }
    {
      std::unique_lock held(lock);
      changed.wait(held, [&] { return done == adapters_; });
    }
    const double time = seconds(clock_.now() - begin);
    while (const auto each = store.take_done()) MOTLEY_CHECK(!each->error, each->error->message());
    MOTLEY_CHECK(pool->usage().adapters == adapters_, "every adapter has its pages");
    store.set_wake({});
    return time;
  }

 private:
  int adapters_;
  TemporaryFolder folder_;
  SteadyClock clock_;
  tensor::CpuDevice device_{{.threads = 1}};
  lora::test::FakeBase base_ = lora::test::make_base(shape);
};

int number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  MOTLEY_CHECK(value > 0, "a number above 0");
  return value;
}

void run(int adapters, int max_threads) {
  Loading loading(adapters);
  std::vector<double> best(static_cast<std::size_t>(max_threads), 1e9);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < best.size(); ++i)
      best[i] = std::min(best[i], loading.seconds_with(static_cast<int>(i) + 1));
  }
  std::printf("%d adapters, %d processors\nthreads  times as fast as one\n", adapters,
              usable_cpus());
  for (std::size_t i = 0; i < best.size(); ++i)
    std::printf("%7zu  %.2f\n", i + 1, best[0] / best[i]);
}

}  // namespace
}  // namespace motley::bench

int main(int count, char** arguments) {
  using motley::bench::number;
  motley::bench::run(count > 1 ? number(arguments[1]) : 100, count > 2 ? number(arguments[2]) : 4);
  return 0;
}
