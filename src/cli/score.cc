// motley score: log-probabilities of given tokens, all lines as one mixed batch.

#include "runner/score.h"

#include <algorithm>

#include "base/cat.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/system/clock.h"
#include "base/system/files.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options/adapters/adapter_option.h"
#include "cli/options/arguments/option_values.h"
#include "cli/options/folders/adapter_base.h"
#include "cli/options/folders/named_folder.h"
#include "cli/options/settings/compute_settings.h"
#include "lora/files/load.h"
#include "lora/pages/pool.h"
#include "runner/other_ranks.h"
#include "runner/state_plan.h"
#include "serving/devices.h"
#include "serving/load_model.h"
#include "tensor/device/device.h"
#include "text/tokenizer.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t rows_a_step = 512;
constexpr std::int64_t sequences_a_step = 256;
constexpr int max_top = 100;

struct Settings {
  fs::path model;
  fs::path input;
  fs::path output;
  std::vector<serving::StartAdapter> adapters;
  serving::ComputeSettings compute;
  int top = 5;
};

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings{.model = arguments.positional(0)};
  const std::string* const input = arguments.value("--input");
  const std::string* const output = arguments.value("--output");
  if (input == nullptr) return wrong_option("no input", "--input", "name a file of JSON lines");
  if (output == nullptr) return wrong_option("no output", "--output", "name a file to write");
  settings.input = *input;
  settings.output = *output;
  MOTLEY_TRY(settings.model,
             find_model_folder(settings.model, arguments.command(), arguments.environment().hub));
  MOTLEY_TRY(settings.adapters, read_adapter_options(arguments));
  MOTLEY_TRY(settings.compute, read_compute_settings(arguments));
  MOTLEY_TRY_VOID(require_one_replica(settings.compute, "score"));
  if (const std::string* const top = arguments.value("--top")) {
    MOTLEY_TRY(const std::int64_t number, parse_number(*top, "--top", 0, max_top));
    settings.top = static_cast<int>(number);
  }
  return settings;
}

Result<std::vector<runner::ScoreLine>> read_lines(const Settings& settings,
                                                  std::int64_t vocabulary) {
  runner::ScoreKnown known{.vocabulary = vocabulary};
  for (const serving::StartAdapter& adapter : settings.adapters)
    known.adapters.push_back(adapter.name);
  std::optional<text::Tokenizer> tokenizer;
  known.encode = [&](std::string_view prompt) -> Result<std::vector<std::int32_t>> {
    if (!tokenizer) {
      MOTLEY_TRY(tokenizer, text::Tokenizer::load(settings.model));
    }
    return tokenizer->encode(prompt, {});
  };
  return runner::read_score_lines(settings.input, known);
}

// All adapters, in a pool of exactly their size.
struct Adapters {
  std::unique_ptr<lora::Pool> pool;   // rank 0's
  std::vector<lora::Handle> handles;  // in the order of the options
};

// The pages of all adapters' parts on the rank that has the largest, but for rank 0.
std::uint64_t most_pages(std::span<const lora::Adapter> adapters, const runner::OtherRanks& others,
                         lora::Pool::Options options) {
  std::uint64_t most = 0;
  for (int rank = 1; rank < others.ranks(); ++rank) {
    options.shards = others.model(rank).base_view().shards();
    options.experts = others.model(rank).factor_layout();
    std::uint64_t pages = 0;
    for (const lora::Adapter& adapter : adapters) pages += lora::Pool::pages_of(adapter, options);
    most = std::max(most, pages);
  }
  return most;
}

Result<Adapters> load_adapters(const Settings& settings, const model::Model& model,
                               tensor::Device& device, runner::OtherRanks* others) {
  Adapters loaded;
  if (settings.adapters.empty()) return loaded;
  std::vector<lora::Adapter> adapters;
  const bool on_gpu = device.id().kind != tensor::DeviceKind::cpu;
  lora::Pool::Options options{.dtype = settings.compute.factors.value_or(model.activations()),
                              .experts = model.factor_layout(),
                              .directory = on_gpu,
                              .shards = model.base_view().shards()};
  const ServedBase base(settings.model, {});
  std::uint64_t pages = 0;
  for (const serving::StartAdapter& each : settings.adapters) {
    auto adapter = lora::load_adapter(each.path, each.load, model.base_view());
    if (!adapter.ok()) return std::move(adapter).error().within(cat("adapter ", quote(each.name)));
    base.warn(each.name, each.path, each.load.beneath);
    pages += lora::Pool::pages_of(*adapter, options);
    adapters.push_back(*std::move(adapter));
  }
  // A rank may have no part of any.
  options.bytes = std::max<std::uint64_t>(pages, 1) * options.page_bytes;
  if (others != nullptr) {
    lora::Pool::Options theirs = options;
    theirs.bytes =
        std::max<std::uint64_t>(most_pages(adapters, *others, options), 1) * options.page_bytes;
    MOTLEY_TRY(options.other_ranks, others->make_pools(theirs));
  }
  MOTLEY_TRY(loaded.pool, lora::Pool::create(device, options));
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    MOTLEY_TRY(lora::Handle handle, loaded.pool->load(settings.adapters[i].name, adapters[i]));
    loaded.handles.push_back(std::move(handle));
  }
  return loaded;
}

