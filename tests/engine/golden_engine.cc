#include "engine/golden_engine.h"

#include <set>

namespace motley::engine_tests {

using score_tests::at;

namespace {

constexpr std::uint64_t host_tier_bytes = std::uint64_t{16} << 20;  // of each rank

}  // namespace

GoldenEngine::GoldenEngine(score_tests::GoldenModel& golden, const Options& options)
    : golden_(&golden) {
  const bool on_gpu = golden.device().id().kind != tensor::DeviceKind::cpu;
  lora::Pool::Options pool{.bytes = options.adapter_bytes,
                           .page_bytes = 4096,
                           .dtype = golden.model().activations(),
                           .experts = golden.model().factor_layout(),
                           .directory = on_gpu};
  runner::Runner::Options steps{.max_rows = options.max_rows,
                                .max_sequences = options.max_sequences,
                                .max_tokens = options.max_tokens,
                                .pages = options.pages,
                                .logit_rows = on_gpu ? options.max_sequences : 16,
                                .keep_choices = options.routed_experts,
                                .graphs = options.graphs,
                                .capture_in_steps = !options.warm};
  if (golden.model().keeps_states()) {
    steps.state_slots = options.state_slots;
    steps.snapshots = options.snapshots;
    steps.host_snapshots = options.host_snapshots;
  }
  if (golden.others() != nullptr) {
    pool.other_ranks = golden.others()->make_pools(pool).value();
    pool.shards = golden.model().base_view().shards();
    golden.others()->make_runners(steps).value();
    steps.others = golden.others();
  }
  pool_ = lora::Pool::create(golden.device(), pool).value();
  steps.adapters = pool_.get();
  if (options.host_tier.value_or(on_gpu)) {
    pool.bytes = host_tier_bytes;
    pool.directory = false;
    if (golden.others() != nullptr) {
      pool.gate = golden.others()->gate();
      pool.other_ranks = golden.others()->make_host_pools(pool).value();
    }
    host_pool_ = lora::Pool::create(golden.device().pinned_memory(), pool).value();
  }
  runner_ = runner::Runner::create(golden.model(), golden.device(), steps).value();
  if (options.warm) runner_->warm_up().value();
  samplers_ = std::make_unique<engine::SamplerMaker>(std::nullopt, 1);
  executor_ = engine::RunnerExecutor::create(*runner_, golden.model().config().vocabulary).value();
  const auto source = [this](const engine::AdapterSpec& spec, const lora::BaseView& base) {
    ++reads_;
    return lora::load_adapter(spec.path, spec.load, base);
  };
  store_ = std::make_unique<engine::PoolStore>(
      engine::PoolStore::Options{.base = &golden.model().base_view(),
                                 .pool = pool_.get(),
                                 .host_pool = host_pool_.get(),
                                 .source = source});
  engine_ = engine::Replica::create({.executor = executor_.get(),
                                     .samplers = samplers_.get(),
                                     .adapters = store_.get(),
                                     .clock = &clock_},
                                    {.adapter_patience = std::chrono::milliseconds(5),
                                     .prefix_cache = options.prefix_cache,
                                     .snapshot_interval = options.snapshot_interval,
                                     .validate = true});
}

std::filesystem::path GoldenEngine::path_of(const std::string& adapter) const {
  return golden_->folder() / "adapters" / adapter;
}

void GoldenEngine::load_adapters() {
  std::set<std::string> loaded;
  for (const json::Value& each : score_tests::cases_of(golden_->golden())) {
    for (const lora::ScaledAdapter& adapter : adapters_of(each)) {
      if (loaded.insert(adapter.name).second)
        load(adapter.name, false, score_tests::load_options(at(each, "load"))).value();
    }
  }
}

Result<void> GoldenEngine::load(const std::string& adapter, bool replace,
                                const lora::LoadOptions& load) {
  std::promise<Result<void>> answer;
  engine_->load_adapter({.name = adapter, .path = path_of(adapter), .load = load}, replace,
                        [&](Result<void> result) { answer.set_value(std::move(result)); });
  return test::get(answer, "the load is answered");
}

Result<void> GoldenEngine::unload(const std::string& adapter) {
  std::promise<Result<void>> answer;
  engine_->unload_adapter(adapter,
                          [&](Result<void> result) { answer.set_value(std::move(result)); });
  return test::get(answer, "the unload is answered");
}

std::shared_ptr<Answer> GoldenEngine::submit(engine::Request request) {
  auto answer = std::make_shared<Answer>(request.choices);
  const auto id = engine_->submit(std::move(request), answer);
  if (!id.ok()) answer->take(id.error());
  return answer;
}

std::vector<lora::ScaledAdapter> adapters_of(const json::Value& golden_case) {
  std::vector<lora::ScaledAdapter> adapters;
  const json::Object& fields = *golden_case.if_object();
  if (const json::Value* const several = fields.find("adapters");
      several != nullptr && !several->is_null()) {
    for (const json::Value& part : *several->if_array())
      adapters.push_back(
          {.name = *at(part, "name").if_string(),
           .scale = static_cast<float>(at(part, "scale").as_number("scale").value())});
  } else if (const json::Value* const one = fields.find("adapter"); !one->is_null()) {
    adapters.push_back({.name = *one->if_string()});
  }
  return adapters;
}

engine::Request greedy_request(const json::Value& golden_case) {
  const json::Value& greedy = at(golden_case, "greedy");
  engine::Request request{.adapters = adapters_of(golden_case),
                          .sampling = {.temperature = 0, .logprobs = true}};
  for (const json::Value& token : *at(greedy, "prompt").if_array())
    request.tokens.push_back(static_cast<std::int32_t>(token.as_number("token").value()));
  request.max_tokens = static_cast<std::int64_t>(at(greedy, "token_ids").if_array()->size());
  return request;
}

}  // namespace motley::engine_tests
