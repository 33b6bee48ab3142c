// Whole layers on the CPU: a stack in the shape of a 30B-A3B (layer_stack_model.h) through the
// runner, with experts in bf16 and in W4A16, for decoding and for a prompt, without adapters, with
// one, and with four of rank 16 on attention and experts.
//   build/release/bench/bench_layer_stack [folder [layers [rounds [threads]]]]
// The model is written to `folder` and left there for the next run; without one, or with "-", to a
// folder that goes again. Cases take turns, and memory's ceiling is measured in each round; what is
// printed are medians over the rounds. Without embedding, head and sampling: a layer is a layer.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/system/clock.h"
#include "kernels/cpu/instruction_set.h"
#include "layer_stack_model.h"
#include "lora/pages/pool.h"
#include "memory_ceiling.h"
#include "model/model.h"
#include "runner/runner.h"
#include "tensor/device/cpu_device.h"

namespace motley::bench {
namespace {

namespace fs = std::filesystem;

constexpr int rank = 16;
constexpr int adapter_count = 4;
constexpr std::int64_t context = 64;  // tokens before those that are measured in decoding
constexpr std::int64_t prompt = 512;
constexpr std::int64_t steps_a_round = 4;
constexpr int layers_of_whole_model = 48;

struct Settings {
  fs::path folder;  // empty: a temporary one
  std::int64_t layers = 6;
  int rounds = 7;
  int threads = 0;
};

// `sequences` sequences take `tokens` tokens each; row i has adapter i % adapters.
struct Case {
  std::int64_t sequences;
  std::int64_t tokens;
  int adapters;

  std::int64_t rows() const { return sequences * tokens; }
  bool decodes() const { return tokens == 1; }
};

struct Sample {
  double time;     // seconds of a step
  double ceiling;  // bytes a second that memory gave in its round
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Different ones of `of` that `draws` rows with `each` choices meet, if they choose evenly.
double expected_distinct(double of, double each, double draws) {
  return of * (1 - std::pow(1 - each / of, draws));
}

// Bytes of weights and factors that a step can't do without.
double bytes_of(const Case& c, const Shape& shape, ExpertFormat format) {
  const auto experts = static_cast<double>(shape.experts);
  const auto top_k = static_cast<double>(shape.top_k);
  double bytes = static_cast<double>(shape.dense_numbers() * 2);
  bytes += expected_distinct(experts, top_k, static_cast<double>(c.rows())) *
           static_cast<double>(expert_bytes(shape, format));
  const auto used = static_cast<double>(std::min<std::int64_t>(c.adapters, c.sequences));
  if (used > 0) {
    const double met = expected_distinct(experts, top_k, static_cast<double>(c.rows()) / used);
    bytes += used * 2 *
             (met * static_cast<double>(adapter_expert_numbers(shape, rank)) +
              static_cast<double>(adapter_dense_numbers(shape, rank)));
  }
  return bytes * static_cast<double>(shape.layers);
}

// Of products with weights and factors; attention's own are left out.
double operations_of(const Case& c, const Shape& shape) {
  std::int64_t numbers = shape.dense_numbers() + shape.top_k * shape.expert_numbers();
  if (c.adapters > 0)
    numbers +=
        adapter_dense_numbers(shape, rank) + shape.top_k * adapter_expert_numbers(shape, rank);
  return 2.0 * static_cast<double>(numbers * shape.layers * c.rows());
}

struct Sequence {
  std::vector<std::int32_t> pages;
  std::int64_t length = 0;
};

class Stack {
 public:
  Stack(const Shape& shape, runner::Runner& runner, std::vector<lora::Mix> mixes)
      : shape_(shape), runner_(runner), pages_(runner.kv()), mixes_(std::move(mixes)) {}

  // Seconds of each step of a round.
  std::vector<double> run(const Case& c) {
    std::vector<double> times;
    if (!c.decodes()) {
      std::vector<Sequence> fresh(static_cast<std::size_t>(c.sequences));
      // Their pages may be taken again.
      runner::ConsecutivePages pages = pages_;
      times.push_back(step(fresh, c, pages));
      return times;
    }
    std::vector<Sequence>& decoding = decoding_for(c.sequences);
    for (std::int64_t i = 0; i < steps_a_round; ++i) times.push_back(step(decoding, c, pages_));
    return times;
  }

