#include "model/latent_attention.h"

#include <algorithm>

#include "base/cat.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace motley::model {

using lora::Projection;
using tensor::Tensor;

Result<LatentAttention> load_latent_attention(WeightSource& source, const Config& config,
                                              std::int32_t layer) {
  const LatentConfig& sizes = config.latent;
  const std::string module = cat("model.layers.", layer, ".self_attn");
  const std::int64_t heads = config.attention.heads;
  const std::int64_t q_width = heads * (sizes.nope_dim + sizes.rope_dim);
  const auto load = [&](Projection projection, std::string_view name, quant::TrueSize size) {
    return load_linear(source, {{layer, projection}, cat(module, ".", name), size});
  };

  LatentAttention block;
  block.q_a_norm.eps = block.kv_a_norm.eps = static_cast<float>(sizes.inner_norm_eps);
  if (sizes.q_rank == 0) {
    MOTLEY_TRY(block.q, load(Projection::q, "q_proj", {q_width, config.hidden}));
  } else {
    MOTLEY_TRY(block.q_a, load(Projection::q_a, "q_a_proj", {sizes.q_rank, config.hidden}));
    MOTLEY_TRY(block.q_a_norm.weight,
               source.vector(cat(module, ".q_a_layernorm.weight"), sizes.q_rank));
    MOTLEY_TRY(block.q_b, load(Projection::q_b, "q_b_proj", {q_width, sizes.q_rank}));
  }
  MOTLEY_TRY(block.kv_a, load(Projection::kv_a, "kv_a_proj_with_mqa",
                              {sizes.kv_rank + sizes.rope_dim, config.hidden}));
  MOTLEY_TRY(block.kv_a_norm.weight,
             source.vector(cat(module, ".kv_a_layernorm.weight"), sizes.kv_rank));
  MOTLEY_TRY(
      block.kv_b,
      load_linear(source, {.site = {layer, Projection::kv_b},
                           .module = cat(module, ".kv_b_proj"),
                           .size = {heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank},
                           .float32_rows = true}));
  MOTLEY_TRY(block.o, load(Projection::o, "o_proj", {config.hidden, heads * sizes.value_dim}));
  block.heads = heads;
  block.sizes = sizes;
  block.scale = static_cast<float>(config.attention.scale);
  block.rope_interleaved = config.rope.pairs == ops::RopeSpec::Pairs::interleaved;
  return block;
}

CacheLayout cache_layout(const LatentAttention& block) {
  return {
      .heads = 1, .key_width = block.sizes.kv_rank + block.sizes.rope_dim, .values_in_keys = true};
}

std::size_t scratch_bytes(const LatentAttention& block, std::int64_t rows) {
  const LatentConfig& sizes = block.sizes;
  const std::int64_t q_width = block.heads * (sizes.nope_dim + sizes.rope_dim);
  const std::int64_t latents = block.heads * sizes.kv_rank;
  const std::int64_t values = block.heads * sizes.value_dim;
  const std::int64_t widest = std::max({q_width, sizes.q_rank, block.kv_a.out(), block.o.out()});
  return scratch_bytes(rows,
                       {q_width, sizes.q_rank, sizes.q_rank, block.kv_a.out(), latents,
                        latents + block.heads * sizes.rope_dim, latents, values, values, widest}) +
         lora::scratch_bytes;
}

