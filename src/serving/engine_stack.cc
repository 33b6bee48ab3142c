#include "serving/engine_stack.h"

#include <algorithm>
#include <future>
#include <set>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/cpu.h"
#include "base/system/memory.h"
#include "base/system/random_seed.h"
#include "engine/adapter_log.h"
#include "grammar/vocabulary.h"
#include "model/dense_groups.h"
#include "serving/devices.h"
#include "serving/model_sizes.h"
#include "serving/start_log.h"

namespace motley::serving {
namespace {

constexpr std::string_view sizes_of_steps =
    "--kv-memory, --state-memory, --state-host-memory or --max-batch-tokens";

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

// Other processes may allocate and free memory meanwhile.
std::uint64_t less(std::uint64_t bytes, std::uint64_t part) {
  return bytes - std::min(bytes, part);
}

}  // namespace

Error sized_by(Error error, std::string_view option) {
  if (error.code() != ErrorCode::out_of_memory) return error;
  return {error.code(), error.what(), error.where(),
          cat("give less with ", option, ", or free some memory")};
}

Result<std::unique_ptr<EngineStack>> EngineStack::load(EngineSettings settings,
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
       .snapshot_interval =
           settings.memory.state_snapshots.value_or(engine::default_snapshot_interval),
       .max_adapters = static_cast<std::size_t>(settings.max_adapters),
       .watchdog = source.watchdog});
  MOTLEY_TRY_VOID(serving::load_adapters(*stack->engine_, settings));
  if (!settings.adapters.empty()) parts.done("adapters");
  return stack;
}

// Rank 0's model, then those of the other ranks.
Result<void> EngineStack::load_models(EngineSettings& settings, const Source& source) {
  MOTLEY_TRY(others_, make_other_ranks(settings.compute, *device_, source.gate));
  ModelRank rank{.checkpoint = source.checkpoint};
  if (others_ != nullptr) rank.ranks = &others_->communicator(0);
  MOTLEY_TRY(model_, source.model(*device_, settings, rank));
  if (others_ == nullptr) return {};
  MOTLEY_TRY_VOID(others_->load_models([&](tensor::Device& device, dist::Communicator& ranks) {
    EngineSettings same = settings;
    return source.model(device, same, {&ranks, model_->shared_checkpoint()});
  }));
  for (int each = 0; each < others_->ranks(); ++each) {
    const model::Model& model = each == 0 ? *model_ : others_->model(each);
    log::info("engine.rank",
              {{"rank", each}, {"holds", model::describe(model.shard(), model.config())}});
  }
  return {};
}

bool EngineStack::on_gpu() const { return device_->id().kind != tensor::DeviceKind::cpu; }

Machine EngineStack::machine(const ComputeSettings& compute) const {
  return {.on_gpu = on_gpu(),
          .ranks = compute.ranks,
          .replicas = compute.replicas,
          .cpus = usable_cpus()};
}

Result<void> EngineStack::make_pools(const EngineSettings& settings, std::uint64_t available) {
  lora::Pool::Options pool{
      .bytes = plan_adapter_pool(machine(settings.compute), available, settings.memory),
      .dtype = settings.compute.factors.value_or(model_->activations()),
      .experts = model_->factor_layout(),
      .directory = on_gpu()};
  if (others_ != nullptr) {
    auto made = others_->make_pools(pool);
    if (!made.ok()) return sized_by(std::move(made).error(), "--adapter-memory");
    pool.other_ranks = *std::move(made);
    pool.shards = model_->base_view().shards();
  }
  auto made = lora::Pool::create(*device_, pool);
  if (!made.ok()) return sized_by(std::move(made).error(), "--adapter-memory");
  pool_ = *std::move(made);
  if (!on_gpu()) return {};
  Result<void> on_host = make_host_pools(settings, std::move(pool));
  if (on_host.ok()) return {};
  constexpr std::string_view option = "--adapter-host-memory";
  return sized_by(std::move(on_host).error().within(option), option);
}

