// Decoding steps of whole layers on a GPU: a stack in the shape of a 30B-A3B (layer_stack_model.h)
// through the runner's graphs, without adapters, with one, and with four of rank 16 on attention
// and experts.
//   build/cuda/bench/bench_gpu_layer_stack [folder [layers [steps]]]
// The model is written to `folder`, or to a temporary one that goes again. A step's time is that of
// many steps in a row, queued one after the other, by the host's clock; embedding and a small head
// are in it.

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/cat.h"
#include "layer_stack_model.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "tensor/device/device.h"

namespace motley::bench {
namespace {

namespace fs = std::filesystem;

constexpr int rank = 16;
constexpr int adapter_count = 4;
constexpr std::int64_t context = 1024;  // tokens before those that are measured
constexpr double bytes_a_second = 4.3e12;

struct Sequence {
  std::vector<std::int32_t> pages;
  std::int64_t length = 0;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes that a step must read, over the memory's speed.
double floor_seconds(const Shape& shape, std::int64_t batch, ExpertFormat format) {
  double none = 1;
  for (std::int64_t i = 0; i < batch; ++i)
    none *= 1 - static_cast<double>(shape.top_k) / static_cast<double>(shape.experts);
  const double experts = static_cast<double>(shape.experts) * (1 - none);
  const double cache =
      static_cast<double>(batch * context * 2 * shape.kv_heads * shape.head_dim * 2);
  return static_cast<double>(shape.layers) *
         (experts * static_cast<double>(expert_bytes(shape, format)) +
          2.0 * static_cast<double>(shape.dense_numbers()) + cache) /
         bytes_a_second;
}

Result<double> step_seconds(runner::Runner& runner, std::vector<Sequence>& sequences,
                            std::span<const lora::Mix> mixes, int steps) {
  auto sink = [](const tensor::Tensor&, std::span<const runner::LogitRow>) {
    return Result<void>();
  };
  std::vector<std::int32_t> tokens(sequences.size());
  const auto step = [&](std::int32_t seed) {
    std::vector<runner::Chunk> chunks;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((i * 37 + static_cast<std::size_t>(seed) * 101) % 1024);
      chunks.push_back({.pages = sequences[i].pages,
                        .length = sequences[i].length,
                        .tokens = std::span(tokens).subspan(i, 1),
                        .mix = mixes.empty() ? lora::Mix() : mixes[i % mixes.size()]});
    }
    return runner.step(chunks, sink);
  };
  for (int i = 0; i < 5; ++i) MOTLEY_TRY_VOID(step(i));
  MOTLEY_TRY_VOID(runner.stream().synchronize());
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < steps; ++i) MOTLEY_TRY_VOID(step(i));
  MOTLEY_TRY_VOID(runner.stream().synchronize());
  return seconds_since(start) / steps;
}

Result<void> run(const fs::path& folder, const Shape& shape, ExpertFormat format, int steps) {
  if (!fs::exists(folder / "config.json")) {
    fs::create_directories(folder);
    MOTLEY_TRY_VOID(write_model(folder, shape, format));
  }
  MOTLEY_TRY(const std::unique_ptr<tensor::Device> device,
             tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}));
  Clock::time_point start = Clock::now();
  MOTLEY_TRY(const std::unique_ptr<model::Model> model,
             model::Model::load(folder, *device, {.exact = false}));
  std::printf("%s, %d layers, loaded in %.2f s; %s\n", device->description().c_str(),
              static_cast<int>(shape.layers), seconds_since(start),
              model->describe_backends().c_str());
  std::unique_ptr<lora::Pool> pool;
  std::vector<lora::Mix> mixes;
  for (int i = 0; i < adapter_count; ++i) {
    const lora::Adapter adapter = make_adapter(shape, rank, static_cast<std::uint64_t>(i) + 1);
    if (pool == nullptr) {
      lora::Pool::Options options{
          .dtype = DType::bf16, .experts = model->factor_layout(), .directory = true};
      options.bytes =
          lora::Pool::pages_of(adapter, options) * (adapter_count + 1) * options.page_bytes;
      MOTLEY_TRY(pool, lora::Pool::create(*device, options));
    }
    MOTLEY_TRY(const lora::Handle handle, pool->load(cat("adapter-", i), adapter));
    MOTLEY_TRY(lora::Mix mix, lora::Mix::make(std::vector<lora::Mix::Part>{{handle, 1.0F}}));
    mixes.push_back(std::move(mix));
  }
  constexpr std::int64_t most = 64;
  const std::int64_t pages = runner::KvMemory::pages_for(context + 16);
  MOTLEY_TRY(const std::unique_ptr<runner::Runner> runner,
             runner::Runner::create(*model, *device,
                                    {.max_rows = 1024,
                                     .max_sequences = most,
                                     .max_tokens = context + 16,
                                     .pages = most * pages,
                                     .logit_rows = most,
                                     .adapters = pool.get(),
                                     .adapter_rank = rank,
                                     .mix_rank = rank}));
  // What stands in the pages does not change what reading them costs; zeros are numbers.
  for (const tensor::Tensor& memory : runner->kv().memory()) {
    MOTLEY_TRY_VOID(runner->stream().fill(memory.bytes(), std::byte{0},
                                          static_cast<std::size_t>(memory.byte_count())));
  }
  std::printf("%6s %9s %9s %9s %7s %7s\n", "batch", "adapters", "us/layer", "floor", "over",
              "kept");
  for (const std::int64_t batch : {1, 8, 32, 64}) {
    std::vector<Sequence> sequences;
    runner::ConsecutivePages all_pages(runner->kv());
    for (std::int64_t i = 0; i < batch; ++i)
      sequences.push_back({.pages = all_pages.take(context + 16), .length = context});
    double base = 0;
    for (const int adapters : {0, 1, 4}) {
      if (adapters > batch) continue;
      MOTLEY_TRY(const double time,
                 step_seconds(*runner, sequences,
                              std::span(mixes).first(static_cast<std::size_t>(adapters)), steps));
      if (adapters == 0) base = time;
      const double layers = static_cast<double>(shape.layers);
      const double least = floor_seconds(shape, batch, format);
      std::printf("%6d %9d %9.1f %9.1f %7.2f %6.0f%%\n", static_cast<int>(batch), adapters,
                  time / layers * 1e6, least / layers * 1e6, time / least, 100 * base / time);
      std::fflush(stdout);
    }
  }
  return {};
}

template <class Number>
void read_number(int argc, char** argv, int at, Number& number) {
  if (argc <= at) return;
  const std::string_view text = argv[at];
  std::from_chars(text.data(), text.data() + text.size(), number);
}

int main_of(int argc, char** argv) {
  Shape shape{.layers = 4};
  int steps = 50;
  read_number(argc, argv, 2, shape.layers);
  read_number(argc, argv, 3, steps);
  const bool temporary = argc < 2 || std::string_view(argv[1]) == "-";
  const fs::path folder =
      temporary ? fs::temp_directory_path() / cat("motley_gpu_layer_stack.", ::getpid()) : argv[1];
  const Result<void> done = run(folder, shape, ExpertFormat::bf16, steps);
  if (temporary) fs::remove_all(folder);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) { return motley::bench::main_of(argc, argv); }
