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
// The plain form, which it must equal, is in latent_attention_plain.h; prompts on a GPU have it too
// (latent_attention_expanded.h).
struct LatentAttention {
  std::optional<Linear> q;         // without a query latent
  std::optional<Linear> q_a, q_b;  // with one
  tensor::Buffer q_kv_memory;      // of q or q_a and of kv_a, where they stand side by side
  Norm q_a_norm;
  Linear kv_a;  // -> [latent | turned key]
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
// `expanded`: positions that a step may have in expanded form; `kept`: the pages' type.
std::size_t scratch_bytes(const LatentAttention& block, std::int64_t rows,
                          std::int64_t expanded = 0, DType kept = DType::f32);

// What every form begins with, both f32: q [R, heads, nope_dim + rope_dim] and kv [R, kv_rank +
// rope_dim], side by side where the widths allow it, so that they may be one product.
struct Projected {
  tensor::Tensor q, kv;
};
Projected project(const LatentAttention& block, const Step& step, const tensor::ConstTensor& x,
                  Scratch& scratch);
// And then, for the part's rows: their [normed latent | turned key] go into the pages, and their
// queries' last columns, the turned ones at least, to `queries` [R, heads, so many].
void prepare(const LatentAttention& block, const Step& step, const LayerPages& pages,
             const StepPart& part, const Projected& rows, const tensor::Tensor& queries);

// x [R, hidden] -> out [R, hidden].
void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const tensor::ConstTensor& x, const tensor::Tensor& out);
// The same for entry.x, with what leads into the block; out may be entry.addend.
void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const NormedSum& entry, const tensor::Tensor& out, NormedSum& next);

}  // namespace motley::model
