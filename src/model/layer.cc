#include "model/layer.h"

#include "base/cat.h"
#include "model/grouped_attention.h"
#include "model/latent_attention.h"

namespace motley::model {
namespace {

template <class Kind>
std::unique_ptr<Kind> owned(Kind block) {
  return std::make_unique<Kind>(std::move(block));
}

Result<std::unique_ptr<Mixer>> load_mixer(WeightSource& source, const Config& config,
                                          std::int32_t layer, const MixerLoader& other) {
  if (other) {
    MOTLEY_TRY(std::unique_ptr<Mixer> mixer, other(source, config, layer));
    if (mixer != nullptr) return mixer;
  }
  return std::visit(
      [&](const auto& sizes) -> Result<std::unique_ptr<Mixer>> {
        MOTLEY_TRY(auto mixer, load_attention(source, config, sizes, layer));
        return std::unique_ptr<Mixer>(owned(std::move(mixer)));
      },
      config.mixer(layer));
}

Result<std::unique_ptr<Block>> load_feed_forward(WeightSource& source, const Config& config,
                                                 std::int32_t layer, const BackendChoice& choice) {
  if (!config.moe_layers[static_cast<std::size_t>(layer)]) {
    MOTLEY_TRY(DenseBlock block, load_dense_block(source, config, layer));
    return std::unique_ptr<Block>(owned(std::move(block)));
  }
  MOTLEY_TRY(MoeBlock experts, load_moe_block(source, config, layer, choice));
  if (!config.dense_and_experts) return std::unique_ptr<Block>(owned(std::move(experts)));
  ParallelBlock block;
  block.experts = std::move(experts);
  MOTLEY_TRY(block.dense, load_dense_block(source, config, layer));
  return std::unique_ptr<Block>(owned(std::move(block)));
}

}  // namespace

Result<Norm> load_norm(WeightSource& source, const Config& config, std::string_view name) {
  Norm norm{.eps = static_cast<float>(config.norm_eps), .weight_in_f32 = config.norm_weight_in_f32};
  MOTLEY_TRY(norm.weight, source.vector(name, config.hidden));
  return norm;
}

Result<Layer> load_layer(WeightSource& source, const Config& config, std::int32_t index,
                         const BackendChoice& choice, const MixerLoader& other_mixer) {
  const std::string prefix = cat("model.layers.", index, ".");
  Layer layer;
  MOTLEY_TRY(layer.input_norm, load_norm(source, config, prefix + "input_layernorm.weight"));
  MOTLEY_TRY(layer.ffn_norm, load_norm(source, config, prefix + "post_attention_layernorm.weight"));
  MOTLEY_TRY(layer.mixer, load_mixer(source, config, index, other_mixer));
  MOTLEY_TRY(layer.kv_scales, read_kv_scales(source, index));
  MOTLEY_TRY(layer.feed_forward, load_feed_forward(source, config, index, choice));
  return layer;
}

CacheLayout Layer::kept_per_token() const {
  CacheLayout layout = mixer->kept_per_token();
  if (kv_scales.stored && layout.takes_scales) {
    layout.key_scale = kv_scales.key;
    layout.value_scale = kv_scales.value;
  }
  return layout;
}

Residual Layer::append(Residual hidden, Builder& pass) const {
  ValueId sum = hidden.sum;
  if (hidden.addend != ops::no_value) sum = pass.add(sum, hidden.addend);
  const ValueId mixed = mixer->append(pass.norm(input_norm, sum), pass);
  sum = pass.add(sum, mixed);
  return {.sum = sum, .addend = feed_forward->append(pass.norm(ffn_norm, sum), pass)};
}

}  // namespace motley::model
