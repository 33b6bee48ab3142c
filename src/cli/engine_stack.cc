#include "cli/engine_stack.h"

#include <algorithm>
#include <future>
#include <limits>
#include <mutex>
#include <random>
#include <set>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/cpu.h"
#include "base/system/memory.h"
#include "base/units.h"
#include "cli/adapter_base.h"
#include "cli/adapter_text.h"
#include "cli/options/devices.h"
#include "cli/options/option_values.h"
#include "cli/start_log.h"
#include "engine/adapter_log.h"
#include "grammar/vocabulary.h"
#include "lora/files/load.h"
#include "model/dense_groups.h"

namespace motley::cli {
namespace {

constexpr std::int64_t max_sequences = 256;
constexpr std::int64_t max_rows = 512;
// On a CPU the time of a step is proportional to its rows: with more, one request with many choices
// would delay every token of all others by tens of milliseconds.
constexpr std::int64_t max_sequences_per_cpu = 32;
constexpr std::int64_t min_sequences_on_cpus = 64;
// Long prompts would, too. More rows save a read of the weights, which is worth the delay for large
// weights: one row for this many bytes.
constexpr std::int64_t weight_bytes_per_row = std::int64_t{16} << 20;
constexpr std::uint64_t host_pages_each = 2;  // for each page of a device
constexpr std::uint64_t host_tier_parts = 2;  // at most one part of the host's free memory
// Without --kv-memory: the part of the host's free memory for keys and values, and the part of a
// GPU's memory left to graphs and the driver. Without --request-memory: the part of the host's
// memory for requests.
constexpr std::uint64_t host_parts = 4;
constexpr std::uint64_t gpu_parts_spared = 32;
constexpr std::uint64_t state_parts = 5;  // of what weights and adapters leave
constexpr std::uint64_t least_adapter_memory = std::uint64_t{64} << 20;
constexpr std::string_view sizes_of_steps = "--kv-memory, --state-memory or --max-batch-tokens";

// Requests without a seed differ between starts of the program.
std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::uint64_t bytes_of(const lora::Pool& pool) {
  const lora::Pool::Usage usage = pool.usage();
  return usage.pages * usage.page_bytes;
}

// Of a pool on the host, with those of other ranks; null: there is none.
std::uint64_t bytes_of_ranks(const lora::Pool* pool) {
  if (pool == nullptr) return 0;
  std::uint64_t bytes = bytes_of(*pool);
  for (const lora::Pool* const other : pool->options().other_ranks) bytes += bytes_of(*other);
  return bytes;
}

std::uint64_t shares_of_host(const ComputeSettings& settings) {
  return static_cast<std::uint64_t>(settings.ranks) * static_cast<std::uint64_t>(settings.replicas);
}

// Other processes may allocate and free memory meanwhile.
std::uint64_t less(std::uint64_t bytes, std::uint64_t part) {
  return bytes - std::min(bytes, part);
}

// Adapters are read again whenever they come back from disk. Thread-safe.
class FirstTimes {
 public:
  bool is_first(std::string what) {
    const std::lock_guard held(lock_);
    return seen_.insert(std::move(what)).second;
  }