 private:
  // Sequences behind a prompt; they grow from round to round.
  std::vector<Sequence>& decoding_for(std::int64_t count) {
    for (auto& [size, made] : decoding_) {
      if (size == count) return made;
    }
    decoding_.emplace_back(count, std::vector<Sequence>(static_cast<std::size_t>(count)));
    std::vector<Sequence>& made = decoding_.back().second;
    for (Sequence& sequence : made)
      step(std::span(&sequence, 1), {.sequences = 1, .tokens = context, .adapters = 0}, pages_);
    return made;
  }

  double step(std::span<Sequence> sequences, const Case& c, runner::ConsecutivePages& pages) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(c.rows()));
    for (std::int32_t& token : tokens) {
      random_ = random_ * 6364136223846793005U + 1442695040888963407U;
      token = static_cast<std::int32_t>((random_ >> 33) %
                                        static_cast<std::uint64_t>(shape_.vocabulary));
    }
    std::vector<runner::Chunk> chunks;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Sequence& sequence = sequences[i];
      pages.grow(sequence.pages, sequence.length + c.tokens);
      runner::Chunk chunk{
          .pages = sequence.pages,
          .length = sequence.length,
          .tokens = std::span(tokens).subspan(i * static_cast<std::size_t>(c.tokens),
                                              static_cast<std::size_t>(c.tokens)),
          .logits = runner::LogitsOf::none};
      if (c.adapters > 0) chunk.mix = mixes_[i % static_cast<std::size_t>(c.adapters)];
      chunks.push_back(std::move(chunk));
      sequence.length += c.tokens;
    }
    const auto start = std::chrono::steady_clock::now();
    runner_
        .step(chunks, [](const tensor::Tensor&,
                         std::span<const runner::LogitRow>) { return Result<void>(); })
        .value();
    return seconds(std::chrono::steady_clock::now() - start);
  }

  const Shape& shape_;
  runner::Runner& runner_;
  runner::ConsecutivePages pages_;  // of sequences that decode
  std::vector<lora::Mix> mixes_;
  std::vector<std::pair<std::int64_t, std::vector<Sequence>>> decoding_;
  std::uint64_t random_ = 88172645463325252U;
};

void print(const Case& c, const Shape& shape, ExpertFormat format,
           const std::vector<Sample>& samples, const std::vector<Sample>& base) {
  std::vector<double> times;
  std::vector<double> shares;
  std::vector<double> costs;
  const double bytes = bytes_of(c, shape, format);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    times.push_back(samples[i].time);
    shares.push_back(bytes / samples[i].time / samples[i].ceiling);
    costs.push_back(samples[i].time / base[i].time);
  }
  const double time = median(times);
  const double tokens = static_cast<double>(c.rows()) / time;
  std::printf(
      "%-6s %-8s %4d x %-3d %d adapters  %8.2f ms  %7.1f tokens/s (%6.2f at %d layers)  "
      "%5.1f GB/s (%3.0f %% of DRAM)  %6.1f GFLOP/s  x %.3f of none\n",
      format == ExpertFormat::bf16 ? "bf16" : "W4A16", c.decodes() ? "decode" : "prompt",
      static_cast<int>(c.sequences), static_cast<int>(c.tokens), c.adapters, time * 1e3, tokens,
      tokens * static_cast<double>(shape.layers) / layers_of_whole_model, layers_of_whole_model,
      bytes / time * 1e-9, 100 * median(shares), operations_of(c, shape) / time * 1e-9,
      median(costs));
}

// Each row of cases takes turns with the others; the first of a row is the one without adapters.
void measure(Stack& stack, const Shape& shape, ExpertFormat format, int rounds,
             MemoryCeiling& ceiling) {
  const std::vector<Case> sizes = {{.sequences = 1, .tokens = 1, .adapters = 0},
                                   {.sequences = 8, .tokens = 1, .adapters = 0},
                                   {.sequences = 32, .tokens = 1, .adapters = 0},
                                   {.sequences = 1, .tokens = prompt, .adapters = 0},
                                   {.sequences = 4, .tokens = prompt / 4, .adapters = 0}};
  for (const Case& size : sizes) {
    std::vector<Case> cases;
    for (const int adapters : {0, 1, 4}) {
      if (adapters > 1 && size.sequences == 1) continue;
      cases.push_back(size);
      cases.back().adapters = adapters;
    }
    std::vector<std::vector<Sample>> samples(cases.size());
    for (int round = -1; round < rounds; ++round) {
      const double bytes_a_second = ceiling.measure(3);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        for (const double time : stack.run(cases[i])) {
          // The first round warms up.
          if (round >= 0) samples[i].push_back({.time = time, .ceiling = bytes_a_second});
        }
      }
    }
    for (std::size_t i = 0; i < cases.size(); ++i)
      print(cases[i], shape, format, samples[i], samples[0]);
    std::fflush(stdout);
  }
}

