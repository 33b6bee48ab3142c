#pragma once

#include <functional>
#include <memory>
#include <optional>
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

// A block with the norms before and after it.
template <class Kind>
struct Branch {
  std::optional<Norm> before;
  std::unique_ptr<Kind> block;  // of a layer: null if it has none of this kind
  std::optional<Norm> after;    // of the block's result

  // hidden [R, hidden] in f32 -> what is to be added to it.
  ValueId append(ValueId hidden, Builder& pass) const {
    const ValueId x = before ? pass.norm(*before, hidden) : hidden;
    const ValueId result = block->append(x, pass);
    if (after) pass.norm_in_place(*after, result);
    return result;
  }
  std::vector<const Vector*> norms() const {
    std::vector<const Vector*> weights;
    for (const std::optional<Norm>* const norm : {&before, &after})
      if (*norm) weights.push_back(&(*norm)->weight);
    return weights;
  }
};

// Branches that read the same hidden states, each through norms of its own; the result is their
// sum. A layer has no norm before it. Experts come last, so that the norm before them can be in one
// launch with their router.
struct Branches final : Block {
  std::vector<Branch<Block>> all;

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override;
  std::vector<const MoeBlock*> moe_blocks() const override;
  ValueId append(ValueId x, Builder& pass) const override;
};

struct Layer {
  Branch<Mixer> mixer;
  Branch<Block> feed_forward;
  KvScales kv_scales;

  // With the checkpoint's scales.
  TokenCaches kept_per_token() const;
  StateShape kept_per_sequence() const;
  Residual append(Residual hidden, Builder& pass) const;
};

// Loads the mixer of a layer; null: the one that the configuration asks for.
using MixerLoader = std::function<Result<std::unique_ptr<Mixer>>(
    WeightSource& source, const Config& config, std::int32_t layer)>;

Result<Norm> load_norm(WeightSource& source, const Config& config, std::string_view name);
Result<Layer> load_layer(WeightSource& source, const Config& config, std::int32_t index,
                         const BackendChoice& choice, const MixerLoader& other_mixer);

// visit(mixer, index of its layer).
template <class Visit>
void for_each_mixer(const std::vector<Layer>& layers, const Visit& visit) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (const Mixer* const mixer = layers[i].mixer.block.get()) visit(*mixer, i);
}

// visit(block) for the mixer and the feed-forward block of each layer.
template <class Visit>
void for_each_block(const std::vector<Layer>& layers, const Visit& visit) {
  for (const Layer& layer : layers) {
    for (const Block* const block : {static_cast<const Block*>(layer.mixer.block.get()),
                                     static_cast<const Block*>(layer.feed_forward.block.get())})
      if (block != nullptr) visit(*block);
  }
}

// visit(weight) for the norms between blocks.
template <class Visit>
void for_each_norm(const std::vector<Layer>& layers, const Visit& visit) {
  for (const Layer& layer : layers) {
    for (const Vector* const norm : layer.mixer.norms()) visit(*norm);
    for (const Vector* const norm : layer.feed_forward.norms()) visit(*norm);
  }
}

// visit(block, index of its layer) for all blocks with experts.
template <class Visit>
void for_each_moe(const std::vector<Layer>& layers, const Visit& visit) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (const Block* const feed_forward = layers[i].feed_forward.block.get())
      for (const MoeBlock* const block : feed_forward->moe_blocks()) visit(*block, i);
}

}  // namespace motley::model
