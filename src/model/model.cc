#include "model/model.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/cat.h"
#include "base/files.h"
#include "kernels/elementary.h"
#include "model/base_view.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"

namespace motley::model {

using tensor::Tensor;

namespace {

// Tensors that checkpoints carry and a forward pass has no use for: layers for multi-token
// prediction behind the last one, vision towers, buffers that are computed anew.
bool is_skipped(std::string_view name, std::int64_t layers) {
  constexpr std::string_view layer_prefix = "model.layers.";
  if (name.starts_with(layer_prefix)) {
    const std::string_view rest = name.substr(layer_prefix.size());
    std::int64_t layer = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (parsed.ec == std::errc() && layer >= layers) return true;
  }
  for (const std::string_view prefix : {"mtp.", "visual.", "model.visual.", "vision_tower."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name.ends_with(".rotary_emb.inv_freq");
}

Result<Norm> load_norm(WeightSource& source, const Config& config, std::string_view name) {
  Norm norm{.eps = static_cast<float>(config.norm_eps), .weight_in_f32 = config.norm_weight_in_f32};
  MOTLEY_TRY(norm.weight, source.vector(name, config.hidden));
  return norm;
}

Result<Layer> load_layer(WeightSource& source, const Config& config, std::int32_t index,
                         const BackendChoice& choice) {
  const std::string prefix = cat("model.layers.", index, ".");
  Layer layer;
  MOTLEY_TRY(layer.input_norm, load_norm(source, config, prefix + "input_layernorm.weight"));
  MOTLEY_TRY(layer.ffn_norm, load_norm(source, config, prefix + "post_attention_layernorm.weight"));
  if (config.latent_attention) {
    MOTLEY_TRY(layer.attention, load_latent_attention(source, config, index));
  } else {
    MOTLEY_TRY(layer.attention, load_grouped_attention(source, config, index));
  }
  if (config.moe_layers[static_cast<std::size_t>(index)]) {
    MOTLEY_TRY(layer.ffn, load_moe_block(source, config, index, choice));
  } else {
    MOTLEY_TRY(layer.ffn, load_dense_block(source, config, index));
  }
  return layer;
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const std::filesystem::path& folder,
                                           tensor::Device& device, const LoadOptions& options) {
  MOTLEY_TRY(const json::Value settings, read_config_json(folder));
  const std::string where = printable((folder / "config.json").string());
  std::unique_ptr<Model> model(new Model());
  MOTLEY_TRY(model->config_, parse_config(settings, where));
  auto quantization = quant::Config::read(*settings.if_object());
  if (!quantization.ok()) return std::move(quantization).error().within(where);
  MOTLEY_TRY(tensor::Checkpoint checkpoint, tensor::Checkpoint::open(folder, "model"));

  const Config& config = model->config_;
  model->exact_ = options.exact;
  model->device_ = &device;
  model->checkpoint_ = std::make_unique<tensor::Checkpoint>(std::move(checkpoint));
  WeightSource source(*model->checkpoint_, *quantization, device);
  MOTLEY_TRY(model->embedding_,
             load_linear(source, {-1, lora::Projection::embed}, "model.embed_tokens",
                         {config.vocabulary, config.hidden}, false));
  if (model->embedding_.weight.format().scales != quant::Format::Scales::none)
    return Error(ErrorCode::unsupported, "the embedding is quantised", where,
                 "keep model.embed_tokens in F32, F16 or BF16");
  MOTLEY_TRY_VOID(model->load_layers(source, options, model->checkpoint_->file_bytes()));
  MOTLEY_TRY(model->final_norm_, load_norm(source, config, "model.norm.weight"));
  const bool own_head = !config.tied_embeddings || source.has("lm_head.weight");
  MOTLEY_TRY(model->head_, load_linear(source, {-1, lora::Projection::lm_head},
                                       own_head ? "lm_head" : "model.embed_tokens",
                                       {config.vocabulary, config.hidden}, false));
  MOTLEY_TRY_VOID(
      source.finish([&](std::string_view name) { return is_skipped(name, config.layers); }));
  model->rope_ = ops::rope_frequencies(config.rope);
  model->base_view_ = make_base_view(*model);
  return model;
}

Result<void> Model::load_layers(WeightSource& source, const LoadOptions& options,
                                std::uint64_t bytes) {
  const BackendChoice choice{.exact = options.exact, .forced = options.experts_backend};
  layers_.reserve(static_cast<std::size_t>(config_.layers));
  for (std::int32_t index = 0; index < config_.layers; ++index) {
    MOTLEY_TRY(Layer layer, load_layer(source, config_, index, choice));
    layers_.push_back(std::move(layer));
    cache_layouts_.push_back(std::visit([](const auto& block) { return cache_layout(block); },
                                        layers_.back().attention));
    if (options.progress) {
      const std::uint64_t done = layers_.size();
      options.progress(bytes * done / static_cast<std::uint64_t>(config_.layers), bytes);
    }
  }
  return {};
}

std::string Model::describe_backends() const {
  std::map<std::string_view, int> layers_of;
  for (const Layer& layer : layers_) {
    if (const auto* block = std::get_if<MoeBlock>(&layer.ffn)) ++layers_of[block->backend->name()];
  }
  std::vector<std::string> parts;
  for (const auto& [name, layers] : layers_of) parts.push_back(cat(name, ": ", layers, " layers"));
  return parts.empty() ? "no experts" : join(parts);
}

Result<Model::Workspace> Model::make_workspace(std::int64_t rows, std::int64_t logit_rows) const {
  std::size_t widest = 0;
  for (const Layer& layer : layers_) {
    const auto attention = [&](const auto& block) { return model::scratch_bytes(block, rows); };
    const auto ffn = [&](const auto& block) {
      if constexpr (std::is_same_v<std::decay_t<decltype(block)>, MoeBlock>) {
        return model::scratch_bytes(block, rows, exact_);
      } else {
        return model::scratch_bytes(block, rows);
      }
    };
    widest = std::max({widest, std::visit(attention, layer.attention), std::visit(ffn, layer.ffn)});
  }
  // Normed rows, a block's result and the rope table stand beside a block's own scratch; the head's
  // accumulators and normed rows come when those have gone.
  const std::size_t step = model::scratch_bytes(rows, {config_.hidden, config_.hidden,
                                                       config_.rope.dims, config_.hidden}) +
                           widest;
  const std::size_t head =
      model::scratch_bytes(logit_rows, {config_.hidden, config_.vocabulary}) + lora::scratch_bytes;
  MOTLEY_TRY(tensor::Buffer memory, device_->allocate(std::max(step, head)));
  const moe::RouterSpec& router = config_.moe.router;
  return Workspace{tensor::Arena(std::move(memory)),
                   plan::Plan(rows, std::max(router.top_k, 1), std::max(router.experts, 1))};
}

ops::Context Model::context(Workspace& workspace, StreamHandle stream) const {
  return {.kernels = &kernels::cpu_table(),
          .stream = stream,
          .scratch = &workspace.arena,
          .exact = exact_};
}

void Model::forward(const Batch& batch, Workspace& workspace, StreamHandle stream,
                    const Tensor& hidden) const {
  const ops::Context context = this->context(workspace, stream);
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  Scratch scratch(context);
  const Tensor cos_sin = scratch.take(DType::f32, {rows, config_.rope.dims});
  ops::rope_table(context, rope_, batch.rows.positions.data(), cos_sin);
  const Step step{.context = context,
                  .batch = batch,
                  .cos_sin = cos_sin,
                  .plan = workspace.plan,
                  .activations = activations()};
  {
    Scratch embedded(context);
    const Tensor acc = embedded.take(DType::f32, {rows, config_.hidden});
    ops::embed(context, embedding_table(), batch.tokens, acc);
    lora::finish_embedding(batch.adapters, batch.labels, batch.tokens, acc, hidden, context);
  }
  const Tensor normed = scratch.take(activations(), {rows, config_.hidden});
  const Tensor result = scratch.take(DType::f32, {rows, config_.hidden});
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    const LayerPages& pages = batch.pages[index];
    apply(layer.input_norm, context, hidden, normed);
    std::visit([&](const auto& block) { apply(block, step, pages, normed, result); },
               layer.attention);
    ops::add(context, hidden, result, hidden);
    apply(layer.ffn_norm, context, hidden, normed);
    std::visit([&](const auto& block) { apply(block, step, normed, result); }, layer.ffn);
    ops::add(context, hidden, result, hidden);
  }
}

void Model::logits(const tensor::ConstTensor& hidden, std::span<const std::int32_t> labels,
                   const lora::Batch* adapters, Workspace& workspace, StreamHandle stream,
                   const Tensor& logits) const {
  const ops::Context context = this->context(workspace, stream);
  Scratch scratch(context);
  const Tensor normed = scratch.take(activations(), {hidden.dim(0), config_.hidden});
  apply(final_norm_, context, hidden, normed);
  apply(head_, context, adapters, labels, normed, logits);
}

tensor::ConstTensor Model::embedding_table() const {
  const kernels::WeightView& view = embedding_.weight.view();
  return {static_cast<const std::byte*>(view.data),
          embedding_.weight.format().element,
          {view.out, view.in}};
}

}  // namespace motley::model
