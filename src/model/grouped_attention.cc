#include "model/grouped_attention.h"

#include <optional>
#include <string>

#include "base/cat.h"
#include "base/check.h"
#include "model/attention_cost.h"
#include "ops/attention.h"

namespace motley::model {

using lora::Projection;

namespace {

// The weights of attention's norms.
Result<void> load_norms(WeightSource& source, const std::string& module, const Config& config,
                        GroupedAttention& block) {
  const GroupedConfig& sizes = block.sizes;
  for (Norm* const norm : {&block.q_norm, &block.k_norm, &block.v_norm})
    norm->eps = static_cast<float>(config.norm_eps);
  if (sizes.value_norm) {
    const std::vector<float> ones(static_cast<std::size_t>(sizes.head_dim), 1.0F);
    const auto& memory = source.memory();
    MOTLEY_TRY(block.v_norm.weight, Vector::create(ones, memory.device, memory.uploader));
  }
  if (sizes.qk_norm == QkNorm::none) return {};
  const bool adds_one = config.norms_add_one;
  const auto load = [&](std::string_view name, const Linear& map) {
    if (sizes.qk_norm == QkNorm::per_head)
      return source.norm(cat(module, name), sizes.head_dim, adds_one);
    return source.norm(cat(module, name), map.size.out, adds_one, map.cut.rows);
  };
  MOTLEY_TRY(block.q_norm.weight, load(".q_norm.weight", block.q));
  MOTLEY_TRY(block.k_norm.weight, load(".k_norm.weight", block.k));
  return {};
}

}  // namespace

Result<GroupedAttention> load_attention(WeightSource& source, const Config& config,
                                        const GroupedConfig& sizes, std::int32_t layer) {
  MOTLEY_CHECK(!sizes.gated || (sizes.qk_norm != QkNorm::full_width && sizes.clip == 0),
               "norms and bounds leave gates alone");
  MOTLEY_CHECK(sizes.values == Values::projected || sizes.clip == 0, "values are bounded as keys");
  MOTLEY_CHECK(sizes.values != Values::keys || !sizes.value_norm, "keys have one norm");
  const std::string module = cat("model.layers.", layer, ".self_attn");
  const std::int64_t q_rows = sizes.head_dim * (sizes.gated ? 2 : 1);  // of a head
  const std::int64_t kv_width = sizes.kv_heads * sizes.head_dim;
  const Shard& shard = source.memory().shard;
  const HeadPart part = heads_of(sizes, shard);
  Cut q_part;
  Cut kv_part;
  Cut o_part;
  std::optional<dist::Range> head_part;
  if (shard.is_cut()) {
    head_part = part.own.heads;
    q_part.rows = part.own.heads.times(q_rows);
    o_part.columns = part.own.heads.times(sizes.head_dim);
    o_part.column_unit = part.unit * sizes.head_dim;
    kv_part.rows = part.own.kv_heads.times(sizes.head_dim);
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
  block.sizes = sizes;
  const std::pair<Linear*, LinearSpec> q{
      &block.q,
      spec(Projection::q, "q_proj", {sizes.heads * q_rows, config.hidden}, sizes.qkv_bias, q_part)};
  const std::pair<Linear*, LinearSpec> k{
      &block.k, spec(Projection::k, "k_proj", {kv_width, config.hidden}, sizes.qkv_bias, kv_part)};
  if (sizes.values == Values::projected) {
    MOTLEY_TRY(
        block.qkv_memory,
        load_linears(source, {q,
                              k,
                              {&block.v, spec(Projection::v, "v_proj", {kv_width, config.hidden},
                                              sizes.qkv_bias, kv_part)}}));
  } else {
    MOTLEY_TRY(block.qkv_memory, load_linears(source, {q, k}));
  }
  MOTLEY_TRY(block.o, load_linear(source, spec(Projection::o, "o_proj",
                                               {config.hidden, sizes.heads * sizes.head_dim},
                                               sizes.o_bias, o_part)));
  MOTLEY_TRY_VOID(load_norms(source, module, config, block));
  if (sizes.sinks) {
    MOTLEY_TRY(block.sinks, source.vector(cat(module, ".sinks"), sizes.heads, head_part));
  }
  block.heads = part.own.heads.size();
  block.kv_heads = part.own.kv_heads.size();
  block.first_of_kv = part.own.first_of_kv;
  return block;
}

std::vector<MapGroup> GroupedAttention::maps() const {
  MapGroup projections{.part = "attention", .maps = {&q, &k}};
  if (sizes.values == Values::projected) projections.maps.push_back(&v);
  return {projections, {.part = "attention", .maps = {&o}}};
}

std::vector<const Vector*> GroupedAttention::vectors() const {
  return {&q_norm.weight, &k_norm.weight, &sinks};
}

TokenCaches GroupedAttention::kept_per_token() const {
  using Scale = TokenCache::Scale;
  TokenCaches kept{{.heads = kv_heads, .width = sizes.head_dim, .takes = Scale::of_keys}};
  if (sizes.values != Values::keys)
    kept.push_back({.heads = kv_heads, .width = sizes.head_dim, .takes = Scale::of_values});
  return kept;
}

kernels::AttentionShape GroupedAttention::attention_shape(std::int64_t sequences) const {
  return {
      .sequences = sequences, .heads = heads, .kv_heads = kv_heads, .value_width = sizes.head_dim};
}

Mixer::Cost GroupedAttention::cost(const EqualSequences& step) const {
  return attention_cost({.heads = heads,
                         .key_width = sizes.head_dim,
                         .value_width = sizes.head_dim,
                         .window = sizes.window},
                        step);
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
  if (block.sizes.qk_norm == QkNorm::full_width) {
    pass.sum_of_others("no_q", 1, true);
    pass.sum_of_others("no_k", 1, true);
  }
  pass.input_maxima_of_others(block.o);
  return pass.sum_of_others("attention", block.o.size.out);
}

}  // namespace

void GroupedAttention::append_values_of(ValueId keys, Builder& pass) const {
  ValueId values = keys;
  if (sizes.value_norm) {
    const std::int64_t width = kv_heads * sizes.head_dim;
    values = pass.list().split_heads(pass.value("values", DType::f32, width), kv_heads);
    pass.norm(v_norm, keys, values);
  }
  pass.store(values, q.site.layer, values_cache);
}

GroupedAttention::Heads GroupedAttention::append_projections(ValueId x, Builder& pass) const {
  ops::OpList& list = pass.list();
  const bool projected = sizes.values == Values::projected;
  const std::vector<ValueId> each =
      projected ? pass.linears({&q, &k, &v}, x, "qkv").each : pass.linears({&q, &k}, x, "qk").each;
  Heads by_head{.q = list.split_heads(each[0], heads), .k = list.split_heads(each[1], kv_heads)};
  if (sizes.gated) {
    by_head.gates = list.head_columns(by_head.q, sizes.head_dim, sizes.head_dim);
    by_head.q = list.head_columns(by_head.q, 0, sizes.head_dim);
  }
  if (sizes.values == Values::from_keys) append_values_of(by_head.k, pass);
  if (projected) by_head.v = list.split_heads(each[2], kv_heads);
  if (sizes.qk_norm == QkNorm::full_width) {
    norm_full_width(*this, each[0], each[1], pass);
  } else if (sizes.qk_norm == QkNorm::per_head) {
    pass.norm_in_place(q_norm, by_head.q);
    pass.norm_in_place(k_norm, by_head.k);
  }
  if (projected && sizes.value_norm) pass.norm_in_place(v_norm, by_head.v);
  if (sizes.clip > 0)
    for (const ValueId projection : each) pass.clip(projection, static_cast<float>(sizes.clip));
  pass.rotate(by_head.q, sizes.rope);
  pass.rotate(by_head.k, sizes.rope);
  return by_head;
}

ValueId GroupedAttention::append_attend(const Heads& by_head, Builder& pass) const {
  ops::OpList& list = pass.list();
  ValueId queries = by_head.q;
  const DType query_type = ops::query_type(pass.device(), pass.kv_type(),
                                           {.page_tokens = page_tokens,
                                            .kv_heads = kv_heads,
                                            .keys = sizes.head_dim,
                                            .values = sizes.head_dim,
                                            .values_in_keys = sizes.values == Values::keys});
  if (query_type != DType::f32) {
    queries = list.split_heads(pass.value("queries", query_type, heads * sizes.head_dim), heads);
    pass.round(by_head.q, queries);
  }
  const ValueId attended = pass.value("attended", pass.activations(), o.in());
  const ValueId out = list.split_heads(attended, heads);
  list.append({.reads = {queries, by_head.gates}, .writes = {out}},
              AttendOp{.layer = q.site.layer,
                       .scale = static_cast<float>(sizes.scale),
                       .window = sizes.window,
                       .sinks = sinks.data(),
                       .values_in_keys = sizes.values == Values::keys ? sizes.head_dim : 0,
                       .queries = queries,
                       .out = out,
                       .gates = by_head.gates});
  return attended;
}

ValueId GroupedAttention::append(ValueId x, Builder& pass) const {
  if (heads == 0) return append_without_heads(*this, pass);
  const Heads by_head = append_projections(x, pass);
  pass.store(by_head.k, q.site.layer, keys_cache);
  if (by_head.v != ops::no_value) pass.store(by_head.v, q.site.layer, values_cache);
  return pass.sum_over_ranks(pass.linear(o, append_attend(by_head, pass), "attention"));
}

}  // namespace motley::model
