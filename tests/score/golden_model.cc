#include "score/golden_model.h"

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

GoldenModel::GoldenModel(const std::string& name, const Options& options)
    : folder_(goldens_folder() / name), golden_(read_golden(name)) {
  device_ = std::make_unique<tensor::MeteredDevice>(
      tensor::open_device(options.device, {.threads = options.threads}).value());
  model::LoadOptions load{.exact = options.exact,
                          .batch_invariant = options.batch_invariant,
                          .kv_codes = options.kv_codes,
                          .exact_inputs = options.exact_inputs,
                          .fusion = options.fusion,
                          .expert_groups = options.expert_groups};
  if (options.shared_shrinks_from)
    load.tuning = std::make_shared<const kernels::Tuning>(
        kernels::Tuning{.shared_shrinks_from = options.shared_shrinks_from});
  if (!options.experts_backend.empty()) load.experts_backend = options.experts_backend;
  const auto wrapped = [&](dist::Communicator& ranks) {
    return options.wrap ? options.wrap(ranks) : &ranks;
  };
  const fs::path& files = options.folder.empty() ? folder_ : options.folder;
  if (options.ranks > 1) {
    others_ = runner::OtherRanks::create({.ranks = options.ranks,
                                          .threads = options.threads,
                                          .max_wait = options.max_wait,
                                          .gpus = options.gpus,
                                          .over = options.over,
                                          .gate = options.gate})
                  .value();
    load.ranks = wrapped(others_->communicator(0));
  }
  model_ = model::Model::load(files, *device_, load).value();
  const bool on_gpu = device_->id().kind != tensor::DeviceKind::cpu;
  lora::Pool::Options pool{.bytes = std::uint64_t{32} << 20,
                           .page_bytes = 4096,
                           .dtype = model_->activations(),
                           .experts = model_->factor_layout(),
                           .directory = on_gpu,
                           .poison = true};
  runner::Runner::Options steps{.max_rows = options.max_rows,
                                .max_sequences = 64,
                                .max_tokens = 128,
                                .pages = options.pages,
                                .logit_rows = std::min<std::int64_t>(options.max_rows, 64),
                                .adapter_rank = options.adapter_rank,
                                .mix_rank = 256,
                                .graphs = options.graphs};
  if (others_ != nullptr) {
    load.checkpoint = model_->shared_checkpoint();
    others_
        ->load_models([&](tensor::Device& device, dist::Communicator& ranks) {
          load.ranks = wrapped(ranks);
          return model::Model::load(files, device, load);
        })
        .value();
    pool.other_ranks = others_->make_pools(pool).value();
    pool.shards = model_->base_view().shards();
    others_->make_runners(steps).value();
    steps.others = others_.get();
  }
  pool_ = lora::Pool::create(*device_, pool).value();
  steps.adapters = pool_.get();
  runner_ = runner::Runner::create(*model_, *device_, steps).value();
}

lora::Mix GoldenModel::mix_of(const json::Value& golden_case) {
  std::vector<runner::ScaledAdapter> adapters;
  const json::Object& fields = *golden_case.if_object();
  if (const json::Value* const several = fields.find("adapters");
      several != nullptr && !several->is_null()) {
    for (const json::Value& part : *several->if_array())
      adapters.push_back({.name = *at(part, "name").if_string(),
                          .scale = at(part, "scale").as_number("scale").value()});
  } else if (const json::Value* const one = fields.find("adapter"); !one->is_null()) {
    adapters.push_back({.name = *one->if_string()});
  }
  return mix(adapters, at(golden_case, "load"));
}

lora::Mix GoldenModel::mix(const std::vector<runner::ScaledAdapter>& adapters,
                           const json::Value& load) {
  std::vector<lora::Mix::Part> parts;
  for (const runner::ScaledAdapter& each : adapters)
    parts.push_back({.adapter = adapter(each.name, load), .scale = static_cast<float>(each.scale)});
  return lora::Mix::make(parts).value();
}

lora::Handle GoldenModel::adapter(const std::string& name, const json::Value& load) {
  const auto known = handles_.find(name);
  if (known != handles_.end()) return known->second;
  const lora::Adapter loaded =
      lora::load_adapter(folder_ / "adapters" / name, load_options(load), model_->base_view())
          .value();
  return handles_[name] = pool_->load(name, loaded).value();
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
