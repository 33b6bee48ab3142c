#include "model/grouped_attention.h"

#include <array>

#include "base/cat.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace motley::model {

using lora::Projection;
using tensor::Tensor;

Result<GroupedAttention> load_grouped_attention(WeightSource& source, const Config& config,
                                                std::int32_t layer) {
  const AttentionConfig& sizes = config.attention;
  const std::string module = cat("model.layers.", layer, ".self_attn");
  const std::int64_t q_width = sizes.heads * sizes.head_dim;
  const std::int64_t kv_width = sizes.kv_heads * sizes.head_dim;
  const auto spec = [&](Projection projection, std::string_view name, quant::TrueSize size,
                        bool bias) {
    return LinearSpec{{layer, projection}, cat(module, ".", name), size, bias};
  };

  GroupedAttention block;
  MOTLEY_TRY(
      block.qkv_memory,
      load_linears(
          source,
          {{&block.q, spec(Projection::q, "q_proj", {q_width, config.hidden}, sizes.qkv_bias)},
           {&block.k, spec(Projection::k, "k_proj", {kv_width, config.hidden}, sizes.qkv_bias)},
           {&block.v, spec(Projection::v, "v_proj", {kv_width, config.hidden}, sizes.qkv_bias)}}));
  MOTLEY_TRY(block.o, load_linear(source, spec(Projection::o, "o_proj", {config.hidden, q_width},
                                               sizes.o_bias)));
  block.qk_norm = sizes.qk_norm;
  if (sizes.qk_norm != QkNorm::none) {
    const bool per_head = sizes.qk_norm == QkNorm::per_head;
    block.q_norm.eps = block.k_norm.eps = static_cast<float>(config.norm_eps);
    MOTLEY_TRY(block.q_norm.weight,
               source.vector(cat(module, ".q_norm.weight"), per_head ? sizes.head_dim : q_width));
    MOTLEY_TRY(block.k_norm.weight,
               source.vector(cat(module, ".k_norm.weight"), per_head ? sizes.head_dim : kv_width));
  }
  if (sizes.sinks) {
    MOTLEY_TRY(block.sinks, source.vector(cat(module, ".sinks"), sizes.heads));
  }
  block.clip = static_cast<float>(sizes.clip);
  block.heads = sizes.heads;
  block.kv_heads = sizes.kv_heads;
  block.head_dim = sizes.head_dim;
  block.window = sizes.windows[static_cast<std::size_t>(layer)];
  block.scale = static_cast<float>(sizes.scale);
  block.rope_interleaved = config.rope.pairs == ops::RopeSpec::Pairs::interleaved;
  return block;
}

CacheLayout cache_layout(const GroupedAttention& block) {
  return {.heads = block.kv_heads, .key_width = block.head_dim, .value_width = block.head_dim};
}

std::size_t scratch_bytes(const GroupedAttention& block, std::int64_t rows) {
  const std::int64_t q_width = block.q.out();
  const std::int64_t kv_width = block.k.out();
  // q, k and v, q as attention reads it, attention's result, and the accumulators of one linear map
  // at a time.
  return scratch_bytes(
             rows, {q_width + 2 * kv_width, q_width, q_width, std::max(q_width, block.o.out())}) +
         lora::scratch_bytes;
}

void apply(const GroupedAttention& block, const Step& step, const LayerPages& pages,
           const NormedSum& entry, const Tensor& out, NormedSum& next) {
  const ops::Context& context = step.context;
  const std::int64_t rows = step.rows();
  Scratch scratch(context);
  // Side by side, as their weights are.
  const std::int64_t q_width = block.q.out();
  const std::int64_t qk_width = q_width + block.k.out();
  const Tensor qkv = scratch.take(DType::f32, {rows, qk_width + block.v.out()});
  const Tensor q = qkv.slice(1, 0, q_width);
  const Tensor k = qkv.slice(1, q_width, qk_width);
  const Tensor v = qkv.slice(1, qk_width, qkv.dim(1));
  const std::int64_t qk_heads = block.heads + block.kv_heads;
  const Tensor heads = qkv.reshape({rows, qk_heads + block.kv_heads, block.head_dim});
  const Tensor q_heads = heads.slice(1, 0, block.heads);
  const Tensor k_heads = heads.slice(1, block.heads, qk_heads);
  const Tensor v_heads = heads.slice(1, qk_heads, heads.dim(1));
  // Norms of heads go with what comes after them, unless something stands between.
  const bool apart = block.clip > 0 || block.qk_norm == QkNorm::full_width;
  const auto norm = [&](const Norm& each) -> ops::HeadNorm {
    if (apart || block.qk_norm == QkNorm::none) return {};
    return {.weight = each.weight.data(), .options = each.options()};
  };
  const DType query_type = ops::query_type(context, step.batch.rows, pages.keys, pages.values);
  const Tensor queries =
      query_type == DType::f32 ? q_heads : scratch.take(query_type, q_heads.shape());
  const ops::HeadsCall prepared(
      context, step.batch.rows, {.cos_sin = step.cos_sin, .interleaved = block.rope_interleaved},
      std::array{ops::PreparedHeads{
                     .x = q_heads, .norm = norm(block.q_norm), .turned = true, .out = queries},
                 ops::PreparedHeads{
                     .x = k_heads, .norm = norm(block.k_norm), .turned = true, .pages = pages.keys},
                 ops::PreparedHeads{.x = v_heads, .pages = pages.values}});
  // While attention reads the pages, o's weight comes nearer.
  apply({{block.q, q}, {block.k, k}, {block.v, v}}, step, entry, reading(block.o),
        apart ? nullptr : &prepared);
  if (apart) {
    if (block.qk_norm == QkNorm::full_width) {
      apply(block.q_norm, context, q, q);
      apply(block.k_norm, context, k, k);
    } else if (block.qk_norm == QkNorm::per_head) {
      apply(block.q_norm, context, q_heads, q_heads);
      apply(block.k_norm, context, k_heads, k_heads);
    }
    if (block.clip > 0) {
      for (const Tensor& each : {q, k, v})
        ops::round_to(context, each, {.limit = block.clip}, each);
    }
    ops::prepare_heads(context, prepared);
  }

  const Tensor mixed = scratch.take(step.activations, {rows, block.heads, block.head_dim});
  ops::attention(context, step.batch.rows, queries, pages.keys, pages.values,
                 {.scale = block.scale,
                  .window = block.window,
                  .sinks = block.sinks.data(),
                  .scratch = step.attention_scratch},
                 mixed);
  apply(block.o, step, mixed.reshape({rows, block.o.in()}), out, next);
}

}  // namespace motley::model
