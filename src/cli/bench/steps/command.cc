#include "cli/bench/steps/command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/cat.h"
#include "base/system/clock.h"
#include "base/units.h"
#include "cli/bench/columns.h"
#include "cli/bench/random_model.h"
#include "cli/bench/steps/ceilings.h"
#include "cli/bench/steps/peers.h"
#include "cli/bench/steps/step_timer.h"
#include "cli/options/arguments/option_values.h"
#include "cli/options/settings/compute_settings.h"
#include "kernels/tuning/candidates.h"
#include "serving/devices.h"
#include "serving/load_model.h"
#include "tensor/device/device.h"

namespace motley::cli {
namespace {

constexpr std::int64_t max_rows = 1 << 16;
constexpr int max_adapters = 4096;
constexpr int rounds = 3;
// Steps of a round, unless --steps says otherwise.
constexpr int decode_steps = 15;
constexpr int prefill_steps = 2;
// The tolerance of the check for uniform routing.
constexpr double uneven = 0.02;

struct Settings {
  RandomModelSettings model;
  serving::ComputeSettings compute;
  std::int64_t context = 1024;
  // Including sizes between those of captured steps.
  std::vector<std::int64_t> batches = {1, 8, 9, 17, 24, 32, 33, 64, 128, 256};
  struct Prompt {
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
  };
  std::vector<Prompt> prompts = {{1, 512}, {1, 2048}, {1, 8192}, {8, 1024}};
  std::vector<std::int64_t> adapters = {0, 1, 4};
  int steps = 0;
  bool json = false;
};

// "8x1024,512", or "none".
Result<std::vector<Settings::Prompt>> parse_prompts(std::string_view text) {
  constexpr std::string_view option = "--prefill";
  std::vector<Settings::Prompt> prompts;
  if (text == "none") return prompts;
  for (const std::string_view part : split_list(text)) {
    const std::size_t times = part.find('x');
    Settings::Prompt prompt{.sequences = 1};
    if (times != part.npos) {
      MOTLEY_TRY(prompt.sequences, parse_number(part.substr(0, times), option, 1, 1024));
    }
    const std::string_view tokens = times == part.npos ? part : part.substr(times + 1);
    MOTLEY_TRY(prompt.tokens, parse_number(tokens, option, 2, max_rows / prompt.sequences));
    prompts.push_back(prompt);
  }
  return prompts;
}

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings{.json = arguments.has("--json")};
  MOTLEY_TRY(settings.model, read_random_model_settings(arguments));
  MOTLEY_TRY(settings.compute, read_compute_settings(arguments));
  MOTLEY_TRY_VOID(require_one_replica(settings.compute, "bench"));
  MOTLEY_TRY(settings.compute, serving::choose_devices(std::move(settings.compute)));
  if (const std::string* const text = arguments.value("--context")) {
    MOTLEY_TRY(settings.context, parse_number(*text, "--context", 1, 1 << 20));
  }
  if (const std::string* const text = arguments.value("--batch")) {
    MOTLEY_TRY(settings.batches, parse_numbers(*text, "--batch", 1, 1024));
  }
  if (const std::string* const text = arguments.value("--prefill")) {
    MOTLEY_TRY(settings.prompts, parse_prompts(*text));
  }
  if (const std::string* const text = arguments.value("--adapters")) {
    MOTLEY_TRY(settings.adapters, parse_numbers(*text, "--adapters", 0, max_adapters));
  }
  if (settings.adapters.empty()) settings.adapters = {0};
  if (const std::string* const text = arguments.value("--steps")) {
    MOTLEY_TRY(const std::int64_t steps, parse_number(*text, "--steps", 1, 100000));
    settings.steps = static_cast<int>(steps);
  }
  return settings;
}

// Runs the shape's cases one after the other, and prints each result at once.
class Bench {
 public:
  Bench(const Settings& settings, Output output) : settings_(settings), output_(output) {}

  Result<void> run();

 private:
  // A timed case, compared with the device's limits.
  struct Case {
    StepShape shape;
    StepTimer::Timed timed;
    StepCost cost;
    double floor = 0;                 // seconds
    std::optional<double> kept = {};  // the time without adapters divided by this time
    double experts = 0;               // experts that a layer read
    double expected = 0;              // their expected number with uniform routing
    double even = 1;                  // the ratio of the two
    bool uneven = false;              // by more than chance
    std::optional<double> sums = {};  // seconds of the sums over ranks, by themselves
    std::optional<double> peer_ms = {};

