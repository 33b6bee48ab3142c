#include "cli/bench/steps/step_timer.h"

#include <algorithm>
#include <map>

#include "base/cat.h"
#include "base/number_types.h"
#include "base/system/clock.h"
#include "base/units.h"
#include "kernels/recurrence.h"

namespace motley::cli {
namespace {

constexpr int warm_up_steps = 3;
constexpr std::size_t fill_bytes = std::size_t{8} << 20;

// Uniform in [-1, 1], in `type`.
template <class T>
std::vector<std::byte> random_block() {
  std::vector<std::byte> block(fill_bytes);
  auto* const numbers = reinterpret_cast<T*>(block.data());
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < fill_bytes / sizeof(T); ++i) {
    state = state * 1664525U + 1013904223U;
    const float number = static_cast<float>(state >> 8) / 8388608.0F - 1.0F;
    if constexpr (std::is_same_v<T, float>) {
      numbers[i] = number;
    } else {
      numbers[i] = T::from(number);
    }
  }
  return block;
}

// Codes from 1 to 1.875, whose bytes are small numbers as exponents and as bf16 too.
std::vector<std::byte> block_of_codes() {
  std::vector<std::byte> block(fill_bytes);
  for (std::size_t i = 0; i < fill_bytes; ++i) block[i] = static_cast<std::byte>(0x38 + i * i % 8);
  return block;
}

// Numbers of a type for caches of any length, again and again the same.
class Filling {
 public:
  explicit Filling(DType type)
      : block_(type == DType::f8_e4m3 ? block_of_codes()
               : type == DType::f32   ? random_block<float>()
                                      : random_block<bf16>()) {}

  // The first copy is the source of the others, because the device copies faster than the host.
  Result<void> fill(const tensor::Tensor& pages, tensor::Stream& stream) {
    const auto bytes = static_cast<std::size_t>(pages.byte_count());
    for (std::size_t at = 0; at < bytes; at += block_.size()) {
      std::byte* const to = pages.bytes() + at;
      MOTLEY_TRY_VOID(stream.copy(to, from_, std::min(block_.size(), bytes - at)));
      if (from_ == block_.data() && bytes >= block_.size()) from_ = to;
    }
    return {};
  }

 private:
  std::vector<std::byte> block_;
  const std::byte* from_ = block_.data();
};

}  // namespace

Result<std::unique_ptr<StepTimer>> StepTimer::create(const model::Model& model,
                                                     tensor::Device& device,
                                                     RandomAdapters* adapters,
                                                     const Options& options) {
  const std::int64_t longest = options.length + options.max_tokens;
  // The pages of equal sequences limit their number.
  const std::int64_t pages =
      options.max_sequences * runner::KvMemory::pages_for(options.length) +
      options.max_rows / options.max_tokens * runner::KvMemory::pages_for(options.max_tokens) +
      2 * options.max_sequences;
  // Graphs are padded to more rows.
  const std::int64_t sequences =
      options.max_sequences <= 8 ? options.max_sequences : (options.max_sequences + 63) / 64 * 64;
  const auto bytes = static_cast<std::uint64_t>(
      pages * runner::KvMemory::page_bytes(model.token_caches(), model.kv_type()) +
      sequences * runner::StateMemory::slot_bytes(model.state_shapes()));
  MOTLEY_TRY(const tensor::MemoryInfo memory, device.memory());
  if (bytes > memory.available)
    return Error(ErrorCode::out_of_memory,
                 cat("what layers keep of ", options.max_sequences, " sequences takes ",
                     format_bytes(bytes), ", and ", format_bytes(memory.available), " are left"),
                 device.description(), "use a smaller batch, --context or --layers");
  const int rank = adapters == nullptr ? 1 : adapters->largest_rank();
  runner::Runner::Options steps{.max_rows = std::max(options.max_rows, sequences),
                                .max_sequences = sequences,
                                .max_tokens = longest,
                                .pages = pages,
                                .state_slots = model.keeps_states() ? sequences : 0,
                                .logit_rows = sequences,
                                .adapter_rank = rank,
                                .mix_rank = rank,
                                .keep_choices = true,
                                .graphs = options.graphs};
  if (options.others != nullptr) {
    MOTLEY_TRY_VOID(options.others->make_runners(steps));
    steps.others = options.others;
  }
  if (adapters != nullptr) steps.adapters = &adapters->pool();
  MOTLEY_TRY(std::unique_ptr<runner::Runner> runner, runner::Runner::create(model, device, steps));
  std::unique_ptr<StepTimer> timer(new StepTimer(model, adapters, std::move(runner)));
  MOTLEY_TRY_VOID(timer->fill_pages());
  return timer;
}

