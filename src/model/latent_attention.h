#pragma once

#include <optional>

#include "model/config/config.h"
#include "model/forward/builder.h"
#include "model/linear.h"
#include "model/step.h"

namespace motley::model {

// Multi-head latent attention (MLA). A token keeps one latent row and one rotated key that all
// heads share; kv_b makes each head's key and value of the latent.
//
// Absorbed form: a head's query is carried into latent space through kv_b's key rows, attention
// runs over the latents themselves, and what comes out goes through kv_b's value rows. It serves
// prompts and single tokens alike, so that a row's bits do not depend on how a prompt was cut.
//
// Expanded form: the latents of all positions of some sequences go through kv_b, side by side, and
// attention runs over ordinary heads. It costs less for a prompt that is not short beside what
// stands before it; a GPU that computes in bf16 has it.
struct LatentAttention {
  std::optional<Linear> q;         // without a query latent
  std::optional<Linear> q_a, q_b;  // with one
  tensor::Buffer q_kv_memory;      // of q or q_a and of kv_a, where they stand side by side
  Norm q_a_norm;
  Linear kv_a;  // -> [latent | rotated key]
  Norm kv_a_norm;
  Linear kv_b;  // a head's rows: nope_dim for keys, then value_dim for values
  // The same for rows of the activation type, where kv_b's own weight is for float32 ones.
  std::optional<quant::Weight> kv_b_rounded;
  Linear o;
  std::int64_t heads = 0;
  LatentConfig sizes;
  float scale = 0;
  bool rope_interleaved = false;

  const quant::Weight& expanding() const { return kv_b_rounded ? *kv_b_rounded : kv_b.weight; }
};

Result<LatentAttention> load_latent_attention(WeightSource& source, const Config& config,
                                              std::int32_t layer);

CacheLayout cache_layout(const LatentAttention& block);

// Whether steps may attend in expanded form too, and with how many positions at most.
bool can_expand(const LatentAttention& block, const ops::Context& context);
std::int64_t max_expanded(const LatentAttention& block, std::int64_t rows, std::int64_t tokens);

// x [R, hidden] -> the layer's result [R, hidden]; `expands`: in either form.
ValueId append(const LatentAttention& block, ValueId x, bool expands, Builder& pass);

}  // namespace motley::model
