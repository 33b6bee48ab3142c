#include "model/grouped_attention.h"

#include "base/cat.h"
#include "ops/attention.h"

namespace motley::model {

using lora::Projection;

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

ValueId append(const GroupedAttention& block, ValueId x, Builder& pass) {
  ops::OpList& list = pass.list();
  const std::int32_t layer = block.q.site.layer;
  const auto qkv = pass.linears({&block.q, &block.k, &block.v}, x, "qkv").each;
  const ValueId q = list.split_heads(qkv[0], block.heads);
  const ValueId k = list.split_heads(qkv[1], block.kv_heads);
  const ValueId v = list.split_heads(qkv[2], block.kv_heads);
  if (block.qk_norm == QkNorm::full_width) {
    pass.norm_in_place(block.q_norm, qkv[0]);
    pass.norm_in_place(block.k_norm, qkv[1]);
  } else if (block.qk_norm == QkNorm::per_head) {
    pass.norm_in_place(block.q_norm, q);
    pass.norm_in_place(block.k_norm, k);
  }
  if (block.clip > 0)
    for (const ValueId each : qkv) pass.clip(each, block.clip);
  pass.rotate(q, block.rope_interleaved);
  pass.rotate(k, block.rope_interleaved);
  pass.store(k, layer, PageHalf::keys);
  pass.store(v, layer, PageHalf::values);
  ValueId queries = q;
  const DType query_type = ops::query_type(pass.device(), pass.kv_type(),
                                           {.page_tokens = page_tokens,
                                            .kv_heads = block.kv_heads,
                                            .keys = block.head_dim,
                                            .values = block.head_dim});
  if (query_type != DType::f32) {
    queries = list.split_heads(pass.value("queries", query_type, block.q.out()), block.heads);
    pass.round(q, queries);
  }
  const ValueId attended = pass.value("attended", pass.activations(), block.o.in());
  const ValueId heads = list.split_heads(attended, block.heads);
  list.append({.reads = {queries}, .writes = {heads}}, AttendOp{.layer = layer,
                                                                .scale = block.scale,
                                                                .window = block.window,
                                                                .sinks = block.sinks.data(),
                                                                .values_in_keys = 0,
                                                                .queries = queries,
                                                                .out = heads});
  return pass.linear(block.o, attended, "attention");
}

}  // namespace motley::model