// Adapters evicted from the devices are kept on the host.
Result<void> EngineStack::make_host_pools(const EngineSettings& settings,
                                          lora::Pool::Options pool) {
  MOTLEY_TRY(const MachineMemory host, machine_memory());
  MOTLEY_TRY(pool.bytes, plan_host_tier(machine(settings.compute),
                                        {.pool_bytes = pool.bytes,
                                         .page_bytes = pool.page_bytes,
                                         .host_available = host.available},
                                        settings.memory));
  pool.directory = false;
  if (others_ != nullptr) {
    pool.spare_bytes /= static_cast<std::uint64_t>(settings.compute.ranks);
    pool.gate = others_->gate();
    MOTLEY_TRY(pool.other_ranks, others_->make_host_pools(pool));
  }
  MOTLEY_TRY(host_pool_, lora::Pool::create(device_->pinned_memory(), pool));
  return {};
}

Result<void> EngineStack::make_runner(const EngineSettings& settings,
                                      const tensor::MemoryInfo& memory) {
  if (settings.routed_experts && !model_->config().has_experts())
    return Error(ErrorCode::unsupported, "the model has no experts",
                 "--enable-return-routed-experts", "leave the option out");
  const ModelSizes sizes = sizes_of(*model_);
  MOTLEY_TRY(const StepPlan plan, plan_steps(machine(settings.compute),
                                             {.total = memory.total,
                                              .available = memory.available,
                                              .adapter_bytes = pool_bytes()},
                                             sizes, settings.memory));
  MOTLEY_TRY(const MachineMemory host, machine_memory());
  MOTLEY_TRY(
      const std::int64_t host_snapshots,
      plan_host_snapshots(machine(settings.compute), host.available, sizes, plan, settings.memory));
  runner::Runner::Options options{.max_rows = plan.rows,
                                  .max_sequences = plan.sequences,
                                  .max_tokens = plan.tokens,
                                  .pages = plan.pages,
                                  .spare = plan.spare,
                                  .state_slots = plan.state_slots,
                                  .snapshots = plan.snapshots,
                                  .host_snapshots = host_snapshots,
                                  .adapters = pool_.get(),
                                  .keep_choices = settings.routed_experts,
                                  .graphs = settings.compute.graphs,
                                  .capture_in_steps = false};
  if (plan.logit_rows) options.logit_rows = *plan.logit_rows;
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
  if (on_gpu())
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
             {"graph_bytes", on_gpu() ? less(stands.available, warm.available) : 0},
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
             {"host_snapshots", states.host_places()},
             {"state_host_bytes", host_state_bytes()},
             {"kv_tokens", pages * runner::KvMemory::page_tokens},
             {"longest_sequence",
              std::min(runner_->options().max_tokens, pages * runner::KvMemory::page_tokens)},
             {"device_bytes", on_gpu() ? less(before.available, warm.available) : taken},
             {"other_rank_bytes", others_ == nullptr ? 0 : others_->bytes()}});
  return {};
}

std::uint64_t EngineStack::pool_bytes() const { return bytes_of(*pool_); }

std::uint64_t EngineStack::host_state_bytes() const {
  std::uint64_t bytes = runner_->states().host_memory().size();
  for (int rank = 1; others_ != nullptr && rank < others_->ranks(); ++rank)
    bytes += others_->runner(rank).states().host_memory().size();
  return bytes;
}

Result<void> EngineStack::make_executor(const EngineSettings& settings,
                                        const text::ModelText* text) {
  const std::int64_t width = model_->config().vocabulary;
  std::optional<grammar::Tokens> tokens;
  if (text != nullptr)
    tokens = grammar::grammar_tokens(text->tokenizer(), width, text->generation().end_tokens);
  samplers_ = std::make_unique<engine::SamplerMaker>(std::move(tokens), random_seed());
  MOTLEY_TRY(executor_, engine::RunnerExecutor::create(*runner_, width, settings.max_logprobs));
  return {};
}

Result<void> load_adapters(engine::Engine& engine, const EngineSettings& settings) {
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
  for (const StartAdapter& each : settings.adapters) {
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

}  // namespace motley::serving
