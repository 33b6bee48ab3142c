#include "model/layer.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/cat.h"
#include "model/delta_net.h"
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
  MOTLEY_TRY(norm.weight, source.norm(name, config.hidden, config.norms_add_one));
  return norm;
}

Result<Layer> load_layer(WeightSource& source, const Config& config, std::int32_t index,
                         const BackendChoice& choice, const MixerLoader& other_mixer) {
  const std::string prefix = cat("model.layers.", index, ".");
  Layer layer;
  MOTLEY_TRY(layer.mixer.before, load_norm(source, config, prefix + "input_layernorm.weight"));
  MOTLEY_TRY(layer.feed_forward.before,
             load_norm(source, config, prefix + "post_attention_layernorm.weight"));
  MOTLEY_TRY(layer.mixer.block, load_mixer(source, config, index, other_mixer));
  MOTLEY_TRY(layer.kv_scales, read_kv_scales(source, index));
  MOTLEY_TRY(layer.feed_forward.block, load_feed_forward(source, config, index, choice));
  return layer;
}

std::vector<MapGroup> Branches::maps() const {
  std::vector<MapGroup> groups;
  for (const Branch<Block>& branch : all)
    std::ranges::move(branch.block->maps(), std::back_inserter(groups));
  return groups;
}

std::vector<const Vector*> Branches::vectors() const {
  std::vector<const Vector*> vectors;
  for (const Branch<Block>& branch : all) {
    std::ranges::copy(branch.norms(), std::back_inserter(vectors));
    std::ranges::copy(branch.block->vectors(), std::back_inserter(vectors));
  }
  return vectors;
}

std::vector<const MoeBlock*> Branches::moe_blocks() const {
  std::vector<const MoeBlock*> blocks;
  for (const Branch<Block>& branch : all)
    std::ranges::copy(branch.block->moe_blocks(), std::back_inserter(blocks));
  return blocks;
}

ValueId Branches::append(ValueId x, Builder& pass) const {
  const ValueId sum = all.front().append(x, pass);
  for (const Branch<Block>& branch : std::span(all).subspan(1))
    pass.add_in_place(branch.append(x, pass), sum);
  return sum;
}

TokenCaches Layer::kept_per_token() const {
  if (mixer.block == nullptr) return {};
  TokenCaches caches = mixer.block->kept_per_token();
  using Scale = TokenCache::Scale;
  for (TokenCache& cache : caches)
    if (kv_scales.stored && cache.takes != Scale::none)
      cache.scale = cache.takes == Scale::of_keys ? kv_scales.key : kv_scales.value;
  return caches;
}

StateShape Layer::kept_per_sequence() const {
  return mixer.block == nullptr ? StateShape{} : mixer.block->kept_per_sequence();
}

Residual Layer::append(Residual hidden, Builder& pass) const {
  const auto append_branch = [&](const auto& branch) {
    if (branch.block == nullptr) return;
    if (hidden.addend != ops::no_value) hidden.sum = pass.add(hidden.sum, hidden.addend);
    hidden.addend = branch.append(hidden.sum, pass);
  };
  append_branch(mixer);
  append_branch(feed_forward);
  return hidden;
}

}  // namespace motley::model
