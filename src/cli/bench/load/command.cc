#include "cli/bench/load/command.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/cat.h"
#include "base/system/files.h"
#include "cli/bench/load/engine_target.h"
#include "cli/bench/load/report.h"
#include "cli/bench/load/run.h"
#include "cli/bench/load/turns.h"
#include "cli/bench/load/url_target.h"
#include "cli/bench/random_model.h"
#include "cli/options/arguments/option_values.h"
#include "cli/options/settings/model_settings.h"
#include "lora/files/random_adapter.h"
#include "lora/pages/pool.h"
#include "serving/devices.h"
#include "serving/engine_stack.h"
#include "serving/load_model.h"

namespace motley::cli {
namespace {

constexpr std::int64_t max_tokens = 1 << 20;
constexpr std::int64_t max_requests = 100'000'000;
constexpr std::int64_t default_requests = 200;
constexpr std::int64_t max_adapters = 4096;
constexpr std::int64_t max_turns = 1000;
constexpr std::int64_t default_conversations = 5;
constexpr std::int64_t tokens_before_turns = 8192;
constexpr std::int64_t tokens_of_turns = 32;
constexpr std::size_t longest_key_file = 1 << 16;

struct Settings {
  LoadShape shape;
  std::vector<double> zipf = {0};  // one load for each
  std::vector<LoadSize> sizes;
  std::optional<TurnsShape> turns = {};  // instead of loads
  bool json = false;
};

// "100" or "100-200".
Result<TokenRange> parse_range(std::string_view text, std::string_view option) {
  const std::size_t dash = text.find('-');
  MOTLEY_TRY(const std::int64_t least, parse_number(text.substr(0, dash), option, 1, max_tokens));
  if (dash == text.npos) return TokenRange{.least = least, .most = least};
  MOTLEY_TRY(const std::int64_t most,
             parse_number(text.substr(dash + 1), option, least, max_tokens));
  return TokenRange{.least = least, .most = most};
}

Result<double> parse_decimal(std::string_view text, std::string_view option, double least,
                             double most) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      !(number >= least && number <= most))
    return wrong_option(cat("not a number for this: ", quote(text)), option,
                        cat("use ", least, " to ", most));
  return number;
}

