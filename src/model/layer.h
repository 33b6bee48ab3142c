#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/feed_forward.h"
#include "model/weights/kv_scales.h"

namespace motley::model {

// Hidden states between blocks: sum + addend. The addend is what the last block computed; the next
// norm takes both, so that one launch can.
struct Residual {
  ValueId sum = ops::no_value;
  ValueId addend = ops::no_value;  // no_value: zero
};

struct Layer {
  Norm input_norm;
  std::unique_ptr<Mixer> mixer;
  Norm ffn_norm;
  std::unique_ptr<Block> feed_forward;
  KvScales kv_scales;

  // With the checkpoint's scales.
  CacheLayout kept_per_token() const;
  Residual append(Residual hidden, Builder& pass) const;
};

// Loads the mixer of a layer; null: the one that the configuration asks for.
using MixerLoader = std::function<Result<std::unique_ptr<Mixer>>(
    WeightSource& source, const Config& config, std::int32_t layer)>;

Result<Norm> load_norm(WeightSource& source, const Config& config, std::string_view name);
Result<Layer> load_layer(WeightSource& source, const Config& config, std::int32_t index,
                         const BackendChoice& choice, const MixerLoader& other_mixer);

// visit(block) for the mixer and the feed-forward block of each layer.
template <class Visit>
void for_each_block(const std::vector<Layer>& layers, const Visit& visit) {
  for (const Layer& layer : layers) {
    visit(static_cast<const Block&>(*layer.mixer));
    visit(*layer.feed_forward);
  }
}

// visit(block, index of its layer) for all blocks with experts.
template <class Visit>
void for_each_moe(const std::vector<Layer>& layers, const Visit& visit) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const MoeBlock* const block : layers[i].feed_forward->moe_blocks()) visit(*block, i);
}

}  // namespace motley::model