Result<lora::Mix> mix_of(const runner::ScoreLine& line, const Settings& settings,
                         const Adapters& adapters) {
  std::vector<lora::Mix::Part> parts;
  for (const lora::ScaledAdapter& wanted : line.adapters) {
    const auto at = std::ranges::find(settings.adapters, wanted.name, &serving::StartAdapter::name);
    const auto index = static_cast<std::size_t>(at - settings.adapters.begin());
    parts.push_back({.adapter = adapters.handles[index], .scale = wanted.scale});
  }
  return lora::Mix::make(parts);
}

Result<std::vector<lora::Mix>> mixes_of(std::span<const runner::ScoreLine> lines,
                                        const Settings& settings, const Adapters& adapters) {
  std::vector<lora::Mix> mixes;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto mix = mix_of(lines[i], settings, adapters);
    if (!mix.ok())
      return std::move(mix)
          .error()
          .within(cat(printable(settings.input.string()), ", line ", i + 1))
          .as(ErrorCode::invalid_argument);
    mixes.push_back(*std::move(mix));
  }
  return mixes;
}

Result<runner::Runner::Options> runner_options(const model::Model& model, tensor::Device& device,
                                               std::span<const runner::ScoreLine> lines,
                                               std::span<const lora::Mix> mixes, int ranks) {
  int rank = 1;
  int mix_rank = 1;
  for (const lora::Mix& mix : mixes) {
    int sum = 0;
    for (const lora::Mix::Part& part : mix.parts()) {
      const int padded = (part.adapter->largest_rank() + 15) / 16 * 16;
      rank = std::max(rank, padded);
      sum += padded;
    }
    mix_rank = std::max(mix_rank, sum);
  }
  std::int64_t longest = 0;
  std::int64_t all_pages = 0;
  for (const runner::ScoreLine& line : lines) {
    const auto tokens = static_cast<std::int64_t>(line.tokens.size());
    longest = std::max(longest, tokens);
    all_pages += runner::KvMemory::pages_for(tokens);
  }
  MOTLEY_TRY(const tensor::MemoryInfo memory, device.memory());
  // Recurrent layers alone keep nothing for a token.
  const std::int64_t page = std::max<std::int64_t>(
      runner::KvMemory::page_bytes(model.token_caches(), model.kv_type()), 1);
  const auto affordable = static_cast<std::int64_t>(memory.available / 2) / page / ranks;
  const std::int64_t needed = runner::KvMemory::pages_for(longest);
  if (needed > affordable)
    return Error(ErrorCode::out_of_memory,
                 cat("the longest line has ", longest, " tokens, whose keys and values take ",
                     format_bytes(static_cast<std::uint64_t>(needed * page))),
                 "", "score shorter lines, or free some memory");
  // Half of what pages may take.
  const runner::StatePlan states =
      runner::plan_states(memory.available / 2 / static_cast<std::uint64_t>(ranks),
                          runner::StateMemory::slot_bytes(model.state_shapes()), 0,
                          std::min<std::int64_t>(sequences_a_step, std::ssize(lines)));
  return runner::Runner::Options{.max_rows = rows_a_step,
                                 .max_sequences = sequences_a_step,
                                 .max_tokens = longest,
                                 .pages = std::clamp(all_pages, needed, affordable),
                                 .state_slots = states.slots,
                                 .adapter_rank = rank,
                                 .mix_rank = mix_rank};
}