Result<void> read_extent(const Arguments& arguments, LoadSize& size) {
  const std::string* const requests = arguments.value("--requests");
  const std::string* const duration = arguments.value("--duration");
  if (requests != nullptr && duration != nullptr)
    return wrong_option("both a number of requests and a time", "--duration", "give one of them");
  size.requests = default_requests;
  if (requests != nullptr) {
    MOTLEY_TRY(size.requests, parse_number(*requests, "--requests", 1, max_requests));
  }
  if (duration != nullptr) {
    MOTLEY_TRY(const double seconds, parse_decimal(*duration, "--duration", 0.1, 1e6));
    size.requests = 0;
    size.duration = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  return {};
}

Result<std::vector<LoadSize>> read_sizes(const Arguments& arguments) {
  LoadSize size;
  MOTLEY_TRY_VOID(read_extent(arguments, size));
  std::vector<LoadSize> sizes;
  const std::string* const rates = arguments.value("--rate");
  const std::string* const levels = arguments.value("--concurrency");
  if (levels != nullptr || rates == nullptr) {
    MOTLEY_TRY(const std::vector<std::int64_t> counts,
               parse_numbers(levels == nullptr ? "8" : *levels, "--concurrency", 1, 100'000));
    for (const std::int64_t count : counts) {
      size.level = static_cast<double>(count);
      sizes.push_back(size);
    }
  }
  if (rates != nullptr) {
    size.arrivals = LoadSize::Arrivals::poisson;
    for (const std::string_view part : split_list(*rates)) {
      MOTLEY_TRY(size.level, parse_decimal(part, "--rate", 1e-3, 1e6));
      sizes.push_back(size);
    }
  }
  if (sizes.empty())
    return wrong_option("no load", "--concurrency", "name how many requests are under way");
  return sizes;
}

// Conversations of several turns, with the shape's prompts and answers.
Result<std::optional<TurnsShape>> read_turns(const Arguments& arguments, const LoadShape& shape) {
  const std::string* const text = arguments.value("--turns");
  const std::string* const more = arguments.value("--new-tokens");
  if (text == nullptr) {
    if (more != nullptr)
      return wrong_option("only later turns have new tokens", "--new-tokens", "add --turns");
    return std::optional<TurnsShape>();
  }
  for (const std::string_view other : {"--url", "--concurrency", "--rate", "--duration", "--zipf"})
    if (arguments.has(other))
      return wrong_option("one turn of one conversation is under way, on an engine of its own",
                          "--turns", cat("leave ", other, " out"));
  TurnsShape turns{.first = shape, .conversations = default_conversations};
  MOTLEY_TRY(turns.turns, parse_number(*text, "--turns", 2, max_turns));
  if (more != nullptr) {
    MOTLEY_TRY(turns.new_tokens, parse_number(*more, "--new-tokens", 1, max_tokens));
  }
  if (const std::string* const requests = arguments.value("--requests")) {
    MOTLEY_TRY(turns.conversations, parse_number(*requests, "--requests", 1, max_requests));
  }
  return std::optional(turns);
}

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings{.json = arguments.has("--json")};
  if (arguments.has("--turns")) {
    settings.shape.prompt = {.least = tokens_before_turns, .most = tokens_before_turns};
    settings.shape.output = {.least = tokens_of_turns, .most = tokens_of_turns};
  }
  if (const std::string* const text = arguments.value("--prompt-tokens")) {
    MOTLEY_TRY(settings.shape.prompt, parse_range(*text, "--prompt-tokens"));
  }
  if (const std::string* const text = arguments.value("--output-tokens")) {
    MOTLEY_TRY(settings.shape.output, parse_range(*text, "--output-tokens"));
  }
  if (const std::string* const text = arguments.value("--zipf")) {
    settings.zipf.clear();
    for (const std::string_view part : split_list(*text)) {
      MOTLEY_TRY(const double exponent, parse_decimal(part, "--zipf", 0, 10));
      settings.zipf.push_back(exponent);
    }
  }
  if (const std::string* const text = arguments.value("--seed")) {
    MOTLEY_TRY(const std::int64_t seed, parse_number(*text, "--seed", 0, 1L << 62));
    settings.shape.seed = static_cast<std::uint64_t>(seed);
  }
  MOTLEY_TRY(settings.turns, read_turns(arguments, settings.shape));
  MOTLEY_TRY(settings.sizes, read_sizes(arguments));
  return settings;
}

// Runs loads on a target, with a row of results for each; counts failures.
class Loads {
 public:
  Loads(const Settings& settings, Output output) : settings_(settings), output_(output) {}

  // Conversations instead of loads.
  Result<void> run_turns(engine::Engine& engine, std::int64_t vocabulary) {
    MOTLEY_TRY(const std::vector<Turn> turns,
               cli::run_turns(engine, vocabulary, *settings_.turns, clock_));
    output_(settings_.json ? turns_json(turns) : turns_table(turns));
    return {};
  }

  // `engine`: the target's own, if there is one; `in_memory`: the number of adapters that it has
  // memory for.
  void run(LoadTarget& target, engine::Engine* engine, std::int64_t in_memory = 0) {
    for (const double zipf : settings_.zipf) {
      for (const LoadSize& size : settings_.sizes) {
        LoadCase about{.shape = settings_.shape,
                       .size = size,
                       .adapters = target.adapters(),
                       .in_memory = in_memory};
        about.shape.zipf = zipf;
        run_case(target, engine, about);
      }
    }
  }

  void say(std::string_view line) {
    if (!settings_.json) output_(cat(line, "\n"));
  }

  Result<void> end() const {
    if (failed_ == 0) return {};
    return Error(ErrorCode::internal,
                 cat(failed_, " of ", requests_, " requests failed, the first: ", first_error_), "",
                 "the figures are of the others");
  }

 private:
  void run_case(LoadTarget& target, engine::Engine* engine, LoadCase& about) {
    const engine::Stats before = engine == nullptr ? engine::Stats() : engine->stats();
    const LoadSummary summary = summarize(run_load(target, about.shape, about.size, clock_));
    if (engine != nullptr) {
      const engine::Stats after = engine->stats();
      about.adapter_loads = after.adapter_loads - before.adapter_loads;
      about.preemptions = after.preemptions - before.preemptions;
    }
    print(about, summary);
  }

  void print(const LoadCase& about, const LoadSummary& summary) {
    requests_ += summary.requests;
    if (failed_ == 0) first_error_ = summary.first_error;
    failed_ += summary.failed;
    if (settings_.json) {
      output_(load_json(about, summary));
    } else {
      if (!std::exchange(has_head_, true)) output_(load_table_head());
      output_(load_table_row(about, summary));
    }
    // Rows are printed at once, whatever happens to the next.
    std::fflush(stdout);
  }

  const Settings& settings_;
  Output output_;
  SteadyClock clock_;
  bool has_head_ = false;
  std::int64_t requests_ = 0;
  std::int64_t failed_ = 0;
  std::string first_error_;
};

std::string describe(const LoadShape& shape, std::size_t adapters) {
  const auto range = [](const TokenRange& of) {
    return of.least == of.most ? cat(of.least) : cat(of.least, " to ", of.most);
  };
  std::string text =
      cat("prompts of ", range(shape.prompt), " tokens, answers of ", range(shape.output));
  if (adapters > 0) text += cat(", ", adapters, adapters == 1 ? " adapter" : " adapters");
  return text;
}

Result<void> load_url(const Arguments& arguments, const Settings& settings, Output output) {
  UrlTarget::Options options;
  MOTLEY_TRY(options.url, net::ServerUrl::parse(*arguments.value("--url")));
  if (const std::string* const name = arguments.value("--name")) options.model = *name;
  if (const std::string* const text = arguments.value("--vocabulary")) {
    MOTLEY_TRY(options.vocabulary, parse_number(*text, "--vocabulary", 1, 1 << 24));
  }
  if (const std::string* const path = arguments.value("--api-key-file")) {
    MOTLEY_TRY(const std::string keys, read_text(*path, longest_key_file));
    options.key = keys.substr(0, keys.find_first_of("\r\n"));
  }
  MOTLEY_TRY(const std::unique_ptr<UrlTarget> target, UrlTarget::open(options));
  Loads loads(settings, output);
  loads.say(cat(*arguments.value("--url"), ", ", printable(target->base()), "; ",
                describe(settings.shape, target->adapters())));
  loads.run(*target, nullptr);
  return loads.end();
}

// Requests need no text: prompts are random tokens, and generated tokens are counted.
Result<void> load_model_folder(const Arguments& arguments, const Settings& settings,
                               Output output) {
  MOTLEY_TRY(ModelSettings model, read_model_settings(arguments));
  MOTLEY_TRY_VOID(require_one_replica(model.engine.compute, "bench"));
  MOTLEY_TRY(model.engine.compute, serving::choose_devices(std::move(model.engine.compute)));
  const auto from_folder = [&](tensor::Device& device, serving::EngineSettings& engine,
                               const serving::ModelRank& rank) {
    return serving::load_model(model.model, engine.compute, device, rank);
  };
  MOTLEY_TRY(const std::unique_ptr<serving::EngineStack> stack,
             serving::EngineStack::load(model.engine, {.model = from_folder, .adapter = {}}));
  std::vector<std::string> adapters;
  for (const serving::StartAdapter& adapter : model.engine.adapters)
    adapters.push_back(adapter.name);
  EngineTarget target(stack->engine(), adapters, stack->config().vocabulary);
  Loads loads(settings, output);
  loads.say(cat(model.name, "; ", describe(settings.shape, adapters.size())));
  if (settings.turns) return loads.run_turns(stack->engine(), stack->config().vocabulary);
  loads.run(target, &stack->engine());
  return loads.end();
}

// A random model with random adapters, with memory for all of them or for fewer.
struct RandomLoad {
  serving::EngineSettings stack;
  RandomModelSettings model;
  std::size_t adapters = 0;
  std::vector<std::int64_t> in_memory;  // a load for each
};

Result<RandomLoad> read_random_load(const Arguments& arguments) {
  RandomLoad load;
  MOTLEY_TRY(ModelSettings settings, read_model_settings(arguments));
  load.stack = std::move(settings.engine);
  MOTLEY_TRY_VOID(require_one_replica(load.stack.compute, "bench"));
  MOTLEY_TRY(load.stack.compute, serving::choose_devices(std::move(load.stack.compute)));
  MOTLEY_TRY(load.model, read_random_model_settings(arguments));
  if (const std::string* const text = arguments.value("--adapters")) {
    MOTLEY_TRY(const std::int64_t count, parse_number(*text, "--adapters", 0, max_adapters));
    load.adapters = static_cast<std::size_t>(count);
  }
  const auto all = static_cast<std::int64_t>(load.adapters);
  load.in_memory = {all};
  if (const std::string* const text = arguments.value("--adapters-in-memory")) {
    MOTLEY_TRY(load.in_memory, parse_numbers(*text, "--adapters-in-memory", 1, all));
  }
  return load;
}

std::size_t number_of(const std::string& adapter) {
  std::size_t number = 0;
  std::from_chars(adapter.data(), adapter.data() + adapter.size(), number);
  return number;
}

Result<std::unique_ptr<serving::EngineStack>> make_random_stack(const RandomLoad& load,
                                                                std::int64_t in_memory,
                                                                Loads& loads) {
  const auto make_model =
      [&](tensor::Device& device, serving::EngineSettings& stack,
          const serving::ModelRank& rank) -> Result<std::unique_ptr<model::Model>> {
    MOTLEY_TRY(RandomModel made, make_random_model(load.model, stack.compute, device, rank));
    if (rank.ranks != nullptr && rank.ranks->rank() > 0) return std::move(made.model);
    loads.say(made.description);
    // The largest adapter determines the memory; one of each rank is measured.
    const lora::Pool::Options pages{
        .dtype = stack.compute.factors.value_or(made.model->activations()),
        .experts = made.model->factor_layout(),
        .directory = device.id().kind != tensor::DeviceKind::cpu,
        .shards = made.model->base_view().shards()};
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < std::min(load.adapters, load.model.ranks.size()); ++i)
      most = std::max(
          most, lora::Pool::pages_of(
                    lora::random_adapter(made.model->base_view(), load.model.adapter(i)), pages));
    stack.memory.adapter_memory = std::max<std::uint64_t>(most, 1) * pages.page_bytes *
                                  static_cast<std::uint64_t>(std::max<std::int64_t>(in_memory, 1));
    if (!stack.memory.adapter_host_memory)
      stack.memory.adapter_host_memory = std::max<std::uint64_t>(most, 1) * pages.page_bytes *
                                         std::max<std::size_t>(load.adapters, 1) *
                                         static_cast<std::uint64_t>(stack.compute.ranks);
    return std::move(made.model);
  };
  const auto make_adapter = [&](const engine::AdapterSpec& spec,
                                const lora::BaseView& base) -> Result<lora::Adapter> {
    return lora::random_adapter(base, load.model.adapter(number_of(spec.name)));
  };
  serving::EngineSettings stack = load.stack;
  for (std::size_t i = 0; i < load.adapters; ++i) stack.adapters.push_back({.name = cat(i)});
  return serving::EngineStack::load(std::move(stack),
                                    {.model = make_model, .adapter = make_adapter});
}

Result<void> load_random_model(const Arguments& arguments, const Settings& settings,
                               Output output) {
  MOTLEY_TRY(const RandomLoad load, read_random_load(arguments));
  Loads loads(settings, output);
  loads.say(describe(settings.shape, load.adapters));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < load.adapters; ++i) names.push_back(cat(i));
  for (const std::int64_t in_memory : load.in_memory) {
    MOTLEY_TRY(const std::unique_ptr<serving::EngineStack> stack,
               make_random_stack(load, in_memory, loads));
    if (settings.turns) return loads.run_turns(stack->engine(), stack->config().vocabulary);
    EngineTarget target(stack->engine(), names, stack->config().vocabulary);
    loads.run(target, &stack->engine(), in_memory);
  }
  return loads.end();
}

}  // namespace