 private:
  std::mutex lock_;
  std::set<std::string> seen_;
};

}  // namespace

Result<std::uint64_t> host_tier_bytes(const HostTier& tier, std::optional<std::uint64_t> asked) {
  const auto ranks = static_cast<std::uint64_t>(tier.ranks);
  if (!asked) {
    const std::uint64_t available =
        tier.host_available / ranks / static_cast<std::uint64_t>(tier.replicas);
    return std::max(std::min(host_pages_each * tier.pool_bytes, available / host_tier_parts),
                    tier.page_bytes);
  }
  if (*asked / ranks >= tier.page_bytes) return *asked / ranks;
  const std::string for_ranks = ranks > 1 ? cat(" for each of ", ranks, " ranks") : std::string();
  return Error(ErrorCode::invalid_argument,
               cat(format_bytes(*asked), " hold no page of adapters", for_ranks, ", which takes ",
                   format_bytes(tier.page_bytes)),
               {}, cat("give at least ", format_bytes(tier.page_bytes * ranks)));
}

Result<runner::StatePlan> plan_states(const StateRoom& room, const ModelSettings& settings) {
  constexpr std::string_view option = "--state-memory";
  if (room.slot_bytes == 0) {
    const auto refused = [](std::string_view given) {
      return wrong_option("no layer of this model keeps a state for each sequence", given,
                          "leave it out");
    };
    if (settings.state_memory) return refused(option);
    if (settings.state_snapshots) return refused("--state-snapshots");
    return runner::StatePlan{};
  }
  const auto needed = static_cast<std::uint64_t>(room.slot_bytes);
  if (settings.state_memory && *settings.state_memory < needed)
    return wrong_option(cat(format_bytes(*settings.state_memory),
                            " hold no sequence's state, which takes ", format_bytes(needed)),
                        option, "give more, half of it for snapshots");
  return runner::plan_states(settings.state_memory.value_or(room.otherwise), room.slot_bytes,
                             room.snapshot_bytes, room.sequences);
}

std::uint64_t default_request_memory(std::uint64_t total) {
  return std::min(std::uint64_t{2} << 30, total / host_parts);
}

Error sized_by(Error error, std::string_view option) {
  if (error.code() != ErrorCode::out_of_memory) return error;
  return {error.code(), error.what(), error.where(),
          cat("give less with ", option, ", or free some memory")};
}

Result<std::unique_ptr<EngineStack>> EngineStack::load(const ModelSettings& settings,
                                                       const text::ModelText& text,
                                                       Watchdog* watchdog) {
  return load(settings, from_folder(settings, text, watchdog));
}

EngineStack::Source EngineStack::from_folder(const ModelSettings& settings,
                                             const text::ModelText& text, Watchdog* watchdog) {
  const std::vector<std::string> own = text.adapters_with_templates();
  const auto compared = std::make_shared<AdapterText>(
      settings.model, text.config(), std::set<std::string>(own.begin(), own.end()));
  const auto served = std::make_shared<const ServedBase>(settings.model, settings.names());
  const auto named = std::make_shared<FirstTimes>();
  const auto load = [compared, served, named](const engine::AdapterSpec& spec,
                                              const lora::BaseView& base) -> Result<lora::Adapter> {
    MOTLEY_TRY(lora::Adapter adapter, lora::load_adapter(spec.path, spec.load, base));
    compared->warn(spec.name, spec.path);
    if (named->is_first(cat(spec.name, "\n", spec.path.native())))
      served->warn(spec.name, spec.path, spec.load.beneath);
    return adapter;
  };
  return {
      .model = [](tensor::Device& device, ModelSettings& of,
                  const ModelRank& rank) { return load_model(of.model, of.compute, device, rank); },
      .adapter = load,
      .text = &text,
      .watchdog = watchdog};
}

Result<std::unique_ptr<EngineStack>> EngineStack::load(ModelSettings settings,
                                                       const Source& source) {
  std::unique_ptr<EngineStack> stack(new EngineStack);
  StartLog parts(stack->clock_);
  MOTLEY_TRY(std::unique_ptr<tensor::Device> device, open_device(settings.compute));
  MOTLEY_TRY(const tensor::MemoryInfo before, device->memory());
  stack->device_ = std::make_unique<tensor::MeteredDevice>(std::move(device));
  parts.done("the device");
  MOTLEY_TRY_VOID(stack->load_models(settings, source));
  const std::uint64_t weights = stack->device_->usage().bytes;
  parts.done("weights");
  MOTLEY_TRY(const tensor::MemoryInfo left, stack->device_->memory());
  MOTLEY_TRY_VOID(stack->make_pools(settings, left.available));
  parts.done("memory of adapters");
  MOTLEY_TRY_VOID(stack->make_runner(settings, left));
  parts.done("memory of steps, keys and values");
  MOTLEY_TRY_VOID(stack->make_executor(settings, source.text));
  parts.done("sampling and grammars");
  MOTLEY_TRY_VOID(stack->warm_up(before, weights));
  parts.done("first steps and graphs");
  stack->store_ = std::make_unique<engine::PoolStore>(
      engine::PoolStore::Options{.base = &stack->model_->base_view(),
                                 .pool = stack->pool_.get(),
                                 .host_pool = stack->host_pool_.get(),
                                 .source = source.adapter,
                                 .watchdog = source.watchdog});
  stack->engine_ = engine::Replica::create(
      {.executor = stack->executor_.get(),
       .samplers = stack->samplers_.get(),
       .adapters = stack->store_.get(),
       .clock = &stack->clock_},
      {.max_queue = settings.max_queue,
       .snapshot_interval = settings.state_snapshots.value_or(engine::default_snapshot_interval),
       .max_adapters = static_cast<std::size_t>(settings.max_adapters),
       .watchdog = source.watchdog});
  MOTLEY_TRY_VOID(cli::load_adapters(*stack->engine_, settings));
  if (!settings.adapters.empty()) parts.done("adapters");
  return stack;
}

// Rank 0's model, then those of the other ranks.
Result<void> EngineStack::load_models(ModelSettings& settings, const Source& source) {
  MOTLEY_TRY(others_, make_other_ranks(settings.compute, *device_, source.gate));
  ModelRank rank{.checkpoint = source.checkpoint};
  if (others_ != nullptr) rank.ranks = &others_->communicator(0);
  MOTLEY_TRY(model_, source.model(*device_, settings, rank));
  if (others_ == nullptr) return {};
  MOTLEY_TRY_VOID(others_->load_models([&](tensor::Device& device, dist::Communicator& ranks) {
    ModelSettings same = settings;
    return source.model(device, same, {&ranks, model_->shared_checkpoint()});
  }));
  for (int each = 0; each < others_->ranks(); ++each) {
    const model::Model& model = each == 0 ? *model_ : others_->model(each);
    log::info("engine.rank",
              {{"rank", each}, {"holds", model::describe(model.shard(), model.config())}});
  }
  return {};
}

// First adapter memory, then working memory of steps; keys and values get a part of the rest. Of
// several ranks on a CPU, of all replicas, each gets a part of what one would get; a GPU is one
// rank's.
Result<void> EngineStack::make_pools(const ModelSettings& settings, std::uint64_t available) {
  const bool on_gpu = device_->id().kind != tensor::DeviceKind::cpu;
  const std::uint64_t ranks_of_memory = on_gpu ? 1 : shares_of_host(settings.compute);
  lora::Pool::Options pool{.bytes = settings.adapter_memory.value_or(
                               std::max(available / 8 / ranks_of_memory, least_adapter_memory)),
                           .dtype = settings.compute.factors.value_or(model_->activations()),
                           .experts = model_->factor_layout(),
                           .directory = on_gpu};
  if (others_ != nullptr) {
    auto made = others_->make_pools(pool);
    if (!made.ok()) return sized_by(std::move(made).error(), "--adapter-memory");
    pool.other_ranks = *std::move(made);
    pool.shards = model_->base_view().shards();
  }
  auto made = lora::Pool::create(*device_, pool);
  if (!made.ok()) return sized_by(std::move(made).error(), "--adapter-memory");
  pool_ = *std::move(made);
  if (!on_gpu) return {};
  Result<void> on_host = make_host_pools(settings, std::move(pool));
  if (on_host.ok()) return {};
  constexpr std::string_view option = "--adapter-host-memory";
  return sized_by(std::move(on_host).error().within(option), option);
}

// Adapters evicted from the devices are kept on the host.
Result<void> EngineStack::make_host_pools(const ModelSettings& settings, lora::Pool::Options pool) {
  MOTLEY_TRY(const MachineMemory host, machine_memory());
  MOTLEY_TRY(pool.bytes, host_tier_bytes({.pool_bytes = pool.bytes,
                                          .page_bytes = pool.page_bytes,
                                          .host_available = host.available,
                                          .ranks = settings.compute.ranks,
                                          .replicas = settings.compute.replicas},
                                         settings.adapter_host_memory));
  pool.directory = false;
  if (others_ != nullptr) {
    pool.spare_bytes /= static_cast<std::uint64_t>(settings.compute.ranks);
    pool.gate = others_->gate();
    MOTLEY_TRY(pool.other_ranks, others_->make_host_pools(pool));
  }
  MOTLEY_TRY(host_pool_, lora::Pool::create(device_->pinned_memory(), pool));
  return {};
}

Result<void> EngineStack::make_runner(const ModelSettings& settings,
                                      const tensor::MemoryInfo& memory) {
  const bool on_gpu = device_->id().kind != tensor::DeviceKind::cpu;
  MOTLEY_TRY_VOID(check_max_model_len(settings.max_model_len, model_->config().max_positions));
  const std::int64_t longest = settings.max_model_len.value_or(model_->config().max_positions);
  const std::int64_t for_cpus = std::max(
      min_sequences_on_cpus, max_sequences_per_cpu * usable_cpus() / settings.compute.replicas);
  const auto weights = model_->checkpoint() == nullptr
                           ? std::numeric_limits<std::int64_t>::max()
                           : static_cast<std::int64_t>(model_->checkpoint()->file_bytes());
  const std::int64_t rows_for_cpus = std::min(max_rows, weights / weight_bytes_per_row + for_cpus);
  const std::int64_t rows = settings.max_batch_tokens.value_or(on_gpu ? max_rows : rows_for_cpus);
  const std::int64_t sequences = std::min({max_sequences, rows, on_gpu ? max_sequences : for_cpus});
  runner::Runner::Options options{.max_rows = rows,
                                  .max_sequences = sequences,
                                  .max_tokens = longest,
                                  .pages = sequences * runner::KvMemory::pages_for(longest),
                                  .adapters = pool_.get(),
                                  .graphs = settings.compute.graphs,
                                  .capture_in_steps = false};
  // A GPU's step of single tokens is one graph, so all of its logits are computed at once.
  if (on_gpu) options.logit_rows = sequences;
  // Recurrent layers alone keep nothing for a token.
  const auto page = static_cast<std::uint64_t>(std::max<std::int64_t>(
      runner::KvMemory::page_bytes(model_->token_caches(), model_->kv_type()), 1));
  const std::uint64_t ranks_of_host = shares_of_host(settings.compute);
  // A GPU's memory is one rank's.
  const std::uint64_t ranks_of_memory = on_gpu ? 1 : ranks_of_host;
  const std::uint64_t others = pool_bytes() + settings.kv_memory.value_or(0);
  const std::span<const model::StateShape> shapes = model_->state_shapes();
  MOTLEY_TRY(const runner::StatePlan states,
             plan_states({.slot_bytes = runner::StateMemory::slot_bytes(shapes),
                          .snapshot_bytes = runner::StateMemory::snapshot_bytes(shapes),
                          .sequences = sequences,
                          .otherwise = less(memory.available, others * ranks_of_memory) /
                                       state_parts / ranks_of_memory},
                         settings));
  options.state_slots = states.slots;
  // A snapshot belongs to a page.
  options.snapshots = std::min(states.snapshots, options.pages);
  // A GPU is used by this process alone; host memory is shared.
  options.spare = memory.total / gpu_parts_spared;
  if (settings.kv_memory || !on_gpu) {
    const std::uint64_t bytes = settings.kv_memory.value_or(
        less(memory.available, pool_bytes() * ranks_of_host) / host_parts / ranks_of_host);
    options.spare.reset();
    options.pages = std::min(options.pages, static_cast<std::int64_t>(bytes / page));
    if (options.pages < 2)
      return Error(ErrorCode::out_of_memory,
                   cat(format_bytes(bytes), " hold no page of keys and values, which takes ",
                       format_bytes(page)),
                   "--kv-memory", "give more, or free some memory");
    options.max_tokens = std::min(longest, options.pages * runner::KvMemory::page_tokens);
  }
  if (others_ != nullptr) {
    if (auto made = others_->make_runners(options); !made.ok())
      return sized_by(std::move(made).error(), sizes_of_steps);
    options.others = others_.get();
    // A page has the same number on every rank.
    options.pages = std::min(options.pages, others_->pages());
  }
  auto made = runner::Runner::create(*model_, *device_, options);
  if (!made.ok()) return sized_by(std::move(made).error(), sizes_of_steps);
  runner_ = *std::move(made);
  return {};
}

// Logs the memory of rank 0's parts once they are allocated, and of all other ranks; on a GPU the
// reported use agrees with the sum. On a CPU weights may stay in the checkpoint's mapped files, for
// which nothing is allocated.
Result<void> EngineStack::warm_up(const tensor::MemoryInfo& before, std::uint64_t weights) {
  const bool on_gpu = device_->id().kind != tensor::DeviceKind::cpu;
  if (on_gpu)
    log::info("engine.kernels", {{"dense", model::describe_dense(*model_)},
                                 {"tuning", tuning_name(model_->tuning())}});
  MOTLEY_TRY(const tensor::MemoryInfo stands, device_->memory());
  MOTLEY_TRY_VOID(runner_->warm_up());
  MOTLEY_TRY(const tensor::MemoryInfo warm, device_->memory());
  const std::int64_t pages = runner_->options().pages;
  const std::uint64_t kv = static_cast<std::uint64_t>(
      pages * runner::KvMemory::page_bytes(model_->token_caches(), model_->kv_type()));
  const runner::StateMemory& states = runner_->states();
  const std::uint64_t taken = device_->usage().bytes;
  log::info("engine.memory",
            {{"device", device_->description()},
             {"compute", model_->exact() ? "f32" : "bf16"},
             {"experts", model_->describe_backends()},
             {"weight_bytes", weights},
             {"scratch_bytes", taken - weights - pool_bytes() - kv - states.memory().size()},
             {"graphs", runner_->graphs()},
             {"graph_bytes", on_gpu ? less(stands.available, warm.available) : 0},
             {"adapter_pages", pool_->usage().pages},
             {"adapter_bytes", pool_bytes()},
             {"adapter_host_bytes", bytes_of_ranks(host_pool_.get())},
             {"kv_dtype", model_->kv_type() == DType::f8_e4m3 ? "fp8"
                          : model_->exact()                   ? "f32"
                                                              : "bf16"},
             {"kv_pages", pages},
             {"kv_bytes", kv},
             {"state_slots", states.slots()},
             {"snapshots", states.places()},
             {"state_bytes", states.memory().size()},
             {"kv_tokens", pages * runner::KvMemory::page_tokens},
             {"longest_sequence",
              std::min(runner_->options().max_tokens, pages * runner::KvMemory::page_tokens)},
             {"device_bytes", on_gpu ? less(before.available, warm.available) : taken},
             {"other_rank_bytes", others_ == nullptr ? 0 : others_->bytes()}});
  return {};
}

std::uint64_t EngineStack::pool_bytes() const { return bytes_of(*pool_); }

Result<void> EngineStack::make_executor(const ModelSettings& settings,
                                        const text::ModelText* text) {
  const std::int64_t width = model_->config().vocabulary;
  std::optional<grammar::Tokens> tokens;
  if (text != nullptr)
    tokens = grammar::grammar_tokens(text->tokenizer(), width, text->generation().end_tokens);
  samplers_ = std::make_unique<engine::SamplerMaker>(std::move(tokens), random_seed());
  MOTLEY_TRY(executor_, engine::RunnerExecutor::create(*runner_, width, settings.max_logprobs));
  return {};
}

Result<void> load_adapters(engine::Engine& engine, const ModelSettings& settings) {
  // They load concurrently; if several fail, the first is reported.
  struct Load {
    std::future<Result<void>> answer;
    bool optional = false;
  };
  std::vector<Load> loads;
  std::set<std::string_view> names;
  const auto finish = [&]() -> Result<void> {
    for (Load& load : loads) {
      Result<void> loaded = load.answer.get();
      if (!loaded.ok() && !load.optional) return loaded;
    }
    loads.clear();
    return {};
  };
  for (const AdapterOption& each : settings.adapters) {
    // A duplicate name is refused after the first has been loaded.
    if (!names.insert(each.name).second) MOTLEY_TRY_VOID(finish());
    // Shared, because the engine may still hold it when the value has arrived.
    const auto answer = std::make_shared<std::promise<Result<void>>>();
    loads.push_back({.answer = answer->get_future(), .optional = each.optional});
    engine::load_and_log(
        engine, {.name = each.name, .path = each.path, .pinned = each.pinned, .load = each.load},
        false, [answer](Result<void> result) { answer->set_value(std::move(result)); });
  }
  return finish();
}

}  // namespace motley::cli