void project_and_store(const LatentAttention& block, const Step& step, const LayerPages& pages,
                       const tensor::ConstTensor& x, const Tensor& q) {
  const ops::Context& context = step.context;
  const LatentConfig& sizes = block.sizes;
  const std::int64_t rows = step.rows();
  const std::int64_t kl = sizes.kv_rank;
  const std::int64_t dr = sizes.rope_dim;
  Scratch scratch(context);

  const lora::RowMixes& mixes = step.batch.mixes;
  const Tensor kv = scratch.take(DType::f32, {rows, kl + dr});
  if (block.q) {
    apply({{*block.q, q}, {block.kv_a, kv}}, context, mixes, x);
  } else {
    const Tensor q_latent = scratch.take(DType::f32, {rows, sizes.q_rank});
    const Tensor normed = scratch.take(step.activations, {rows, sizes.q_rank});
    apply({{*block.q_a, q_latent}, {block.kv_a, kv}}, context, mixes, x);
    apply(block.q_a_norm, context, q_latent, normed);
    apply(*block.q_b, step, normed, q);
  }
  const Tensor latent = kv.slice(1, 0, kl);
  apply(block.kv_a_norm, context, latent, latent);

  const Tensor q_heads = q.reshape({rows, block.heads, sizes.nope_dim + dr});
  const Tensor kv_head = kv.reshape({rows, 1, kl + dr});
  ops::rope(context, step.cos_sin, block.rope_interleaved, sizes.nope_dim, q_heads);
  ops::rope(context, step.cos_sin, block.rope_interleaved, kl, kv_head);
  ops::store_kv(context, step.batch.rows, kv_head, pages.keys);
}

void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const tensor::ConstTensor& x, const Tensor& out) {
  const ops::Context& context = step.context;
  const lora::RowMixes& mixes = step.batch.mixes;
  const LatentConfig& sizes = block.sizes;
  const std::int64_t rows = step.rows();
  const std::int64_t heads = block.heads;
  const std::int64_t kl = sizes.kv_rank;
  const std::int64_t dn = sizes.nope_dim;
  const std::int64_t dr = sizes.rope_dim;
  const std::int64_t dv = sizes.value_dim;
  const lora::KvB kv_b{.layer = block.kv_b.site.layer, .rows_a_head = dn + dv};
  Scratch scratch(context);

  const Tensor q = scratch.take(DType::f32, {rows, heads * (dn + dr)});
  project_and_store(block, step, pages, x, q);
  const Tensor q_heads = q.reshape({rows, heads, dn + dr});

  // Queries into latent space: [R, heads, dn] -> [R, heads, kl].
  const Tensor q_nope = q_heads.slice(2, 0, dn);
  lora::kv_b_scale_queries(mixes, kv_b, q_nope, context);
  const Tensor q_carried = scratch.take(DType::f32, {rows, heads, kl});
  ops::linear_per_head_transposed(context, q_nope, block.kv_b.weight,
                                  {.rows_per_head = dn + dv, .first = 0}, q_carried);
  lora::kv_b_key_delta(mixes, kv_b, q_nope, q_carried, context);

  // [carried query | turned query] against [latent | turned key].
  const Tensor values_of_keys = pages.keys.slice(3, 0, kl);
  const Tensor query =
      scratch.take(ops::query_type(context, step.batch.rows, pages.keys, values_of_keys),
                   {rows * heads, kl + dr});
  ops::round_to(context, q_carried.reshape({rows * heads, kl}), {}, query.slice(1, 0, kl));
  ops::round_to(context, q.reshape({rows * heads, dn + dr}).slice(1, dn, dn + dr), {},
                query.slice(1, kl, kl + dr));
  const Tensor mixed = scratch.take(DType::f32, {rows, heads, kl});
  ops::attention(context, step.batch.rows, query.reshape({rows, heads, kl + dr}), pages.keys,
                 values_of_keys, {.scale = block.scale, .scratch = step.attention_scratch}, mixed);

  // Latents into values: [R, heads, kl] -> [R, heads, dv].
  const Tensor values = scratch.take(DType::f32, {rows, heads, dv});
  ops::linear_per_head(context, mixed, block.kv_b.weight, {.rows_per_head = dn + dv, .first = dn},
                       values);
  lora::kv_b_value_delta(mixes, kv_b, mixed, values, context);
  const Tensor rounded = scratch.take(step.activations, {rows, heads * dv});
  ops::round_to(context, values.reshape({rows, heads * dv}), {}, rounded);
  apply(block.o, step, rounded, out);
}

void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const NormedSum& entry, const Tensor& out, NormedSum& /*next*/) {
  apply(entry, step.context);
  apply(block, step, pages, entry.x, out);
}

}  // namespace motley::model
