#include "cli/engine_stack.h"

#include <algorithm>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "base/units.h"

namespace motley::cli {
namespace {

constexpr std::int64_t most_sequences = 256;
constexpr std::uint64_t host_pages_each = 2;  // for a page of a device
constexpr std::uint64_t least_adapter_memory = std::uint64_t{64} << 20;

// Requests without a seed differ from one start of the program to the next.
std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

Result<std::unique_ptr<EngineStack>> EngineStack::load(const ModelSettings& settings,
                                                       const text::ModelText& text) {
  return load(settings,
              {.model = [](tensor::Device& device,
                           ModelSettings& of) { return load_model(of.model, of.compute, device); },
               .adapter = {},
               .text = &text});
}

Result<std::unique_ptr<EngineStack>> EngineStack::load(ModelSettings settings,
                                                       const Source& source) {
  std::unique_ptr<EngineStack> stack(new EngineStack);
  MOTLEY_TRY(stack->device_, open_device(settings.compute));
  MOTLEY_TRY(stack->model_, source.model(*stack->device_, settings));
  MOTLEY_TRY_VOID(stack->make_memory(settings));
  MOTLEY_TRY_VOID(stack->make_executor(source.text));
  stack->store_ = std::make_unique<engine::PoolStore>(
      engine::PoolStore::Options{.base = &stack->model_->base_view(),
                                 .pool = stack->pool_.get(),
                                 .host_pool = stack->host_pool_.get(),
                                 .source = source.adapter});
  stack->engine_ = engine::Engine::create({.executor = stack->executor_.get(),
                                           .adapters = stack->store_.get(),
                                           .clock = &stack->clock_},
                                          {.max_queue = settings.max_queue});
  MOTLEY_TRY_VOID(stack->load_adapters(settings));
  return stack;
}

// Adapters' pages first: the keys and values take of the rest.
Result<void> EngineStack::make_memory(const ModelSettings& settings) {
  MOTLEY_TRY(const tensor::MemoryInfo memory, device_->memory());
  const bool on_gpu = device_->id().kind != tensor::DeviceKind::cpu;
  lora::Pool::Options pool{.bytes = settings.adapter_memory.value_or(
                               std::max(memory.available / 8, least_adapter_memory)),
                           .dtype = settings.compute.factors.value_or(model_->activations()),
                           .experts = model_->factor_layout(),
                           .directory = on_gpu};
  MOTLEY_TRY(pool_, lora::Pool::create(*device_, pool));
  if (on_gpu) {
    // Adapters that make room on the device stay within reach of a copy.
    lora::Pool::Options behind = pool;
    behind.bytes = settings.adapter_host_memory.value_or(host_pages_each * pool.bytes);
    behind.directory = false;
    MOTLEY_TRY(host_pool_, lora::Pool::create(device_->pinned_memory(), behind));
  }

  const std::int64_t longest = model_->config().max_positions;
  const std::int64_t page =
      runner::KvMemory::page_bytes(model_->cache_layouts(), model_->activations());
  const std::int64_t all = most_sequences * runner::KvMemory::pages_for(longest);
  const auto bytes = settings.kv_memory.value_or((memory.available - pool.bytes) / 4);
  const std::int64_t pages =
      std::min(all, static_cast<std::int64_t>(bytes / static_cast<std::uint64_t>(page)));
  if (pages < 2)
    return Error(ErrorCode::out_of_memory,
                 cat(format_bytes(bytes), " hold no page of keys and values, which takes ",
                     format_bytes(static_cast<std::uint64_t>(page))),
                 "--kv-memory", "give more, or free some memory");
  MOTLEY_TRY(runner_, runner::Runner::create(
                          *model_, *device_,
                          {.max_rows = settings.max_batch_tokens,
                           .max_sequences = std::min(most_sequences, settings.max_batch_tokens),
                           .max_tokens = std::min(longest, pages * runner::KvMemory::page_tokens),
                           .pages = pages,
                           .adapters = pool_.get(),
                           .graphs = settings.compute.graphs}));
  log::info("engine.memory", {{"device", device_->description()},
                              {"compute", model_->exact() ? "f32" : "bf16"},
                              {"experts", model_->describe_backends()},
                              {"adapter_pages", pool_->usage().pages},
                              {"adapter_bytes", pool_->usage().pages * pool_->usage().page_bytes},
                              {"kv_pages", pages},
                              {"kv_bytes", pages * page},
                              {"kv_tokens", pages * runner::KvMemory::page_tokens},
                              {"longest_sequence", runner_->options().max_tokens}});
  return {};
}

Result<void> EngineStack::make_executor(const text::ModelText* text) {
  const std::int64_t width = model_->config().vocabulary;
  std::optional<engine::GrammarVocabulary> vocabulary;
  if (text != nullptr) {
    // Grammars write no special token: those mark what a template says.
    std::vector<std::string> bytes(static_cast<std::size_t>(width));
    const text::Tokenizer& tokenizer = text->tokenizer();
    for (std::int32_t id = 0; id < std::min<std::int64_t>(width, tokenizer.size()); ++id)
      if (!tokenizer.is_special(id)) bytes[static_cast<std::size_t>(id)] = tokenizer.bytes_of(id);
    MOTLEY_TRY(vocabulary,
               engine::GrammarVocabulary::create(bytes, width, text->generation().end_tokens));
  }
  samplers_ = std::make_unique<engine::SamplerMaker>(std::move(vocabulary), random_seed());
  MOTLEY_TRY(executor_, engine::RunnerExecutor::create(
                            *runner_, {.vocabulary = width, .samplers = samplers_.get()}));
  return {};
}

Result<void> EngineStack::load_adapters(const ModelSettings& settings) {
  for (const AdapterOption& each : settings.adapters) {
    // Shared, because the engine may still hold it when the value is there.
    const auto answer = std::make_shared<std::promise<Result<void>>>();
    engine_->load_adapter(
        {.name = each.name, .path = each.path, .pinned = each.pinned, .load = each.load}, false,
        [answer](Result<void> result) { answer->set_value(std::move(result)); });
    MOTLEY_TRY_VOID(answer->get_future().get());
  }
  return {};
}

}  // namespace motley::cli
