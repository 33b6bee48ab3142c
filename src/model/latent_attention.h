#pragma once

#include <optional>

#include "model/block.h"
#include "model/config/config.h"

namespace motley::model {

// Multi-head latent attention (MLA). A token stores one latent row and one rotated key that all
// heads share; kv_b computes each head's key and value from the latent.
//
// Absorbed form: queries are multiplied by kv_b's key rows into latent space, attention runs over
// the latents, and its output is multiplied by kv_b's value rows. It is used for prompts and single
// tokens alike, so that a row's bits do not depend on how a prompt was divided.
//
// Expanded form, the second one: the latents of all positions of some sequences are multiplied by
// kv_b, and attention runs over ordinary heads. Available on a GPU that computes in bf16.
struct LatentAttention final : Mixer {
  std::optional<Linear> q;         // if there is no query latent
  std::optional<Linear> q_a, q_b;  // with one
  tensor::Buffer q_kv_memory;      // of q or q_a and of kv_a, if they are contiguous
  Norm q_a_norm;
  Linear kv_a;  // -> [latent | rotated key]
  Norm kv_a_norm;
  Linear kv_b;  // each head has nope_dim rows for keys, then value_dim rows for values
  // kv_b for rows of the activation type, if kv_b's own weight is for float32 rows.
  std::optional<quant::Weight> kv_b_rounded;
  Linear o;
  std::int64_t heads = 0;  // of this rank, which may have none
  LatentConfig sizes;

  const quant::Weight& expanding() const { return kv_b_rounded ? *kv_b_rounded : kv_b.weight; }

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override;
  TokenCaches kept_per_token() const override;
  StateShape kept_per_sequence() const override { return {}; }
  kernels::AttentionShape attention_shape(std::int64_t sequences) const override;
  Cost cost(const EqualSequences& step) const override;
  bool has_second_form(const ops::Context& device) const override;
  std::int64_t max_positions(std::int64_t rows, std::int64_t tokens) const override;
  std::int64_t saved_by_second_form(std::int64_t rows, std::int64_t positions) const override;
  // In either form where the device can.
  ValueId append(ValueId x, Builder& pass) const override;
  ValueId append(ValueId x, bool expands, Builder& pass) const;
};

Result<LatentAttention> load_attention(WeightSource& source, const Config& config,
                                       const LatentConfig& sizes, std::int32_t layer);

}  // namespace motley::model
