// What the engine adds to a model's decoding steps on a GPU: sequences that run through scheduler,
// sampling and answers, beside the very same steps as the runner takes them, queued one behind the
// other. What is added is the host's share, the sampling kernel's, and the copies of answers.
//   build/cuda/bench/bench_gpu_engine_steps [shape [layers [steps]]]

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/system/clock.h"
#include "cli/bench/steps/random_adapters.h"
#include "engine/execution/runner_executor.h"
#include "engine/residency/adapter_store.h"
#include "engine/sampling/sampler_maker.h"
#include "engine/scheduling/scheduler.h"
#include "model/config/shapes.h"
#include "model/model.h"
#include "runner/runner.h"
#include "tensor/device/device.h"

namespace motley::bench {
namespace {

constexpr std::int64_t prompt_tokens = 64;
constexpr int adapter_count = 4;     // of steps that are timed
constexpr int traced_adapters = 20;  // more than kernels::few_labels
constexpr std::int64_t max_sequences = 256;
constexpr int warm_up = 8;

class NoSink final : public engine::EventSink {
 public:
  void take(engine::Event event) override {
    if (const auto* const error = std::get_if<Error>(&event)) std::puts(error->message().c_str());
  }
};

// Adapters that are there from the beginning, under the names "0", "1" ...
class ReadyAdapters final : public engine::AdapterStore {
 public:
  explicit ReadyAdapters(std::span<const lora::Mix> mixes) : mixes_(mixes) {}

  void set_wake(std::function<void()>) override {}
  void begin(Job job) override { jobs_.push_back(std::move(job)); }
  std::optional<Done> take_done() override {
    if (jobs_.empty()) return {};
    const Job job = std::move(jobs_.back());
    jobs_.pop_back();
    const lora::Handle handle = handle_of(job.spec.name);
    Done done{.id = job.id, .version = handle->version(), .pages = 1, .rank = 16};
    if (foreseen) done.sites = handle->site_set();
    if (job.task == Task::place) done.handle = handle;
    return done;
  }
  // Whether loading an adapter says what it changes.
  bool foreseen = true;

  lora::Handle acquire(const std::string& name, lora::ContentVersion) override {
    return handle_of(name);
  }
  Usage usage() const override {
    return {.pages = mixes_.size(), .free_pages = mixes_.size(), .page_bytes = 1};
  }

 private:
  lora::Handle handle_of(const std::string& name) const {
    std::size_t index = 0;
    std::from_chars(name.data(), name.data() + name.size(), index);
    return mixes_[index].parts()[0].adapter;
  }

  std::span<const lora::Mix> mixes_;
  std::vector<Job> jobs_;
};

// Steps as they were given to an executor, so that they can be taken again.
class Recorder final : public engine::Executor {
 public:
  explicit Recorder(engine::Executor& executor) : executor_(executor) {}

  struct Chunk {
    std::vector<std::int32_t> pages;
    std::int64_t length = 0;
    std::int32_t token = 0;
    lora::Mix mix;
  };
  bool recording = false;
  std::vector<std::vector<Chunk>> steps;

  Limits limits() const override { return executor_.limits(); }
  Result<void> takes(const lora::Mix& mix) const override { return executor_.takes(mix); }
  Result<void> copy_page(std::int32_t from, std::int32_t to) override {
    return executor_.copy_page(from, to);
  }
  Result<void> copy_state(std::int32_t from, std::int32_t to) override {
    return executor_.copy_state(from, to);
  }
  Result<void> save_state(std::int32_t slot, std::int32_t place) override {
    return executor_.save_state(slot, place);
  }
  Result<void> restore_state(std::int32_t place, std::int32_t slot) override {
    return executor_.restore_state(place, slot);
  }
  Result<void> step(std::span<const runner::Chunk> chunks, std::span<engine::ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    if (recording) {
      std::vector<Chunk>& step = steps.emplace_back();
      for (const runner::Chunk& each : chunks)
        step.push_back({.pages = {each.pages.begin(), each.pages.end()},
                        .length = each.length,
                        .token = each.tokens[0],
                        .mix = each.mix});
    }
    return executor_.step(chunks, outputs, meanwhile);
  }
  void foresee(const lora::SiteSet& sites) override { executor_.foresee(sites); }
  Result<bool> work_ahead() override { return executor_.work_ahead(); }
  Result<void> release_adapters() override { return executor_.release_adapters(); }