Result<void> StepTimer::fill_pages() {
  runner::OtherRanks* const others = runner_->options().others;
  for (int rank = 1; others != nullptr && rank < others->ranks(); ++rank)
    MOTLEY_TRY_VOID(fill_pages_of(others->runner(rank)));
  return fill_pages_of(*runner_);
}

Result<void> StepTimer::fill_pages_of(runner::Runner& runner) {
  std::map<DType, Filling> of_type;
  tensor::Stream& stream = runner.stream();
  const std::span<const tensor::Tensor> memory = runner.kv().memory();
  std::size_t next = 0;
  for (const model::LayerPages& layer : runner.kv().layers()) {
    for (const ops::KvPages& cache : layer) {
      const DType type = cache.numbers.dtype();
      Filling& filling = of_type.try_emplace(type, type).first->second;
      MOTLEY_TRY_VOID(filling.fill(memory[next++], stream));
    }
  }
  return stream.synchronize();
}

Result<void> StepTimer::step(const StepShape& shape,
                             std::span<const std::vector<std::int32_t>> pages) {
  tokens_.resize(static_cast<std::size_t>(shape.rows()));
  const auto vocabulary = static_cast<std::uint64_t>(model_->config().vocabulary);
  for (std::int32_t& token : tokens_) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    token = static_cast<std::int32_t>((random_ >> 33) % vocabulary);
  }
  const auto each = static_cast<std::size_t>(shape.tokens);
  chunks_.clear();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    runner::Chunk chunk{.pages = pages[i],
                        .length = shape.length,
                        .tokens = std::span(tokens_).subspan(i * each, each),
                        .state = {.slot = static_cast<std::int32_t>(i),
                                  .anchor = kernels::anchor_after(shape.length, 0),
                                  .certain = shape.tokens}};
    if (shape.adapters > 0)
      chunk.mix = adapters_->mixes()[i % static_cast<std::size_t>(shape.adapters)];
    chunks_.push_back(std::move(chunk));
  }
  return runner_->step(chunks_, [](const tensor::Tensor&, std::span<const runner::LogitRow>) {
    return Result<void>();
  });
}

Result<void> StepTimer::count_touched(const StepShape& shape, Touched& touched) {
  const model::Config& config = model_->config();
  const auto top_k = static_cast<std::size_t>(config.moe.router.top_k);
  const auto rows = static_cast<std::size_t>(shape.rows());
  const auto groups = static_cast<std::size_t>(std::max(shape.adapters, 1));
  const auto experts = static_cast<std::size_t>(config.moe.router.experts);
  std::vector<std::int32_t> ids(rows * top_k);
  std::vector<char> met(experts);              // by any row
  std::vector<char> met_by(experts * groups);  // by rows of an adapter
  tensor::Stream& stream = runner_->stream();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.moe_layers[static_cast<std::size_t>(layer)]) continue;
    MOTLEY_TRY_VOID(stream.copy(ids.data(), runner_->choices().select(layer).bytes(),
                                ids.size() * sizeof(std::int32_t)));
    MOTLEY_TRY_VOID(stream.synchronize());
    std::ranges::fill(met, 0);
    std::ranges::fill(met_by, 0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto expert = static_cast<std::size_t>(ids[i]);
      const std::size_t sequence = i / top_k / static_cast<std::size_t>(shape.tokens);
      met[expert] = 1;
      met_by[sequence % groups * experts + expert] = 1;
    }
    touched.experts += static_cast<double>(std::ranges::count(met, 1)) / counted_steps;
    if (shape.adapters == 0) continue;
    for (std::size_t group = 0; group < groups; ++group)
      touched.adapter_experts[group] +=
          static_cast<double>(
              std::ranges::count(std::span(met_by).subspan(group * experts, experts), 1)) /
          counted_steps;
  }
  return {};
}

