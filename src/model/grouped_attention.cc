#include "model/grouped_attention.h"

#include "base/cat.h"
#include "model/attention_cost.h"
#include "ops/attention.h"

namespace motley::model {

using lora::Projection;

Result<GroupedAttention> load_grouped_attention(WeightSource& source, const Config& config,
                                                std::int32_t layer) {
  const AttentionConfig& sizes = config.attention;
  const std::string module = cat("model.layers.", layer, ".self_attn");
  const std::int64_t q_width = sizes.heads * sizes.head_dim;
  const std::int64_t kv_width = sizes.kv_heads * sizes.head_dim;
  const Shard& shard = source.memory().shard;
  Cut q_part;
  Cut kv_part;
  Cut o_part;
  std::optional<dist::Range> head_part;
  if (shard.is_cut()) {
    head_part = shard.heads.heads;
    q_part.rows = o_part.columns = shard.heads.heads.times(sizes.head_dim);
    o_part.column_unit = shard.units.heads * sizes.head_dim;
    kv_part.rows = shard.heads.kv_heads.times(sizes.head_dim);
  }
  const auto spec = [&](Projection projection, std::string_view name, quant::TrueSize size,
                        bool bias, const Cut& cut) {
    return LinearSpec{.site = {layer, projection},
                      .module = cat(module, ".", name),
                      .size = size,
                      .bias = bias,
                      .cut = cut};
  };

  GroupedAttention block;
  MOTLEY_TRY(
      block.qkv_memory,
      load_linears(source, {{&block.q, spec(Projection::q, "q_proj", {q_width, config.hidden},
                                            sizes.qkv_bias, q_part)},
                            {&block.k, spec(Projection::k, "k_proj", {kv_width, config.hidden},
                                            sizes.qkv_bias, kv_part)},
                            {&block.v, spec(Projection::v, "v_proj", {kv_width, config.hidden},
                                            sizes.qkv_bias, kv_part)}}));
  MOTLEY_TRY(block.o, load_linear(source, spec(Projection::o, "o_proj", {config.hidden, q_width},
                                               sizes.o_bias, o_part)));
  block.qk_norm = sizes.qk_norm;
  if (sizes.qk_norm != QkNorm::none) {
    const bool per_head = sizes.qk_norm == QkNorm::per_head;
    block.q_norm.eps = block.k_norm.eps = static_cast<float>(config.norm_eps);
    const auto load = [&](std::string_view name, std::int64_t width, const Cut& part) {
      if (per_head) return source.vector(cat(module, name), sizes.head_dim);
      return source.vector(cat(module, name), width, part.rows);
    };
    MOTLEY_TRY(block.q_norm.weight, load(".q_norm.weight", q_width, q_part));
    MOTLEY_TRY(block.k_norm.weight, load(".k_norm.weight", kv_width, kv_part));
  }
  if (sizes.sinks) {
    MOTLEY_TRY(block.sinks, source.vector(cat(module, ".sinks"), sizes.heads, head_part));
  }
  block.clip = static_cast<float>(sizes.clip);
  block.heads = shard.heads.heads.size();
  block.kv_heads = shard.heads.kv_heads.size();
  block.first_of_kv = shard.heads.first_of_kv;
  block.head_dim = sizes.head_dim;
  block.window = sizes.windows[static_cast<std::size_t>(layer)];
  block.scale = static_cast<float>(sizes.scale);
  block.rope_interleaved = config.rope.pairs == ops::RopeSpec::Pairs::interleaved;
  return block;
}

std::vector<MapGroup> GroupedAttention::maps() const {
  return {{.part = "attention", .maps = {&q, &k, &v}}, {.part = "attention", .maps = {&o}}};
}

std::vector<const Vector*> GroupedAttention::vectors() const {
  return {&q_norm.weight, &k_norm.weight, &sinks};
}

CacheLayout GroupedAttention::kept_per_token() const {
  return {.heads = kv_heads, .key_width = head_dim, .value_width = head_dim};
}

kernels::AttentionShape GroupedAttention::attention_shape(std::int64_t sequences) const {
  return {.sequences = sequences, .heads = heads, .kv_heads = kv_heads, .value_width = head_dim};
}

Mixer::Cost GroupedAttention::cost(const EqualSequences& step) const {
  return attention_cost(
      {.heads = heads, .key_width = head_dim, .value_width = head_dim, .window = window}, step);
}

namespace {

// A norm over the full width, of which each rank has a part.
void norm_full_width(const GroupedAttention& block, ValueId q, ValueId k, Builder& pass) {
  if (!block.q.cut.rows) {
    pass.norm_in_place(block.q_norm, q);
    pass.norm_in_place(block.k_norm, k);
    return;
  }
  pass.norm_over_ranks(block.q_norm, block.q.size.out, true, q);
  pass.norm_over_ranks(block.k_norm, block.k.size.out, block.first_of_kv, k);
}

// On a rank without heads: the sums over ranks that the others compute.
ValueId append_without_heads(const GroupedAttention& block, Builder& pass) {
  if (block.qk_norm == QkNorm::full_width) {
    pass.sum_of_others("no_q", 1, true);
    pass.sum_of_others("no_k", 1, true);
  }
  pass.input_maxima_of_others(block.o);
  return pass.sum_of_others("attention", block.o.size.out);
}

}  // namespace

ValueId GroupedAttention::append(ValueId x, Builder& pass) const {
  if (heads == 0) return append_without_heads(*this, pass);
  ops::OpList& list = pass.list();
  const std::int32_t layer = q.site.layer;
  const auto qkv = pass.linears({&q, &k, &v}, x, "qkv").each;
  const ValueId q_heads = list.split_heads(qkv[0], heads);
  const ValueId k_heads = list.split_heads(qkv[1], kv_heads);
  const ValueId v_heads = list.split_heads(qkv[2], kv_heads);
  if (qk_norm == QkNorm::full_width) {
    norm_full_width(*this, qkv[0], qkv[1], pass);
  } else if (qk_norm == QkNorm::per_head) {
    pass.norm_in_place(q_norm, q_heads);
    pass.norm_in_place(k_norm, k_heads);
  }
  if (clip > 0)
    for (const ValueId each : qkv) pass.clip(each, clip);
  pass.rotate(q_heads, rope_interleaved);
  pass.rotate(k_heads, rope_interleaved);
  pass.store(k_heads, layer, PageHalf::keys);
  pass.store(v_heads, layer, PageHalf::values);
  ValueId queries = q_heads;
  const DType query_type = ops::query_type(
      pass.device(), pass.kv_type(),
      {.page_tokens = page_tokens, .kv_heads = kv_heads, .keys = head_dim, .values = head_dim});
  if (query_type != DType::f32) {
    queries = list.split_heads(pass.value("queries", query_type, q.out()), heads);
    pass.round(q_heads, queries);
  }
  const ValueId attended = pass.value("attended", pass.activations(), o.in());
  const ValueId by_head = list.split_heads(attended, heads);
  list.append({.reads = {queries}, .writes = {by_head}}, AttendOp{.layer = layer,
                                                                  .scale = scale,
                                                                  .window = window,
                                                                  .sinks = sinks.data(),
                                                                  .values_in_keys = 0,
                                                                  .queries = queries,
                                                                  .out = by_head});
  return pass.sum_over_ranks(pass.linear(o, attended, "attention"));
}

}  // namespace motley::model