bool asks_for_load(const Arguments& arguments) {
  return !arguments.positional(0).empty() || arguments.has("--url") ||
         arguments.has("--concurrency") || arguments.has("--rate") || arguments.has("--turns");
}

std::vector<OptionSpec> load_option_specs() {
  return {
      {"--url", "URL",
       "a server with OpenAI's protocol, and all of its adapters; or unix:PATH of its socket"},
      {"--concurrency", "LIST", "requests that are always under way (8)"},
      {"--rate", "LIST", "requests a second on average, each on its own (Poisson)"},
      {"--turns", "N",
       "conversations of N turns instead, one at a time: the time to each turn's first token"},
      {"--new-tokens", "N", "with --turns: of each later turn, after what was said (64)"},
      {"--requests", "N", "of each load (200); with --turns: conversations (5)"},
      {"--duration", "SECONDS", "in which requests begin, instead of a number of them"},
      {"--prompt-tokens", "A-B",
       "of a request, at random (128-512); with --turns: the first (8192)"},
      {"--output-tokens", "A-B", "of a request, at random (32-128; with --turns 32)"},
      {"--zipf", "LIST", "S: adapter i is asked for like i^-S; 0 is all alike (0)"},
      {"--seed", "N", "of prompts, lengths, adapters and arrivals (1)"},
      {"--adapters-in-memory", "LIST", "with --shape: for how many adapters there is memory (all)"},
      {"--vocabulary", "N", "with --url: prompts are token ids below it (256)"},
      {"--api-key-file", "F", "with --url: its first line is the key"}};
}

Result<void> run_bench_load(const Arguments& arguments, Output output) {
  MOTLEY_TRY(const Settings settings, read_settings(arguments));
  if (arguments.has("--url")) return load_url(arguments, settings, output);
  if (arguments.has("--shape")) return load_random_model(arguments, settings, output);
  return load_model_folder(arguments, settings, output);
}

}  // namespace motley::cli
