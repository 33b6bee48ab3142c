#include "score/golden_model.h"

#include <algorithm>
#include <list>
#include <utility>

#include "base/cat.h"
#include "base/system/files.h"
#include "lora/files/load.h"

namespace motley::score_tests {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t any_size = 64'000'000;

json::Value read_json(const fs::path& path) {
  return json::parse(read_text(path, any_size).value(), path.string()).value();
}

std::string text_of(const json::Value& object, std::string_view key, std::string_view fallback) {
  const json::Object* const fields = object.if_object();
  const json::Value* const value = fields == nullptr ? nullptr : fields->find(key);
  return value == nullptr ? std::string(fallback) : *value->if_string();
}

}  // namespace

lora::LoadOptions load_options(const json::Value& load) {
  lora::LoadOptions options;
  if (const std::string text = text_of(load, "b-columns", ""); !text.empty())
    options.b_columns = lora::parse_b_columns(text).value();
  if (const std::string text = text_of(load, "orientation", ""); !text.empty())
    options.orientation = lora::parse_orientation(text).value();
  return options;
}

const fs::path& goldens_folder() {
  static const fs::path folder = MOTLEY_GOLDENS;
  return folder;
}

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(goldens_folder()).value()) {
    if (fs::is_directory(goldens_folder() / name)) names.push_back(name);
  }
  return names;
}

json::Value read_golden(const std::string& model) {
  return read_json(goldens_folder() / model / "golden.json");
}

const json::Value& at(const json::Value& object, std::string_view key) {
  const json::Value* const value = object.as_object(key).value()->find(key);
  MOTLEY_CHECK(value != nullptr, cat("a golden without ", key));
  return *value;
}

const json::Array& cases_of(const json::Value& golden) {
  return *at(golden, "cases").as_array("cases").value();
}

namespace {

// Tests go through all models again and again, so fewer than there are would be of no use.
constexpr std::size_t max_recent_weights = 64;

// A file of the goldens, which is parsed once.
std::shared_ptr<const json::Value> golden_of(const std::string& model) {
  static std::map<std::string, std::shared_ptr<const json::Value>> read;
  std::shared_ptr<const json::Value>& golden = read[model];
  if (golden == nullptr) golden = std::make_shared<const json::Value>(read_golden(model));
  return golden;
}

// A CPU's threads are shared by all models: they keep nothing between calls.
std::shared_ptr<tensor::MeteredDevice> cpu_with(int threads) {
  static std::map<int, std::shared_ptr<tensor::MeteredDevice>> devices;
  std::shared_ptr<tensor::MeteredDevice>& device = devices[threads];
  if (device == nullptr)
    device = std::make_shared<tensor::MeteredDevice>(
        tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, {.threads = threads})
            .value());
  return device;
}

model::LoadOptions load_options_of(const GoldenModel::Options& options) {
  model::LoadOptions load{.exact = options.exact,
                          .batch_invariant = options.batch_invariant,
                          .kv_codes = options.kv_codes,
                          .exact_inputs = options.exact_inputs,
                          .fusion = options.fusion,
                          .expert_groups = options.expert_groups,
                          .mixer = options.mixer};
  if (options.shared_shrinks_from)
    load.tuning = std::make_shared<const kernels::Tuning>(
        kernels::Tuning{.shared_shrinks_from = options.shared_shrinks_from});
  if (!options.experts_backend.empty()) load.experts_backend = options.experts_backend;
  return load;
}

// Everything that the weights of a model on the CPU depend on; nothing: they are not shared.
std::optional<std::string> key_of(const std::string& name, const GoldenModel::Options& options) {
  const bool on_cpu = options.device.kind == tensor::DeviceChoice::Kind::cpu;
  if (!on_cpu || options.ranks > 1 || !options.folder.empty() || options.wrap || options.gate ||
      options.mixer)
    return std::nullopt;
  return cat(name, " ", options.exact, " ", options.exact_inputs, " ", options.threads, " ",
             options.experts_backend, " ", options.kv_codes, " ", options.batch_invariant, " ",
             options.fusion, " ", options.expert_groups, " ",
             options.shared_shrinks_from.value_or(-1));
}

}  // namespace

std::shared_ptr<GoldenModel::Weights> GoldenModel::recent_weights(
    const std::string& key, FunctionRef<std::shared_ptr<Weights>()> make) {
  static std::list<std::pair<std::string, std::shared_ptr<Weights>>> recent;  // the last first
  const auto found = std::ranges::find(recent, key, &decltype(recent)::value_type::first);
  if (found != recent.end()) {
    recent.splice(recent.begin(), recent, found);
  } else {
    recent.emplace_front(key, make());
    if (recent.size() > max_recent_weights) recent.pop_back();
  }
  return recent.front().second;
}