    std::string_view phase() const { return shape.tokens == 1 ? "decode" : "prefill"; }
    double tokens_a_second() const { return static_cast<double>(shape.rows()) / timed.seconds; }
  };

  Result<void> load();
  Result<void> make_adapters();
  void decode();
  void prefill();
  void fail(const std::string& what, const Error& error);
  // One size with each number of adapters. If a case fails, the error is printed and the next one
  // runs.
  void run_sizes(StepTimer& timer, StepShape shape, int steps);
  // `base`: the step's time without adapters; 0: not measured.
  Case judge(const StepShape& shape, const StepTimer::Timed& timed, double base) const;
  std::string json_line(const Case& done) const;
  std::string table_row(const Case& done) const;
  // Prints information beside the results.
  void say(const std::string& line) {
    if (!settings_.json) output_(line + "\n");
  }

  const Settings& settings_;
  Output output_;
  std::unique_ptr<tensor::Device> device_;
  std::unique_ptr<runner::OtherRanks> others_;  // null: one rank
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<RandomAdapters> adapters_;
  Ceilings ceilings_;
  int failures_ = 0;
  std::string first_failure_;
  int uneven_ = 0;    // cases
  std::string card_;  // the GPU's name; empty: a CPU
};

Result<void> Bench::load() {
  MOTLEY_TRY(device_, serving::open_device(settings_.compute));
  if (device_->id().kind == tensor::DeviceKind::cuda) {
    MOTLEY_TRY(const kernels::cuda::Card card, kernels::cuda::card_of(device_->id().index));
    card_ = card.name;
  }
  MOTLEY_TRY(others_, serving::make_other_ranks(settings_.compute, *device_));
  serving::ModelRank rank;
  if (others_ != nullptr) rank.ranks = &others_->communicator(0);
  MOTLEY_TRY(RandomModel made,
             make_random_model(settings_.model, settings_.compute, *device_, rank));
  model_ = std::move(made.model);
  say(made.description);
  if (others_ == nullptr) return {};
  return others_->load_models(
      [&](tensor::Device& device,
          dist::Communicator& ranks) -> Result<std::unique_ptr<model::Model>> {
        MOTLEY_TRY(RandomModel own,
                   make_random_model(settings_.model, settings_.compute, device, {&ranks, {}}));
        return std::move(own.model);
      });
}

Result<void> Bench::make_adapters() {
  const std::int64_t most = *std::ranges::max_element(settings_.adapters);
  if (most == 0) return {};
  const SteadyClock clock;
  const TimePoint start = clock.now();
  MOTLEY_TRY(adapters_, RandomAdapters::create(
                            *model_, *device_,
                            {.count = static_cast<int>(most),
                             .ranks = settings_.model.ranks,
                             .shared_outer = settings_.model.shared_outer,
                             .factors = settings_.compute.factors.value_or(model_->activations()),
                             .others = others_.get()}));
  say(cat(most, " adapters of rank ", join(settings_.model.ranks),
          settings_.model.shared_outer ? ", outer factors shared" : "",
          settings_.compute.factors ? ", in fp8" : "", ": ", format_bytes(adapters_->bytes()),
          ", made in ", format_seconds(seconds(clock.now() - start))));
  return {};
}

Result<void> Bench::run() {
  MOTLEY_TRY_VOID(load());
  MOTLEY_TRY(ceilings_, measure_ceilings(*device_, model_->kernels(), model_->exact()));
  MOTLEY_TRY_VOID(make_adapters());
  say(cat("ceilings: reads ", decimals(ceilings_.bytes_a_second / 1e9, 0), " GB/s, products ",
          decimals(ceilings_.operations_a_second / 1e12, 2), " TFLOP/s\n"));
  say(
      cat("phase    case      adapters      ms/step    tokens/s         GB    floor ms   over   "
          "kept  experts  even  vLLM+sampling ms",
          others_ == nullptr ? "" : "   sums ms"));
  decode();
  prefill();
  if (failures_ > 0)
    return Error(ErrorCode::internal, cat(failures_, " cases failed, the first: ", first_failure_),
                 settings_.model.shape, "the others stand above");
  if (uneven_ > 0)
    return Error(ErrorCode::internal,
                 cat(uneven_, " cases met more or fewer experts than even choices do, by over ",
                     decimals(100 * uneven, 0), " %"),
                 settings_.model.shape, "their times are not those of even routing");
  return {};
}

void Bench::fail(const std::string& what, const Error& error) {
  const std::string line = cat(what, ": ", error.message());
  if (failures_++ == 0) first_failure_ = line;
  say(line);
}

void Bench::decode() {
  if (settings_.batches.empty()) return;
  const std::int64_t most = *std::ranges::max_element(settings_.batches);
  auto timer = StepTimer::create(*model_, *device_, adapters_.get(),
                                 {.max_sequences = most,
                                  .max_tokens = 1,
                                  .max_rows = most,
                                  .length = settings_.context,
                                  .graphs = settings_.compute.graphs,
                                  .others = others_.get()});
  if (!timer.ok()) return fail("decode", timer.error());
  for (const std::int64_t batch : settings_.batches)
    run_sizes(**timer, {.sequences = batch, .tokens = 1, .length = settings_.context},
              settings_.steps > 0 ? settings_.steps : decode_steps);
}

void Bench::prefill() {
  // Each size has its own runner, because their memory needs differ widely.
  for (const auto& [sequences, tokens] : settings_.prompts) {
    auto timer = StepTimer::create(*model_, *device_, adapters_.get(),
                                   {.max_sequences = sequences,
                                    .max_tokens = tokens,
                                    .max_rows = sequences * tokens,
                                    .graphs = settings_.compute.graphs,
                                    .others = others_.get()});
    if (!timer.ok()) {
      fail(cat("prefill ", sequences, "x", tokens), timer.error());
      continue;
    }
    run_sizes(**timer, {.sequences = sequences, .tokens = tokens},
              settings_.steps > 0 ? settings_.steps : prefill_steps);
  }
}

void Bench::run_sizes(StepTimer& timer, StepShape shape, int steps) {
  double base = 0;
  for (const std::int64_t count : settings_.adapters) {
    // With more adapters than sequences, some would have no rows.
    if (count > shape.sequences) continue;
    shape.adapters = static_cast<int>(count);
    auto timed = timer.run(shape, rounds, steps);
    if (!timed.ok()) {
      fail(cat(shape.sequences, "x", shape.tokens, ", ", count, " adapters"), timed.error());
      continue;
    }
    if (count == 0) base = timed->seconds;
    Case done = judge(shape, *timed, base);
    if (others_ != nullptr) {
      const auto sums = timer.time_sums(shape.rows());
      if (!sums.ok()) return fail("sums over ranks", sums.error());
      done.sums = *sums;
    }
    if (done.uneven) ++uneven_;
    output_(settings_.json ? json_line(done) : table_row(done));
    // Rows are printed at once, whatever happens to the next.
    std::fflush(stdout);
  }
}

Bench::Case Bench::judge(const StepShape& shape, const StepTimer::Timed& timed, double base) const {
  const model::Config& config = model_->config();
  Case done{.shape = shape,
            .timed = timed,
            .cost = step_cost(
                *model_, shape, timed.touched,
                adapters_ == nullptr ? std::span<const AdapterNumbers>() : adapters_->numbers())};
  done.floor = std::max(done.cost.bytes / ceilings_.bytes_a_second,
                        done.cost.operations / ceilings_.operations_a_second);
  if (base > 0) done.kept = base / timed.seconds;
  const auto moe_layers =
      static_cast<double>(std::max<std::ptrdiff_t>(1, std::ranges::count(config.moe_layers, true)));
  const double expected = expected_experts(config, shape.rows());
  done.experts = timed.touched.experts / moe_layers;
  done.expected = expected / moe_layers;
  if (expected > 0) done.even = timed.touched.experts / expected;
  // The count of a few layers and steps varies by chance; three standard deviations are no finding.
  const double met = done.expected / std::max(config.moe.router.experts, 1);
  const double chance = met > 0
                            ? 3 * std::sqrt((1 - met) / (met * StepTimer::counted_steps *
                                                         moe_layers * config.moe.router.experts))
                            : 0;
  done.uneven = std::abs(done.even - 1) - chance > uneven;
  const bool like_peers = others_ == nullptr && settings_.model.ranks == std::vector<int>{16} &&
                          !settings_.model.shared_outer && !settings_.compute.factors &&
                          (shape.tokens > 1 || shape.length == 1024);
  if (like_peers)
    done.peer_ms = peer_ms({.shape = settings_.model.shape,
                            .format = settings_.model.format(),
                            .layers = config.layers,
                            .sequences = shape.sequences,
                            .tokens = shape.tokens,
                            .adapters = shape.adapters,
                            .card = card_});
  return done;
}

std::string Bench::json_line(const Case& done) const {
  const auto known = [](const std::optional<double>& number) {
    return number ? cat(*number) : std::string("null");
  };
  const StepShape& shape = done.shape;
  const double time = done.timed.seconds;
  std::optional<double> peer_seconds = done.peer_ms;
  if (peer_seconds) *peer_seconds /= 1e3;
  return cat(R"({"shape": ")", settings_.model.shape, R"(", "format": ")", settings_.model.format(),
             R"(", "layers": )", model_->config().layers, R"(, "phase": ")", done.phase(),
             R"(", "sequences": )", shape.sequences, R"(, "tokens": )", shape.tokens,
             R"(, "context": )", shape.length, R"(, "adapters": )", shape.adapters,
             R"(, "step_seconds": )", time, R"(, "tokens_per_second": )", done.tokens_a_second(),
             R"(, "bytes": )", done.cost.bytes, R"(, "operations": )", done.cost.operations,
             R"(, "floor_seconds": )", done.floor, R"(, "over_floor": )", time / done.floor,
             R"(, "kept": )", known(done.kept), R"(, "experts_a_layer": )", done.experts,
             R"(, "experts_expected": )", done.expected, R"(, "by_graph": )", done.timed.by_graph,
             R"(, "read_bytes_per_second": )", ceilings_.bytes_a_second,
             R"(, "operations_per_second": )", ceilings_.operations_a_second,
             R"(, "vllm_seconds": )", known(peer_seconds), R"(, "vllm_samples": true, "ranks": )",
             settings_.compute.ranks, R"(, "expert_groups": )", settings_.compute.expert_groups,
             R"(, "sums_seconds": )", known(done.sums), "}\n");
}