Result<void> run_format(const Settings& settings, const fs::path& folder, ExpertFormat format,
                        tensor::CpuDevice& device, MemoryCeiling& ceiling) {
  const Shape shape{.layers = settings.layers};
  if (!fs::exists(folder / "config.json")) {
    fs::create_directories(folder);
    MOTLEY_TRY_VOID(write_model(folder, shape, format));
  }
  MOTLEY_TRY(const std::unique_ptr<model::Model> model,
             model::Model::load(folder, device, {.exact = false}));
  std::vector<lora::Mix> mixes;
  std::unique_ptr<lora::Pool> pool;
  for (int i = 0; i < adapter_count; ++i) {
    const lora::Adapter adapter = make_adapter(shape, rank, static_cast<std::uint64_t>(i) + 1);
    if (pool == nullptr) {
      lora::Pool::Options options{.dtype = DType::bf16};
      options.bytes = lora::Pool::pages_of(adapter, options) * adapter_count * options.page_bytes;
      MOTLEY_TRY(pool, lora::Pool::create(device, options));
    }
    MOTLEY_TRY(const lora::Handle handle, pool->load(cat("adapter-", i), adapter));
    MOTLEY_TRY(lora::Mix mix, lora::Mix::make(std::vector<lora::Mix::Part>{{handle, 1.0F}}));
    mixes.push_back(std::move(mix));
  }
  // Decoding sequences of all sizes, with room to grow, and one prompt.
  const std::int64_t longest =
      std::max(prompt, context + (settings.rounds + 1) * 3 * steps_a_round);
  MOTLEY_TRY(const std::unique_ptr<runner::Runner> runner,
             runner::Runner::create(*model, device,
                                    {.max_rows = prompt,
                                     .max_tokens = longest,
                                     .pages = 48 * runner::KvMemory::pages_for(longest)}));
  Stack stack(shape, *runner, std::move(mixes));
  measure(stack, shape, format, settings.rounds, ceiling);
  return {};
}

Result<void> run(const Settings& settings) {
  tensor::CpuDevice device({.threads = settings.threads});
  MemoryCeiling ceiling(device.pool());
  const auto set = kernels::cpu::name(kernels::cpu::available_instruction_sets().back());
  std::printf("%d layers, %d threads, %.*s, DRAM reads %.1f GB/s, rank %d, %d rounds\n\n",
              static_cast<int>(settings.layers), device.pool().size(), static_cast<int>(set.size()),
              set.data(), ceiling.measure(9) * 1e-9, rank, settings.rounds);
  const bool temporary = settings.folder.empty();
  const fs::path folder = temporary
                              ? fs::temp_directory_path() / cat("motley_layer_stack.", ::getpid())
                              : settings.folder;
  Result<void> done;
  for (const ExpertFormat format : {ExpertFormat::bf16, ExpertFormat::w4a16}) {
    const std::string name =
        cat(format == ExpertFormat::bf16 ? "bf16" : "w4a16", "-", settings.layers);
    if (done.ok()) done = run_format(settings, folder / name, format, device, ceiling);
  }
  if (temporary) fs::remove_all(folder);
  return done;
}

template <class Number>
void read_number(int argc, char** argv, int at, Number& number) {
  if (argc <= at) return;
  const std::string_view text = argv[at];
  std::from_chars(text.data(), text.data() + text.size(), number);
}

int main_of(int argc, char** argv) {
  Settings settings;
  if (argc > 1 && std::string_view(argv[1]) != "-") settings.folder = argv[1];
  read_number(argc, argv, 2, settings.layers);
  read_number(argc, argv, 3, settings.rounds);
  read_number(argc, argv, 4, settings.threads);
  const Result<void> done = run(settings);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) { return motley::bench::main_of(argc, argv); }