 private:
  engine::Executor& executor_;
};

enum class Draws : std::uint8_t { greedy, sampled, penalties };

struct Case {
  std::int64_t batch = 0;
  int adapters = 0;
  Draws draws = Draws::greedy;
};

class Bench {
 public:
  Result<void> run(std::string_view shape, std::int64_t layers, int steps) {
    steps_ = steps;
    MOTLEY_TRY(device_, tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}));
    MOTLEY_TRY(model::Config config, model::shape_config(shape, layers));
    MOTLEY_TRY(model_, model::Model::random(std::move(config), model::RandomWeights::Experts::bf16,
                                            *device_, {.exact = false}));
    MOTLEY_TRY(adapters_,
               cli::RandomAdapters::create(
                   *model_, *device_,
                   {.count = traced_adapters, .ranks = {16}, .factors = model_->activations()}));
    // What a sequence may have, and what those here have.
    constexpr std::int64_t longest = 40960;
    const std::int64_t pages = runner::KvMemory::pages_for(prompt_tokens + warm_up + steps) + 3;
    MOTLEY_TRY(runner_, runner::Runner::create(*model_, *device_,
                                               {.max_rows = 1024,
                                                .max_sequences = max_sequences,
                                                .max_tokens = longest,
                                                .pages = (max_sequences + 1) * pages,
                                                .logit_rows = max_sequences,
                                                .adapters = &adapters_->pool(),
                                                .capture_in_steps = false}));
    MOTLEY_TRY(executor_, engine::RunnerExecutor::create(*runner_, model_->config().vocabulary));
    std::printf("%s, %d layers; %s\n", std::string(shape).c_str(),
                static_cast<int>(model_->config().layers), device_->description().c_str());
    const auto at_start = [&]() -> Result<std::size_t> {
      MOTLEY_TRY_VOID(runner_->warm_up());
      return runner_->graphs();
    };
    const auto ahead = [&]() -> Result<std::size_t> {
      for (std::size_t count = 0;; ++count) {
        MOTLEY_TRY(const bool more, runner_->capture_ahead());
        if (!more) return count;
      }
    };
    MOTLEY_TRY_VOID(time_graphs("at start", at_start));
    MOTLEY_TRY_VOID(trace_first_use(false));
    MOTLEY_TRY_VOID(time_graphs("for these adapters", ahead));
    MOTLEY_TRY_VOID(trace_first_use(true));
    std::printf("%5s %8s %-9s %10s %10s %9s %7s\n", "batch", "adapters", "draws", "engine us",
                "bare us", "added us", "share");
    for (const std::int64_t batch : {1, 8, 64, 256}) {
      for (const int adapters : {0, adapter_count}) {
        for (const Draws draws : {Draws::greedy, Draws::sampled, Draws::penalties})
          MOTLEY_TRY_VOID(measure({.batch = batch, .adapters = adapters, .draws = draws}));
      }
    }
    return {};
  }

 private:
  Result<void> time_graphs(std::string_view which, FunctionRef<Result<std::size_t>()> capture) {
    MOTLEY_TRY(const tensor::MemoryInfo before, device_->memory());
    const TimePoint begin = clock_.now();
    MOTLEY_TRY(const std::size_t graphs, capture());
    MOTLEY_TRY(const tensor::MemoryInfo after, device_->memory());
    std::printf("%d graphs %s in %.2f s, %.0f MB with the kernels' code; the last one in %.2f ms\n",
                static_cast<int>(graphs), std::string(which).c_str(), seconds(clock_.now() - begin),
                static_cast<double>(before.available - after.available) / 1e6,
                seconds(runner_->capture_time()) * 1e3);
    return {};
  }