std::string Bench::table_row(const Case& done) const {
  const StepShape& shape = done.shape;
  const double time = done.timed.seconds;
  const bool wants_graph = shape.tokens == 1 && settings_.compute.graphs &&
                           device_->id().kind == tensor::DeviceKind::cuda;
  std::string phase(done.phase());
  phase.resize(7, ' ');
  return cat(phase, padded(cat(shape.sequences, "x", shape.tokens), 10),
             padded(cat(shape.adapters), 12), padded(decimals(time * 1e3, 3), 13),
             padded(decimals(done.tokens_a_second(), 0), 12),
             padded(decimals(done.cost.bytes / 1e9, 2), 11),
             padded(decimals(done.floor * 1e3, 3), 12), padded(decimals(time / done.floor, 2), 7),
             padded(done.kept ? cat(decimals(100 * *done.kept, 0), " %") : "-", 7),
             padded(decimals(done.experts, 1), 9), padded(decimals(done.even, 3), 6),
             padded(done.peer_ms ? decimals(*done.peer_ms, 2) : "-", 18),
             done.sums ? padded(decimals(*done.sums * 1e3, 3), 10) : "",
             wants_graph && !done.timed.by_graph ? "  (no graph)" : "",
             done.uneven ? "  (uneven)" : "", "\n");
}

}  // namespace

std::vector<OptionSpec> step_option_specs() {
  return {
      {"--batch", "LIST", "sequences that decode (1,8,9,17,24,32,33,64,128,256), or none"},
      {"--context", "N", "tokens before those that are decoded (1024)"},
      {"--prefill", "LIST", "prompts (512,2048,8192,8x1024), or none"},
      {"--adapters", "LIST", "random ones, so many in use at once (0,1,4); of a load one number"},
      {"--steps", "N", "of each of three rounds"}};
}

Result<void> run_bench_steps(const Arguments& arguments, Output output) {
  MOTLEY_TRY(const Settings settings, read_settings(arguments));
  return Bench(settings, output).run();
}

}  // namespace motley::cli
