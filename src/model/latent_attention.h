#pragma once

#include <optional>

#include "model/config/config.h"
#include "model/forward/builder.h"
#include "model/linear.h"
#include "model/step.h"

namespace motley::model {

// Multi-head latent attention (MLA). A token stores one latent row and one rotated key that all
// heads share; kv_b computes each head's key and value from the latent.
//
// Absorbed form: queries are multiplied by kv_b's key rows into latent space, attention runs over
// the latents, and its output is multiplied by kv_b's value rows. It is used for prompts and single
// tokens alike, so that a row's bits do not depend on how a prompt was divided.
//
// Expanded form: the latents of all positions of some sequences are multiplied by kv_b, and
// attention runs over ordinary heads. It is faster for a piece of a prompt that is long compared
// with what precedes it; available on a GPU that computes in bf16.
struct LatentAttention {
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
  float scale = 0;
  bool rope_interleaved = false;

  const quant::Weight& expanding() const { return kv_b_rounded ? *kv_b_rounded : kv_b.weight; }
};

Result<LatentAttention> load_latent_attention(WeightSource& source, const Config& config,
                                              std::int32_t layer);

CacheLayout cache_layout(const LatentAttention& block);
// For the scratch of steps with so many sequences.
kernels::AttentionShape attention_shape(const LatentAttention& block, std::int64_t sequences);

// Whether steps may use expanded form, and for how many positions at most.
bool can_expand(const LatentAttention& block, const ops::Context& context);
std::int64_t max_expanded(const LatentAttention& block, std::int64_t rows, std::int64_t tokens);

// x [R, hidden] -> the layer's result [R, hidden]. `expands`: in either form.
ValueId append(const LatentAttention& block, ValueId x, bool expands, Builder& pass);
// In either form where the device can.
ValueId append(const LatentAttention& block, ValueId x, Builder& pass);

}  // namespace motley::model