Result<StepTimer::Timed> StepTimer::run(const StepShape& shape, int rounds, int steps_a_round) {
  MOTLEY_CHECK(shape.adapters == 0 || adapters_ != nullptr, "adapters for a case that uses some");
  runner::ConsecutivePages all_pages(runner_->kv());
  std::vector<std::vector<std::int32_t>> pages;
  for (std::int64_t i = 0; i < shape.sequences; ++i)
    pages.push_back(all_pages.take(shape.length + shape.tokens));
  for (int i = 0; i < warm_up_steps; ++i) MOTLEY_TRY_VOID(step(shape, pages));
  const std::uint64_t launches = runner_->graph_launches();
  const SteadyClock clock;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    MOTLEY_TRY_VOID(runner_->synchronize());
    const TimePoint start = clock.now();
    for (int i = 0; i < steps_a_round; ++i) MOTLEY_TRY_VOID(step(shape, pages));
    MOTLEY_TRY_VOID(runner_->synchronize());
    times.push_back(seconds(clock.now() - start) / steps_a_round);
  }
  std::ranges::sort(times);
  Timed timed{
      .seconds = times[times.size() / 2],
      .touched = {.experts = 0,
                  .adapter_experts = std::vector<double>(static_cast<std::size_t>(shape.adapters))},
      .by_graph = runner_->graph_launches() > launches};
  for (int i = 0; model_->config().has_experts() && i < counted_steps; ++i) {
    MOTLEY_TRY_VOID(step(shape, pages));
    MOTLEY_TRY_VOID(count_touched(shape, timed.touched));
  }
  MOTLEY_TRY_VOID(runner_->release_adapters());
  MOTLEY_TRY_VOID(runner_->synchronize());
  return timed;
}

Result<double> StepTimer::time_sums(std::int64_t rows) {
  constexpr int rounds = 11;
  runner::OtherRanks& others = *runner_->options().others;
  struct Rank {
    tensor::Buffer memory;
    std::unique_ptr<tensor::Graph> graph;  // null: a CPU's
  };
  std::vector<Rank> ranks(static_cast<std::size_t>(others.ranks()));
  const auto sums =
      std::ranges::count(model_->layer_ops().ops(), ops::OpKind::sum_over_ranks, &ops::Op::kind);
  const auto numbers = static_cast<std::size_t>(rows * model_->config().hidden);
  const auto sum_all = [&](runner::Runner& runner, int number) -> Result<void> {
    auto* const data =
        reinterpret_cast<float*>(ranks[static_cast<std::size_t>(number)].memory.data());
    for (std::ptrdiff_t i = 0; i < sums; ++i)
      MOTLEY_TRY_VOID(others.communicator(number).all_reduce(
          {data, numbers}, dist::Communicator::Part::own,
          {.stream = runner.context().stream, .type = model_->exact() ? DType::f32 : DType::bf16}));
    return {};
  };
  const auto prepare = [&](runner::Runner& runner, int number) -> Result<void> {
    Rank& rank = ranks[static_cast<std::size_t>(number)];
    MOTLEY_TRY(rank.memory, runner.device().allocate(numbers * sizeof(float)));
    MOTLEY_TRY_VOID(
        runner.stream().fill(rank.memory.data(), std::byte{0}, numbers * sizeof(float)));
    if (runner.device().id().kind == tensor::DeviceKind::cpu) return {};
    MOTLEY_TRY(rank.graph, runner.stream().capture([&] { return sum_all(runner, number); }));
    return runner.synchronize();
  };
  MOTLEY_TRY_VOID(others.run(*runner_, dist::LaunchGate::Way::alone, prepare));
  const SteadyClock clock;
  std::vector<double> times;
  const auto time_once = [&](runner::Runner& runner, int number) -> Result<void> {
    const Rank& rank = ranks[static_cast<std::size_t>(number)];
    MOTLEY_TRY_VOID(others.communicator(number).barrier(runner.context().stream));
    MOTLEY_TRY_VOID(runner.synchronize());
    const TimePoint start = clock.now();
    if (rank.graph == nullptr) {
      MOTLEY_TRY_VOID(sum_all(runner, number));
    } else {
      MOTLEY_TRY_VOID(rank.graph->launch(runner.stream()));
    }
    MOTLEY_TRY_VOID(runner.synchronize());
    if (number == 0) times.push_back(seconds(clock.now() - start));
    return {};
  };
  for (int round = 0; round < rounds; ++round)
    MOTLEY_TRY_VOID(others.run(*runner_, dist::LaunchGate::Way::alone, time_once));
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace motley::cli