  // Step times while adapters come for the first time and go: eight base sequences, then one with
  // an adapter beside them, then twenty, then four.
  Result<void> trace_first_use(bool foreseen) {
    const auto sink = std::make_shared<NoSink>();
    ReadyAdapters store(adapters_->mixes());
    store.foreseen = foreseen;
    engine::Scheduler scheduler(executor_.get(), &store, &clock_, {.prefix_cache = false});
    for (int i = 0; i < traced_adapters; ++i) {
      scheduler.residency().load({.name = cat(i)}, false,
                                 [](const Result<void>& loaded) { loaded.value(); });
    }
    while (scheduler.residency().jobs() > 0) scheduler.residency().collect();
    constexpr int base = 8;
    for (int i = 0; i < base; ++i) submit(scheduler, {.batch = base}, i, sink);
    while (scheduler.waiting() > 0 || sequences_in_prompt(scheduler))
      MOTLEY_TRY_VOID(scheduler.step());
    std::printf("steps around the first use of adapters (%s)\n",
                foreseen ? "captured for them" : "captured at start, for any");
    const auto join = [&](int first, int end) {
      for (int i = first; i < end; ++i)
        submit_request(scheduler,
                       {.tokens = {5}, .adapters = {{.name = cat(i)}}, .max_tokens = 1000},
                       base + i, sink);
    };
    MOTLEY_TRY_VOID(trace_phase(scheduler, "base alone"));
    join(0, 1);
    MOTLEY_TRY_VOID(trace_phase(scheduler, "one adapter"));
    join(1, traced_adapters);
    MOTLEY_TRY_VOID(trace_phase(scheduler, "twenty"));
    for (engine::RequestId i = adapter_count; i < traced_adapters; ++i)
      scheduler.cancel(base + i + 1);
    MOTLEY_TRY_VOID(trace_phase(scheduler, "four"));
    scheduler.cancel_all();
    MOTLEY_TRY_VOID(scheduler.step());
    return {};
  }

  Result<void> trace_phase(engine::Scheduler& scheduler, const char* name) {
    std::vector<double> times;
    for (int i = 0; i < 60; ++i) {
      const TimePoint begin = clock_.now();
      MOTLEY_TRY_VOID(scheduler.step());
      times.push_back(seconds(clock_.now() - begin) * 1e6);
    }
    std::vector<double> sorted = times;
    std::ranges::sort(sorted);
    const double median = sorted[sorted.size() / 2];
    std::printf("  %-12s first us %7.0f %7.0f %7.0f %7.0f  median %7.0f  longest %7.0f (x%.2f)\n",
                name, times[0], times[1], times[2], times[3], median, sorted.back(),
                sorted.back() / median);
    return {};
  }

  Result<void> measure(const Case& each) {
    const auto sink = std::make_shared<NoSink>();
    ReadyAdapters store(adapters_->mixes());
    Recorder recorder(*executor_);
    engine::Scheduler scheduler(&recorder, &store, &clock_, {.prefix_cache = true});
    for (int i = 0; i < adapter_count; ++i) {
      scheduler.residency().load({.name = cat(i)}, false,
                                 [](const Result<void>& loaded) { loaded.value(); });
    }
    while (scheduler.residency().jobs() > 0) scheduler.residency().collect();
    for (std::int64_t i = 0; i < each.batch; ++i) submit(scheduler, each, i, sink);
    // Prompts first.
    while (scheduler.waiting() > 0 || sequences_in_prompt(scheduler)) {
      MOTLEY_TRY_VOID(scheduler.step());
    }
    for (int i = 0; i < warm_up; ++i) MOTLEY_TRY_VOID(scheduler.step());
    const std::uint64_t launches = runner_->graph_launches();
    recorder.recording = true;
    recorder.steps.reserve(static_cast<std::size_t>(steps_));
    const TimePoint begin = clock_.now();
    for (int i = 0; i < steps_; ++i) MOTLEY_TRY_VOID(scheduler.step());
    const double engine = seconds(clock_.now() - begin) / steps_;
    const bool by_graph =
        runner_->graph_launches() - launches == static_cast<std::uint64_t>(steps_);
    scheduler.cancel_all();
    MOTLEY_TRY(const double bare, bare_step(recorder));
    static constexpr const char* names[] = {"greedy", "sampled", "penalties"};
    std::printf("%5d %8d %-9s %10.1f %10.1f %9.1f %6.1f%%%s\n", static_cast<int>(each.batch),
                each.adapters, names[static_cast<int>(each.draws)], engine * 1e6, bare * 1e6,
                (engine - bare) * 1e6, 100 * (engine - bare) / engine,
                by_graph ? "" : "  (no graph)");
    std::fflush(stdout);
    return {};
  }