Result<std::unique_ptr<model::Model>> load_models(const Settings& settings, tensor::Device& device,
                                                  runner::OtherRanks* others) {
  serving::ModelRank rank;
  if (others != nullptr) rank.ranks = &others->communicator(0);
  MOTLEY_TRY(std::unique_ptr<model::Model> model,
             serving::load_model(settings.model, settings.compute, device, rank));
  if (others == nullptr) return model;
  MOTLEY_TRY_VOID(others->load_models([&](tensor::Device& theirs, dist::Communicator& ranks) {
    return serving::load_model(settings.model, settings.compute, theirs,
                               {&ranks, model->shared_checkpoint()});
  }));
  return model;
}

Result<void> run_score(const Arguments& arguments, Output output) {
  MOTLEY_TRY(Settings settings, read_settings(arguments));
  MOTLEY_TRY(settings.compute, serving::choose_devices(std::move(settings.compute)));
  MOTLEY_TRY(const std::unique_ptr<tensor::Device> device, serving::open_device(settings.compute));
  // Lines are checked before the weights are loaded, because the config has the vocabulary.
  MOTLEY_TRY(const model::Config config, model::read_config(settings.model));
  MOTLEY_TRY(const std::vector<runner::ScoreLine> lines, read_lines(settings, config.vocabulary));
  // Opened before the weights are loaded, too: a path that can't be written fails early.
  MOTLEY_TRY(AtomicFile file, AtomicFile::create(settings.output));

  MOTLEY_TRY(const std::unique_ptr<runner::OtherRanks> others,
             serving::make_other_ranks(settings.compute, *device));
  MOTLEY_TRY(const std::unique_ptr<model::Model> model,
             load_models(settings, *device, others.get()));
  MOTLEY_TRY(const Adapters adapters, load_adapters(settings, *model, *device, others.get()));
  MOTLEY_TRY(const std::vector<lora::Mix> mixes, mixes_of(lines, settings, adapters));
  MOTLEY_TRY(runner::Runner::Options steps,
             runner_options(*model, *device, lines, mixes, settings.compute.ranks));
  steps.graphs = settings.compute.graphs;
  if (others != nullptr) {
    MOTLEY_TRY_VOID(others->make_runners(steps));
    steps.others = others.get();
  }
  steps.adapters = adapters.pool.get();
  MOTLEY_TRY(const std::unique_ptr<runner::Runner> runner,
             runner::Runner::create(*model, *device, steps));
  log::info("score.start", {{"device", device->description()},
                            {"compute", model->exact() ? "f32" : "bf16"},
                            {"experts", model->describe_backends()},
                            {"adapters", settings.adapters.size()},
                            {"lines", lines.size()}});

  const SteadyClock clock;
  const TimePoint start = clock.now();
  std::uint64_t tokens = 0;
  for (const runner::ScoreLine& line : lines) tokens += line.tokens.size();
  Progress progress = Progress::to_stderr("scoring tokens", tokens, Progress::Unit::count);
  MOTLEY_TRY(const std::vector<runner::ScoreResult> results,
             runner::score(*runner, lines, mixes,
                           {.top = settings.top,
                            .progress = [&](std::uint64_t done) { progress.set(done); }}));
  progress.finish();

  for (std::size_t i = 0; i < lines.size(); ++i)
    MOTLEY_TRY_VOID(file.write(runner::score_output(lines[i], results[i], settings.top)));
  MOTLEY_TRY_VOID(file.commit());
  output(runner::compare_with_references(lines, results));
  output(cat("scored ", lines.size(), " lines, ", tokens, " tokens, in ",
             format_seconds(seconds(clock.now() - start)), "\n"));
  return {};
}

}  // namespace

Command score_command() {
  std::vector<OptionSpec> options = {
      {"--input", "F.jsonl",
       "lines {\"token_ids\": [...] or \"prompt\": TEXT, \"adapter\": NAME}; - is standard input"},
      {"--output", "F.jsonl", "where the results go"},
      {"--adapter", "NAME=PATH", "an adapter that lines may use", true},
      {"--top", "N", "most likely tokens to list for each position (5)"}};
  const std::vector<OptionSpec> compute = compute_option_specs();
  options.insert(options.end(), compute.begin(), compute.end());
  return {
      .spec = {.name = "score",
               .summary = "log-probabilities of given tokens, all lines as one mixed batch",
               .positionals = {"MODEL"},
               .options = std::move(options),
               .examples = {"motley score models/demo --input lines.jsonl --output scores.jsonl",
                            "motley score models/demo --adapter cynic=models/demo/adapters/cynic "
                            "--input - --output scores.jsonl --top 0"},
               .others = OthersOptions::mapped},
      .run = run_score};
}

}  // namespace motley::cli
