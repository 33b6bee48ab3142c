#include "model/model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/cpu.h"
#include "base/system/files.h"
#include "base/system/thread_pool.h"
#include "kernels/elementary.h"
#include "model/weights/base_view.h"
#include "moe/select.h"
#include "ops/attention.h"

namespace motley::model {

using tensor::Tensor;

namespace {

// Tensors of checkpoints that a forward pass does not use: multi-token prediction layers behind the
// last layer, vision towers, recomputed buffers.
bool is_skipped(std::string_view name, std::int64_t layers) {
  constexpr std::string_view body = "model.";
  constexpr std::string_view layer_prefix = "model.layers.";
  if (name.starts_with(layer_prefix)) {
    const std::string_view rest = name.substr(layer_prefix.size());
    std::int64_t layer = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (parsed.ec == std::errc() && layer >= layers) return true;
  }
  for (std::string_view part : {"mtp.", "visual.", "vision_tower.", "vision_model.",
                                "mm_projector.", "multi_modal_projector."}) {
    if (name.starts_with(part)) return true;
    if (name.starts_with(body) && name.substr(body.size()).starts_with(part)) return true;
  }
  // Scales by head of quantised keys and values, and those of queries.
  for (const std::string_view suffix : {".k_scale", ".v_scale", ".q_scale"}) {
    if (name.ends_with(suffix)) return true;
  }
  return name.ends_with(".rotary_emb.inv_freq");
}

// Where activations stay unquantised although the checkpoint asks for it.
void leave_inputs_exact(const LoadOptions& options, quant::Config& quantization) {
  if (!quantization.rounds_inputs() || !options.exact_inputs) return;
  quantization.keep_inputs_exact();
  quantization.add_remark("activations stay unquantised (--activations exact)");
}

Result<std::shared_ptr<const kernels::ElementaryTable>> kernels_of(const tensor::Device& device,
                                                                   const kernels::Tuning* tuning) {
  if (device.id().kind == tensor::DeviceKind::cuda)
    return kernels::cuda_table(device.id().index, tuning);
  // Not owned: it lives as long as the process.
  return std::shared_ptr<const kernels::ElementaryTable>(std::shared_ptr<void>(),
                                                         &kernels::cpu_table());
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const std::filesystem::path& folder,
                                           tensor::Device& device, const LoadOptions& options) {
  MOTLEY_TRY(const json::Value settings, read_config_json(folder));
  const std::string where = printable((folder / "config.json").string());
  std::unique_ptr<Model> model(new Model());
  MOTLEY_TRY(model->config_, parse_config(settings, where));
  auto quantization = quant::Config::read(*settings.if_object(), folder);
  if (!quantization.ok()) return std::move(quantization).error().within(where);
  leave_inputs_exact(options, *quantization);
  model->quantization_remarks_ = quantization->remarks();
  for (const std::string& remark : quantization->remarks())
    log::info("model.quantization", {{"method", quantization->method()}, {"remark", remark}});
  model->checkpoint_ = options.checkpoint;
  if (model->checkpoint_ == nullptr) {
    const FileAccess access = options.copy_weights ? FileAccess::copied : FileAccess::mapped;
    MOTLEY_TRY(tensor::Checkpoint checkpoint, tensor::Checkpoint::open(folder, "model", access));
    model->checkpoint_ = std::make_shared<const tensor::Checkpoint>(std::move(checkpoint));
  }
  MOTLEY_TRY_VOID(model->load_weights(*quantization, where, device, options));
  return model;
}

Result<std::unique_ptr<Model>> Model::random(Config config, RandomWeights::Experts experts,
                                             tensor::Device& device, const LoadOptions& options) {
  std::unique_ptr<Model> model(new Model());
  model->config_ = std::move(config);
  // On a GPU the experts are copied.
  const bool copied = device.id().kind != tensor::DeviceKind::cpu;
  const std::int64_t expert_numbers = model->config_.hidden * model->config_.moe.intermediate;
  model->random_ =
      std::make_unique<RandomWeights>(experts, copied ? expert_numbers : 0, options.exact_inputs);
  MOTLEY_TRY_VOID(model->load_weights(quant::Config(), "random weights", device, options));
  return model;
}

Result<void> Model::load_weights(const quant::Config& quantization, std::string_view where,
                                 tensor::Device& device, const LoadOptions& options) {
  exact_ = options.exact;
  batch_invariant_ = options.batch_invariant;
  kv_codes_ = options.kv_codes;
  fuses_ = options.fusion;
  device_ = &device;
  tuning_ = options.tuning;
  ranks_ = options.ranks;
  // A GPU's kernels, too, like widths that are multiples of something.
  const bool on_gpu = device.id().kind != tensor::DeviceKind::cpu;
  Ranks ranks{.in_pieces = on_gpu || random_ != nullptr || quantization.method() != "none"};
  if (ranks_ != nullptr) {
    ranks.count = ranks_->ranks();
    ranks.rank = ranks_->rank();
    ranks.expert_groups = options.expert_groups;
  }
  MOTLEY_TRY(shard_, shard_of(config_, ranks));
  MOTLEY_TRY(kernels_, kernels_of(device, tuning_.get()));
  std::unique_ptr<quant::Uploader> uploader;
  if (device.id().kind != tensor::DeviceKind::cpu) {
    host_ = std::make_unique<tensor::CpuDevice>(tensor::CpuOptions{.threads = 1});
    MOTLEY_TRY(uploader, quant::Uploader::create(device));
  }
  host_memory_ = std::make_unique<tensor::BlockAllocator>(uploader == nullptr ? device : *host_);
  const WeightSource::Memory memory{.host = *host_memory_,
                                    .device = device,
                                    .uploader = uploader.get(),
                                    .exact = options.exact,
                                    .shard = shard_};
  WeightSource source = random_ != nullptr ? WeightSource(*random_, memory)
                                           : WeightSource(*checkpoint_, quantization, memory);
  MOTLEY_TRY(embedding_, load_linear(source, {.site = {-1, lora::Projection::embed},
                                              .module = "model.embed_tokens",
                                              .size = {config_.vocabulary, config_.hidden},
                                              .cut = vocabulary_part()}));
  if (embedding_.weight.format().scales != quant::Format::Scales::none)
    return Error(ErrorCode::unsupported, "the embedding is quantised", std::string(where),
                 "keep model.embed_tokens in F32, F16 or BF16");
  MOTLEY_TRY_VOID(
      load_layers(source, options, checkpoint_ != nullptr ? checkpoint_->file_bytes() : 0));
  MOTLEY_TRY(final_norm_, load_norm(source, config_, "model.norm.weight"));
  MOTLEY_TRY_VOID(load_head(source));
  MOTLEY_TRY_VOID(source.finish(
      [&](std::string_view name) { return is_skipped(StoredNames::plain(name), config_.layers); }));
  MOTLEY_TRY_VOID(make_rope_tables(uploader.get()));
  if (uploader != nullptr) MOTLEY_TRY_VOID(uploader->finish());
  if (source.decoded() > 0)
    log::info("model.decoded", {{"weights", source.decoded()}, {"to", "bf16"}});
  if (source.disputed() > 0) {
    const std::string remark =
        cat("zero points of ", source.disputed(),
            " weights go beyond the codes of GPTQ's first format; they are read as GPTQModel does");
    quantization_remarks_.push_back(remark);
    log::info("model.quantization", {{"method", quantization.method()}, {"remark", remark}});
  }
  base_view_ = make_base_view(*this, quantization);
  list_ops();
  return {};
}

Result<void> Model::load_head(WeightSource& source) {
  const quant::TrueSize size{config_.vocabulary, config_.hidden};
  const lora::Site site{-1, lora::Projection::lm_head};
  if (!config_.tied_embeddings || source.has("lm_head.weight")) {
    MOTLEY_TRY(
        head_,
        load_linear(source,
                    {.site = site, .module = "lm_head", .size = size, .cut = vocabulary_part()}));
    return {};
  }
  // Shares the embedding's table.
  const auto same = [&](const quant::Weight& weight) {
    return quant::Weight({.format = weight.format(),
                          .size = {weight.out(), weight.in()},
                          .data = static_cast<const std::byte*>(weight.view().data)});
  };
  head_ = {.site = site, .size = size, .cut = embedding_.cut, .weight = same(embedding_.weight)};
  if (embedding_.stored.view().data != nullptr) head_.stored = same(embedding_.stored);
  return {};
}

Result<void> Model::load_layers(WeightSource& source, const LoadOptions& options,
                                std::uint64_t bytes) {
  const BackendChoice choice{.forced = options.experts_backend, .factors = options.factors};
  const auto count = static_cast<std::size_t>(config_.layers);
  layers_.resize(count);
  // Several threads repack what is not stored as kernels read it. For a GPU each has pinned staging
  // buffers and a stream of its own. Few layers are loaded by fewer threads.
  const bool uploads = source.memory().uploader != nullptr;
  ThreadPool threads(
      {.threads = std::min({8, usable_cpus(), std::max(1, static_cast<int>(count) / 2)})});
  std::mutex lock;
  std::size_t next = 0;
  std::size_t done = 0;
  std::optional<std::pair<std::size_t, Error>> failure;  // of the first layer that failed
  threads.run([&](int) {
    std::unique_ptr<quant::Uploader> uploader;
    if (uploads) {
      auto made = quant::Uploader::create(*device_);
      if (!made.ok()) {
        const std::lock_guard held(lock);
        failure.emplace(0, std::move(made).error());
        return;
      }
      uploader = *std::move(made);
    }
    WeightSource own = source.beside(uploader.get());
    for (;;) {
      std::size_t index = 0;
      {
        const std::lock_guard held(lock);
        if (failure || next == count) break;
        index = next++;
      }
      auto layer =
          load_layer(own, config_, static_cast<std::int32_t>(index), choice, options.mixer);
      if (layer.ok() && uploads) {
        if (auto finished = uploader->finish(); !finished.ok()) layer = std::move(finished).error();
      }
      const std::lock_guard held(lock);
      if (!layer.ok()) {
        if (!failure || failure->first > index) failure.emplace(index, std::move(layer).error());
        break;
      }
      layers_[index] = *std::move(layer);
      ++done;
      if (options.progress && bytes > 0) options.progress(bytes * done / count, bytes);
    }
    const std::lock_guard held(lock);
    source.merge(std::move(own));
  });
  if (failure) return std::move(failure->second);
  for (const Layer& layer : layers_) {
    token_caches_.push_back(layer.kept_per_token());
    state_shapes_.push_back(layer.kept_per_sequence());
  }
  if (!keeps_states()) return {};
  if (!ops::has_recurrence(context({})))
    return Error(ErrorCode::unsupported, "recurrent layers have no kernels for this device yet",
                 device_->description(), "use --device cpu");
  for (StateShape& shape : state_shapes_)
    shape.types = ops::kept_types(context({}), {.key_heads = shape.key_heads,
                                                .value_heads = shape.value_heads,
                                                .key_width = shape.key_width,
                                                .value_width = shape.value_width,
                                                .decay_by_key = shape.decay_by_key,
                                                .corrects = shape.corrects});
  return {};
}

// One for each way in which mixers rotate.
Result<void> Model::make_rope_tables(quant::Uploader* uploader) {
  for (const MixerConfig& each : config_.mixers) {
    const ops::RopeSpec* const spec = rope_of(each);
    if (spec == nullptr || spec->dims == 0 ||
        std::ranges::find(rope_tables_, *spec, &RopeTable::spec) != rope_tables_.end())
      continue;
    MOTLEY_TRY(RopeTable table, RopeTable::create(*spec, *device_, uploader));
    rope_tables_.push_back(std::move(table));
  }
  return {};
}

std::string Model::describe_backends() const {
  std::map<std::string, int> layers_of;
  for_each_moe(layers_, [&](const MoeBlock& block, std::size_t) {
    std::vector<std::string> reasons;
    for (const auto& [name, reason] : moe::passed_over(block.problem, *block.backend))
      reasons.push_back(cat(name, ": ", reason));
    const std::string why = reasons.empty() ? "" : cat(" (not ", join(reasons, "; "), ")");
    ++layers_of[cat(block.backend->name(), why)];
  });
  std::vector<std::string> parts;
  for (const auto& [name, layers] : layers_of) parts.push_back(cat(layers, " layers by ", name));
  return parts.empty() ? "no experts" : join(parts);
}

lora::Layout Model::factor_layout() const {
  std::optional<lora::Layout> layout;
  for_each_moe(layers_, [&](const MoeBlock& block, std::size_t) {
    if (!layout) layout = block.backend->factor_layout();
  });
  return layout.value_or(lora::Layout::rows);
}

bool Model::shrinks_alike(const Model& other) const {
  if (shard_.deals_experts()) return false;
  const auto units = [](const Model& model) {
    std::vector<std::optional<float>> all;
    for_each_moe(model.layers(), [&](const MoeBlock& block, std::size_t) {
      all.push_back(block.prepared->rank_row_unit());
    });
    return all;
  };
  const std::vector<std::optional<float>> own = units(*this);
  const bool known = std::ranges::all_of(own, [](const auto& unit) { return unit.has_value(); });
  return known && own == units(other);
}

Result<void> Model::add_attention_scratch(std::int64_t sequences, Workspace& workspace) const {
  kernels::AttentionScratchSize most;
  for_each_mixer(layers_, [&](const Mixer& mixer, std::size_t) {
    const kernels::AttentionScratchSize size =
        kernels_->attention_scratch(mixer.attention_shape(sequences), kernels_->on({}));
    most.partials = std::max(most.partials, size.partials);
    most.counters = std::max(most.counters, size.counters);
  });
  if (most.partials == 0) return {};
  const auto partial_bytes = static_cast<std::size_t>(most.partials) * sizeof(float);
  const auto counter_bytes = static_cast<std::size_t>(most.counters) * sizeof(std::int32_t);
  MOTLEY_TRY(workspace.attention_memory, device_->allocate(partial_bytes + counter_bytes));
  std::byte* const memory = workspace.attention_memory.data();
  MOTLEY_TRY(const std::unique_ptr<tensor::Stream> stream, device_->create_stream());
  MOTLEY_TRY_VOID(stream->fill(memory + partial_bytes, std::byte{0}, counter_bytes));
  MOTLEY_TRY_VOID(stream->synchronize());
  workspace.attention = {.partials = reinterpret_cast<float*>(memory),
                         .partial_count = most.partials,
                         .counters = reinterpret_cast<std::int32_t*>(memory + partial_bytes),
                         .counter_count = most.counters};
  return {};
}

const Mixer* Model::with_second_form() const {
  const Mixer* first = nullptr;
  for_each_mixer(layers_, [&](const Mixer& mixer, std::size_t) {
    if (first == nullptr && mixer.has_second_form(context({}))) first = &mixer;
  });
  return first;
}

namespace {

// Numbers of the values that callers provide memory for.
enum External : std::uint8_t { sum, addend, logits, external_count };

}  // namespace

void Model::list_ops() {
  Builder pass(layer_ops_, context({}), {.activations = activations(), .kv = kv_type()});
  for (const RopeTable& table : rope_tables_) pass.add_rope_table(table);
  const auto first_token = shard_.is_cut() ? std::optional(shard_.vocabulary.begin) : std::nullopt;
  Residual hidden{.sum = pass.embed(embedding_, first_token)};
  for (const Layer& layer : layers_) hidden = layer.append(hidden, pass);
  // The last sum is left to the caller, who may need only some rows.
  layer_ops_.set_external(hidden.sum, External::sum);
  layer_ops_.set_external(hidden.addend, External::addend);

  Builder head(head_ops_, context({}), {.activations = activations(), .kv = kv_type()});
  const ValueId last = head.value("hidden", DType::f32, config_.hidden);
  const ValueId last_addend = head.value("addend", DType::f32, config_.hidden);
  head.add_in_place(last_addend, last);
  const ValueId own = head.linear(head_, head.norm(final_norm_, last), "logits");
  const ValueId all = head.gather_over_ranks(own, shard_.vocabulary, config_.vocabulary);
  head_ops_.set_external(last, External::sum);
  head_ops_.set_external(last_addend, External::addend);
  head_ops_.set_external(all, External::logits);
}

Result<Model::Workspace> Model::make_workspace(const StepLimits& limits) const {
  const std::int64_t positions =
      limits.positions == 0 ? 0 : limits.positions + ops::rows_after_positions;
  Workspace workspace;
  workspace.layers = std::make_unique<Forward>(
      layer_ops_, Forward::Options{.bounds = {limits.rows, positions}, .fuses = fuses_});
  workspace.head = std::make_unique<Forward>(
      head_ops_, Forward::Options{.bounds = {limits.logit_rows, 0}, .fuses = fuses_});
  MOTLEY_TRY(workspace.memory,
             device_->allocate(std::max(workspace.layers->bytes(), workspace.head->bytes())));
  MOTLEY_TRY_VOID(add_attention_scratch(limits.sequences, workspace));
  Result<void> added;
  for_each_moe(layers_, [&](const MoeBlock& block, std::size_t) {
    if (added.ok())
      added = workspace.experts.add(*block.backend, block.problem, limits.rows, limits.deltas,
                                    *device_);
  });
  MOTLEY_TRY_VOID(added);
  return workspace;
}

void Model::forward(const Batch& batch, Workspace& workspace, StreamHandle stream,
                    const HiddenStates& hidden) const {
  ops::Context context = this->context(stream);
  context.shared_shrinks = workspace.shared_shrinks;
  const auto begin = [&] {
    workspace.experts.begin_step(
        batch.count, batch.mixes.batch == nullptr ? nullptr : batch.mixes.labels, context.stream);
  };
  if (workspace.trace == nullptr) {
    begin();
  } else {
    TracedLaunch traced{.ops = {"begin"}};
    kernels::log_cuda_launches(kernels(), &traced.kernels);
    begin();
    kernels::log_cuda_launches(kernels(), nullptr);
    workspace.trace->push_back(std::move(traced));
  }
  const std::array<Tensor, External::external_count> externals{hidden.sum, hidden.addend, {}};
  workspace.layers->run({.batch = batch,
                         .context = context,
                         .experts = workspace.experts,
                         .attention_scratch = workspace.attention,
                         .memory = workspace.memory,
                         .externals = externals,
                         .trace = workspace.trace});
}

void Model::logits(const HiddenStates& hidden, const lora::RowMixes& mixes, Workspace& workspace,
                   StreamHandle stream, const Tensor& logits) const {
  const std::array<Tensor, External::external_count> externals{hidden.sum, hidden.addend, logits};
  const Batch batch{.count = hidden.sum.dim(0), .mixes = mixes};
  workspace.head->run({.batch = batch,
                       .context = context(stream),
                       .experts = workspace.experts,
                       .memory = workspace.memory,
                       .externals = externals,
                       .trace = workspace.trace});
}

}  // namespace motley::model
