#pragma once

#include <optional>

#include "model/config.h"
#include "model/linear.h"

namespace motley::model {

// Multi-head latent attention (MLA). A token keeps one latent row and one turned key that all heads
// share; kv_b makes each head's key and value of the latent.
//
// Absorbed form: a head's query is carried into latent space through kv_b's key rows, attention
// runs over the latents themselves, and what comes out goes through kv_b's value rows. It serves
// prompts and single tokens alike, so that a row's bits do not depend on how a prompt was cut.
// The plain form, which it must equal, is in latent_attention_plain.h.
struct LatentAttention {
  std::optional<Linear> q;         // without a query latent
  std::optional<Linear> q_a, q_b;  // with one
  Norm q_a_norm;
  Linear kv_a;  // -> [latent | turned key]
  Norm kv_a_norm;
  Linear kv_b;  // a head's rows: nope_dim for keys, then value_dim for values
  Linear o;
  std::int64_t heads = 0;
  LatentConfig sizes;
  float scale = 0;
  bool rope_interleaved = false;
};

Result<LatentAttention> load_latent_attention(WeightSource& source, const Config& config,
                                              std::int32_t layer);

CacheLayout cache_layout(const LatentAttention& block);
std::size_t scratch_bytes(const LatentAttention& block, std::int64_t rows);

// What every form begins with: the rows' queries, their rope part turned, into q [R, heads *
// (nope_dim + rope_dim)] (f32), and their [latent | turned key] into the pages.
void project_and_store(const LatentAttention& block, const Step& step, const LayerPages& pages,
                       const tensor::ConstTensor& x, const tensor::Tensor& q);

// x [R, hidden] -> out [R, hidden].
void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const tensor::ConstTensor& x, const tensor::Tensor& out);
// The same for entry.x, with what leads into the block; out may be entry.addend.
void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const NormedSum& entry, const tensor::Tensor& out, NormedSum& next);

}  // namespace motley::model