  bool sequences_in_prompt(const engine::Scheduler& scheduler) const {
    engine::Stats stats;
    scheduler.fill(stats);
    return stats.time_to_first_token.count < static_cast<std::uint64_t>(stats.requests);
  }

  void submit(engine::Scheduler& scheduler, const Case& each, std::int64_t i,
              const std::shared_ptr<NoSink>& sink) {
    engine::Request request{.sampling = {.temperature = 0}, .max_tokens = 1000};
    for (std::int64_t t = 0; t < prompt_tokens; ++t)
      request.tokens.push_back(static_cast<std::int32_t>((i * 131 + t * 17) % 5000));
    if (each.adapters > 0) request.adapters = {{.name = cat(i % each.adapters)}};
    if (each.draws != Draws::greedy)
      request.sampling = {.temperature = 0.8F, .top_p = 0.95F, .seed = i};
    if (each.draws == Draws::penalties) request.sampling.repetition_penalty = 1.1F;
    submit_request(scheduler, std::move(request), i, sink);
  }

  void submit_request(engine::Scheduler& scheduler, engine::Request request, std::int64_t i,
                      const std::shared_ptr<NoSink>& sink) {
    samplers_.prepare(request, [&](Result<std::unique_ptr<engine::Sampler>> sampler) {
      scheduler.submit({.id = static_cast<engine::RequestId>(i + 1),
                        .request = request,
                        .sink = sink,
                        .sampler = *std::move(sampler),
                        .accepted = clock_.now()});
    });
  }

  Result<double> bare_step(const Recorder& recorder) {
    std::vector<runner::Chunk> chunks;
    TimePoint begin;
    // Once to warm up.
    for (const bool timed : {false, true}) {
      begin = clock_.now();
      for (const std::vector<Recorder::Chunk>& step : recorder.steps) {
        chunks.clear();
        for (const Recorder::Chunk& each : step)
          chunks.push_back({.pages = each.pages,
                            .length = each.length,
                            .tokens = std::span(&each.token, 1),
                            .mix = each.mix});
        MOTLEY_TRY_VOID(
            runner_->step(chunks, [](const tensor::Tensor&, std::span<const runner::LogitRow>) {
              return Result<void>();
            }));
        if (!timed) break;
      }
      MOTLEY_TRY_VOID(runner_->stream().synchronize());
    }
    return seconds(clock_.now() - begin) / steps_;
  }

  int steps_ = 0;
  SteadyClock clock_;
  std::unique_ptr<tensor::Device> device_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<cli::RandomAdapters> adapters_;
  std::unique_ptr<runner::Runner> runner_;
  engine::SamplerMaker samplers_{std::nullopt, 1};
  std::unique_ptr<engine::RunnerExecutor> executor_;
};

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) {
  const std::string_view shape = argc > 1 ? argv[1] : "qwen3-30b-a3b";
  const auto number = [&](int at, int otherwise) {
    if (argc <= at) return otherwise;
    const std::string_view text = argv[at];
    std::from_chars(text.data(), text.data() + text.size(), otherwise);
    return otherwise;
  };
  const auto done = motley::bench::Bench().run(shape, number(2, 48), number(3, 40));
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
