#include "model/latent_attention.h"

#include <algorithm>

#include "base/cat.h"
#include "model/latent_attention_expanded.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace motley::model {

using lora::Projection;
using tensor::Tensor;

Result<LatentAttention> load_latent_attention(WeightSource& source, const Config& config,
                                              std::int32_t layer) {
  const LatentConfig& sizes = config.latent;
  const std::string module = cat("model.layers.", layer, ".self_attn");
  const std::int64_t heads = config.attention.heads;
  const std::int64_t q_width = heads * (sizes.nope_dim + sizes.rope_dim);
  const auto spec = [&](Projection projection, std::string_view name, quant::TrueSize size) {
    return LinearSpec{{layer, projection}, cat(module, ".", name), size};
  };
  const LinearSpec kv_a =
      spec(Projection::kv_a, "kv_a_proj_with_mqa", {sizes.kv_rank + sizes.rope_dim, config.hidden});

  LatentAttention block;
  block.q_a_norm.eps = block.kv_a_norm.eps = static_cast<float>(sizes.inner_norm_eps);
  if (sizes.q_rank == 0) {
    const LinearSpec q = spec(Projection::q, "q_proj", {q_width, config.hidden});
    MOTLEY_TRY(block.q_kv_memory,
               load_linears(source, {{&block.q.emplace(), q}, {&block.kv_a, kv_a}}));
  } else {
    const LinearSpec q_a = spec(Projection::q_a, "q_a_proj", {sizes.q_rank, config.hidden});
    MOTLEY_TRY(block.q_kv_memory,
               load_linears(source, {{&block.q_a.emplace(), q_a}, {&block.kv_a, kv_a}}));
    MOTLEY_TRY(block.q_a_norm.weight,
               source.vector(cat(module, ".q_a_layernorm.weight"), sizes.q_rank));
    MOTLEY_TRY(block.q_b,
               load_linear(source, spec(Projection::q_b, "q_b_proj", {q_width, sizes.q_rank})));
  }
  MOTLEY_TRY(block.kv_a_norm.weight,
             source.vector(cat(module, ".kv_a_layernorm.weight"), sizes.kv_rank));
  MOTLEY_TRY(
      block.kv_b,
      load_linear(source, {.site = {layer, Projection::kv_b},
                           .module = cat(module, ".kv_b_proj"),
                           .size = {heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank},
                           .float32_rows = true}));
  if (block.kv_b.stored.view().data != nullptr && !source.memory().exact) {
    MOTLEY_TRY(block.kv_b_rounded, source.resident(block.kv_b.stored));
  }
  MOTLEY_TRY(block.o, load_linear(source, spec(Projection::o, "o_proj",
                                               {config.hidden, heads * sizes.value_dim})));
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

std::size_t scratch_bytes(const LatentAttention& block, std::int64_t rows, std::int64_t expanded,
                          DType kept) {
  const LatentConfig& sizes = block.sizes;
  const std::int64_t q_width = block.heads * (sizes.nope_dim + sizes.rope_dim);
  const std::int64_t latents = block.heads * sizes.kv_rank;
  const std::int64_t values = block.heads * sizes.value_dim;
  const std::int64_t widest = std::max({q_width, sizes.q_rank, block.kv_a.out(), block.o.out()});
  const std::size_t absorbed =
      scratch_bytes(rows, {latents, latents + block.heads * sizes.rope_dim, latents, values});
  return scratch_bytes(rows,
                       {q_width, sizes.q_rank, sizes.q_rank, block.kv_a.out(), values, widest}) +
         std::max(absorbed, expanded_scratch_bytes(block, rows, expanded, kept)) +
         lora::scratch_bytes;
}

Projected project(const LatentAttention& block, const Step& step, const tensor::ConstTensor& x,
                  Scratch& scratch) {
  const ops::Context& context = step.context;
  const lora::RowMixes& mixes = step.batch.mixes;
  const std::int64_t rows = step.rows();
  const std::int64_t width = block.sizes.nope_dim + block.sizes.rope_dim;
  const std::int64_t kv_width = block.kv_a.out();
  const auto beside_kv = [&](std::int64_t other) {
    return scratch.take(DType::f32, {rows, other + kv_width});
  };
  if (!block.q) {
    const std::int64_t q_rank = block.sizes.q_rank;
    const Tensor latents = beside_kv(q_rank);
    const Tensor q = scratch.take(DType::f32, {rows, block.heads * width});
    const Tensor kv = latents.slice(1, q_rank, q_rank + kv_width);
    apply({{*block.q_a, latents.slice(1, 0, q_rank)}, {block.kv_a, kv}}, context, mixes, x);
    const Tensor normed = scratch.take(step.activations, {rows, q_rank});
    apply(block.q_a_norm, context, latents.slice(1, 0, q_rank), normed);
    apply(*block.q_b, step, normed, q);
    return {.q = q.reshape({rows, block.heads, width}), .kv = kv};
  }
  Projected projected;
  const std::int64_t q_width = block.heads * width;
  if (kv_width % width == 0) {
    const Tensor both = beside_kv(q_width);
    projected.q =
        both.reshape({rows, block.heads + kv_width / width, width}).slice(1, 0, block.heads);
    projected.kv = both.slice(1, q_width, q_width + kv_width);
    apply({{*block.q, both.slice(1, 0, q_width)}, {block.kv_a, projected.kv}}, context, mixes, x);
  } else {
    const Tensor q = scratch.take(DType::f32, {rows, q_width});
    projected = {.q = q.reshape({rows, block.heads, width}), .kv = beside_kv(0)};
    apply({{*block.q, q}, {block.kv_a, projected.kv}}, context, mixes, x);
  }
  return projected;
}

void prepare(const LatentAttention& block, const Step& step, const LayerPages& pages,
             const StepPart& part, const Projected& rows, const Tensor& queries) {
  ops::prepare_latent(
      step.context, step.batch.rows_of(part),
      {.cos_sin = step.cos_sin, .interleaved = block.rope_interleaved},
      {.first_row = part.first_row,
       .count = part.rows,
       .kv = rows.kv,
       .norm = {.weight = block.kv_a_norm.weight.data(), .options = block.kv_a_norm.options()},
       .q = rows.q,
       .out = queries},
      pages.keys);
}

namespace {

// The part's rows to their rows of mixed [R, heads * value_dim].
void attend_absorbed(const LatentAttention& block, const Step& step, const LayerPages& pages,
                     const StepPart& part, const Projected& projected, const Tensor& mixed) {
  const ops::Context& context = step.context;
  const LatentConfig& sizes = block.sizes;
  const std::int64_t heads = block.heads;
  const std::int64_t kl = sizes.kv_rank;
  const std::int64_t dn = sizes.nope_dim;
  const std::int64_t dr = sizes.rope_dim;
  const std::int64_t dv = sizes.value_dim;
  const lora::KvB kv_b{.layer = block.kv_b.site.layer, .rows_a_head = dn + dv};
  const ops::PagedRows rows = step.batch.rows_of(part);
  lora::RowMixes mixes = step.batch.mixes;
  mixes.labels += part.first_row;
  const bool adapted = lora::touches(mixes, block.kv_b.site);
  const quant::Weight* const narrow = block.kv_b_rounded ? &*block.kv_b_rounded : nullptr;
  const auto own = [&](const Tensor& tensor) {
    return tensor.slice(0, part.first_row, part.first_row + part.rows);
  };
  Scratch scratch(context);

  // Queries are [carried into latent space | turned], keys are [latent | turned].
  const Tensor values_of_keys = pages.keys.slice(3, 0, kl);
  const DType query_type = ops::query_type(context, rows, pages.keys, values_of_keys);
  const Tensor query = scratch.take(query_type, {step.rows(), heads, kl + dr});
  const Tensor carried_query = own(query).slice(2, 0, kl);
  prepare(block, step, pages, part, projected, query.slice(2, kl, kl + dr));

  // Queries into latent space: [R, heads, dn] -> [R, heads, kl].
  const Tensor q_nope = own(projected.q).slice(2, 0, dn);
  // Who makes a number last rounds it, where a device's kernels do.
  const bool by_delta = adapted && mixes.table != nullptr;
  const bool rounds = query_type == DType::bf16 && (by_delta || !adapted);
  lora::kv_b_scale_queries(mixes, kv_b, q_nope, context);
  const Tensor q_carried = scratch.take(DType::f32, {part.rows, heads, kl});
  ops::linear_per_head_transposed(
      context, q_nope, block.kv_b.weight, {.rows_per_head = dn + dv, .first = 0}, q_carried,
      {.narrow = narrow, .rounded = rounds && !by_delta ? carried_query : Tensor()});
  lora::kv_b_key_delta(mixes, kv_b, q_nope, q_carried, context,
                       rounds && by_delta ? carried_query : Tensor());
  if (!rounds)
    ops::round_to(context, q_carried.reshape({part.rows * heads, kl}), {},
                  own(query).reshape({part.rows * heads, kl + dr}).slice(1, 0, kl));

  const Tensor latents = scratch.take(DType::f32, {step.rows(), heads, kl});
  ops::attention(context, rows, query, pages.keys, values_of_keys,
                 {.scale = block.scale, .scratch = step.attention_scratch}, latents);

  // Latents into values: [R, heads, kl] -> [R, heads, dv].
  const bool rounds_values = mixed.dtype() == DType::bf16 && (by_delta || !adapted);
  const Tensor values = scratch.take(DType::f32, {part.rows, heads, dv});
  const Tensor rounded_values = own(mixed).reshape({part.rows, heads, dv});
  ops::linear_per_head(
      context, own(latents), block.kv_b.weight, {.rows_per_head = dn + dv, .first = dn}, values,
      {.narrow = narrow, .rounded = rounds_values && !by_delta ? rounded_values : Tensor()});
  lora::kv_b_value_delta(mixes, kv_b, own(latents), values, context,
                         rounds_values && by_delta ? rounded_values : Tensor());
  if (!rounds_values)
    ops::round_to(context, values.reshape({part.rows, heads * dv}), {}, own(mixed));
}

}  // namespace

void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const tensor::ConstTensor& x, const Tensor& out) {
  const std::int64_t rows = step.rows();
  const LatentConfig& sizes = block.sizes;
  Scratch scratch(step.context);
  const Projected projected = project(block, step, x, scratch);
  const Tensor mixed = scratch.take(step.activations, {rows, block.heads * sizes.value_dim});
  const StepPart whole = step.batch.whole();
  const std::span<const StepPart> parts =
      step.batch.parts.empty() ? std::span(&whole, 1) : step.batch.parts;
  for (const StepPart& part : parts) {
    if (part.positions > 0) {
      attend_expanded(block, step, pages, part, projected, mixed);
    } else {
      attend_absorbed(block, step, pages, part, projected, mixed);
    }
  }
  apply(block.o, step, mixed, out);
}

void apply(const LatentAttention& block, const Step& step, const LayerPages& pages,
           const NormedSum& entry, const Tensor& out, NormedSum& /*next*/) {
  apply(entry, step.context);
  apply(block, step, pages, entry.x, out);
}

}  // namespace motley::model