std::shared_ptr<GoldenModel::Weights> GoldenModel::load_weights(const fs::path& files,
                                                                const Options& options,
                                                                const model::LoadOptions& load) {
  auto weights = std::make_shared<Weights>();
  if (options.device.kind == tensor::DeviceChoice::Kind::cpu)
    weights->device = cpu_with(options.threads);
  else
    weights->device = std::make_shared<tensor::MeteredDevice>(
        tensor::open_device(options.device, {.threads = options.threads}).value());
  weights->model = model::Model::load(files, *weights->device, load).value();
  return weights;
}

GoldenModel::GoldenModel(const std::string& name, const Options& options)
    : folder_(goldens_folder() / name), golden_(golden_of(name)) {
  model::LoadOptions load = load_options_of(options);
  const fs::path& files = options.folder.empty() ? folder_ : options.folder;
  if (options.ranks > 1) {
    others_ = runner::OtherRanks::create({.ranks = options.ranks,
                                          .threads = options.threads,
                                          .max_wait = options.max_wait,
                                          .gpus = options.gpus,
                                          .over = options.over,
                                          .gate = options.gate})
                  .value();
    dist::Communicator& own = others_->communicator(0);
    load.ranks = options.wrap ? options.wrap(own) : &own;
  }
  const auto make = [&] { return load_weights(files, options, load); };
  const std::optional<std::string> key = key_of(name, options);
  weights_ = key ? recent_weights(*key, make) : make();
  device_ = weights_->device;
  model_ = weights_->model;
  const bool on_gpu = device_->id().kind != tensor::DeviceKind::cpu;
  lora::Pool::Options pool{.bytes = std::uint64_t{8} << 20,
                           .page_bytes = 4096,
                           .dtype = model_->activations(),
                           .experts = model_->factor_layout(),
                           .directory = on_gpu,
                           .poison = true};
  runner::Runner::Options steps{.max_rows = options.max_rows,
                                .max_sequences = 64,
                                .max_tokens = options.max_tokens,
                                .pages = options.pages,
                                .logit_rows = std::min<std::int64_t>(options.max_rows, 64),
                                .adapter_rank = options.adapter_rank,
                                .mix_rank = 256,
                                .graphs = options.graphs};
  if (model_->keeps_states()) {
    steps.state_slots = steps.max_sequences;
    steps.snapshots = 4;
  }
  if (others_ != nullptr) {
    load_other_ranks(files, options, load);
    pool.other_ranks = others_->make_pools(pool).value();
    pool.shards = model_->base_view().shards();
    others_->make_runners(steps).value();
    steps.others = others_.get();
  }
  pool_ = lora::Pool::create(*device_, pool).value();
  steps.adapters = pool_.get();
  runner_ = runner::Runner::create(*model_, *device_, steps).value();
}

void GoldenModel::load_other_ranks(const fs::path& files, const Options& options,
                                   model::LoadOptions& load) {
  load.checkpoint = model_->shared_checkpoint();
  others_
      ->load_models([&](tensor::Device& device, dist::Communicator& ranks) {
        load.ranks = options.wrap ? options.wrap(ranks) : &ranks;
        return model::Model::load(files, device, load);
      })
      .value();
}

lora::Mix GoldenModel::mix_of(const json::Value& golden_case) {
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
  return mix(adapters, at(golden_case, "load"));
}

lora::Mix GoldenModel::mix(const std::vector<lora::ScaledAdapter>& adapters,
                           const json::Value& load) {
  std::vector<lora::Mix::Part> parts;
  for (const lora::ScaledAdapter& each : adapters)
    parts.push_back({.adapter = adapter(each.name, load), .scale = each.scale});
  return lora::Mix::make(parts).value();
}

lora::Handle GoldenModel::adapter(const std::string& name, const json::Value& load) {
  const auto known = handles_.find(name);
  if (known != handles_.end()) return known->second;
  const std::string way = cat(name, " ", json::write(load));
  auto read = weights_->adapters.find(way);
  if (read == weights_->adapters.end())
    read = weights_->adapters
               .emplace(way, lora::load_adapter(folder_ / "adapters" / name, load_options(load),
                                                model_->base_view())
                                 .value())
               .first;
  return handles_[name] = pool_->load(name, read->second).value();
}

std::vector<runner::ScoreLine> GoldenModel::lines_of(const json::Value& golden_case) const {
  return read_lines(*at(golden_case, "file").if_string());
}

std::vector<runner::ScoreLine> GoldenModel::read_lines(const std::string& file) const {
  return runner::read_score_lines(folder_ / file,
                                  {.vocabulary = model_->config().vocabulary,
                                   .adapters = list_folder(folder_ / "adapters").value()})
      .value();
}

std::vector<runner::ScoreResult> GoldenModel::score(const std::vector<runner::ScoreLine>& lines,
                                                    const std::vector<lora::Mix>& mixes, int top) {
  return runner::score(*runner_, lines, mixes, {.top = top}).value();
}

}  // namespace motley::score_tests
