#include "model/latent_attention.h"

#include <algorithm>

#include "base/cat.h"
#include "model/attention_cost.h"
#include "ops/attention.h"

namespace motley::model {

using lora::Projection;

Result<LatentAttention> load_attention(WeightSource& source, const Config& config,
                                       const LatentConfig& sizes, std::int32_t layer) {
  const std::string module = cat("model.layers.", layer, ".self_attn");
  const std::int64_t heads = sizes.heads;
  const Shard& shard = source.memory().shard;
  const HeadPart part = heads_of(sizes, shard);
  Cut q_part;
  Cut kv_b_part;
  Cut o_part;
  if (shard.is_cut()) {
    const dist::Range& own = part.own.heads;
    q_part.rows = own.times(sizes.nope_dim + sizes.rope_dim);
    kv_b_part.rows = own.times(sizes.nope_dim + sizes.value_dim);
    o_part.columns = own.times(sizes.value_dim);
    o_part.column_unit = part.unit * sizes.value_dim;
  }
  const std::int64_t q_width = heads * (sizes.nope_dim + sizes.rope_dim);
  const auto spec = [&](Projection projection, std::string_view name, quant::TrueSize size,
                        const Cut& cut = {}) {
    return LinearSpec{
        .site = {layer, projection}, .module = cat(module, ".", name), .size = size, .cut = cut};
  };
  const LinearSpec kv_a =
      spec(Projection::kv_a, "kv_a_proj_with_mqa", {sizes.kv_rank + sizes.rope_dim, config.hidden});

  LatentAttention block;
  block.q_a_norm.eps = block.kv_a_norm.eps = static_cast<float>(sizes.inner_norm_eps);
  if (sizes.q_rank == 0) {
    const LinearSpec q = spec(Projection::q, "q_proj", {q_width, config.hidden}, q_part);
    MOTLEY_TRY(block.q_kv_memory,
               load_linears(source, {{&block.q.emplace(), q}, {&block.kv_a, kv_a}}));
  } else {
    const LinearSpec q_a = spec(Projection::q_a, "q_a_proj", {sizes.q_rank, config.hidden});
    MOTLEY_TRY(block.q_kv_memory,
               load_linears(source, {{&block.q_a.emplace(), q_a}, {&block.kv_a, kv_a}}));
    MOTLEY_TRY(block.q_a_norm.weight,
               source.vector(cat(module, ".q_a_layernorm.weight"), sizes.q_rank));
    MOTLEY_TRY(block.q_b, load_linear(source, spec(Projection::q_b, "q_b_proj",
                                                   {q_width, sizes.q_rank}, q_part)));
  }
  MOTLEY_TRY(block.kv_a_norm.weight,
             source.vector(cat(module, ".kv_a_layernorm.weight"), sizes.kv_rank));
  MOTLEY_TRY(
      block.kv_b,
      load_linear(source, {.site = {layer, Projection::kv_b},
                           .module = cat(module, ".kv_b_proj"),
                           .size = {heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank},
                           // Its inputs, the latents, are kept as they are: the absorbed form
                           // multiplies queries with its rows instead.
                           .exact_inputs = true,
                           .float32_rows = true,
                           .cut = kv_b_part}));
  // On a CPU one weight serves rows of every type.
  if (source.memory().uploader != nullptr && !source.memory().exact) {
    const Linear& kv_b = block.kv_b;
    MOTLEY_TRY(const PartOfWeight own, source.matrix(kv_b.module, kv_b.size, kv_b.cut));
    MOTLEY_TRY(block.kv_b_rounded, source.resident(own.own));
  }
  MOTLEY_TRY(block.o, load_linear(source, spec(Projection::o, "o_proj",
                                               {config.hidden, heads * sizes.value_dim}, o_part)));
  block.heads = part.own.heads.size();
  block.sizes = sizes;
  return block;
}

std::vector<MapGroup> LatentAttention::maps() const {
  constexpr std::string_view part = "attention";
  std::vector<MapGroup> all{{.part = part, .maps = {q ? &*q : &*q_a, &kv_a}}};
  if (q_b) all.push_back({.part = part, .maps = {&*q_b}});
  all.push_back({.part = part, .maps = {&kv_b}, .per_head = true});
  all.push_back({.part = part, .maps = {&o}});
  return all;
}

std::vector<const Vector*> LatentAttention::vectors() const {
  return {&q_a_norm.weight, &kv_a_norm.weight};
}

TokenCaches LatentAttention::kept_per_token() const {
  return {{.heads = 1, .width = sizes.kv_rank + sizes.rope_dim, .tail = sizes.rope_dim}};
}

// All heads read one latent row.
kernels::AttentionShape LatentAttention::attention_shape(std::int64_t sequences) const {
  return {.sequences = sequences, .heads = heads, .kv_heads = 1, .value_width = sizes.kv_rank};
}

// Of the cheaper form; expanded form first computes a key and a value for each cached position.
Mixer::Cost LatentAttention::cost(const EqualSequences& step) const {
  Cost cost = attention_cost(
      {.heads = heads, .key_width = sizes.kv_rank + sizes.rope_dim, .value_width = sizes.kv_rank},
      step);
  const Cost expanded = attention_cost({.heads = heads,
                                        .key_width = sizes.nope_dim + sizes.rope_dim,
                                        .value_width = sizes.value_dim},
                                       step);
  const double cached = static_cast<double>(step.sequences * step.length);
  const double expanding =
      2 * cached * static_cast<double>(kv_b.weight.out()) * static_cast<double>(kv_b.weight.in());
  cost.operations = std::min(cost.operations, expanded.operations + expanding);
  return cost;
}

namespace {

// Limits the scratch of a step for latents, keys and values, unless its own rows take more.
constexpr std::int64_t max_expanded_bytes = std::int64_t{256} << 20;

ops::ExpandedWidths expanded_widths(const LatentConfig& sizes) {
  return {
      .keys = sizes.nope_dim + sizes.rope_dim, .shared = sizes.rope_dim, .values = sizes.value_dim};
}

std::int64_t latent_width(const LatentConfig& sizes) { return sizes.kv_rank + sizes.rope_dim; }

// The inputs of both forms, all f32: each head's [query | rotated part], the two apart, and the
// rows [latent | key].
struct Projected {
  ValueId q, q_nope, q_rope, kv;
};

constexpr ops::Form absorbed_form = ops::first_form;
constexpr ops::Form expanded_form = ops::second_form;

// Appends one layer's ops.
class Appended {
 public:
  Appended(const LatentAttention& block, Builder& pass) : block_(block), pass_(pass) {}

  void project(ValueId x);
  // Stores the rows' [normed latent | key] in KV memory, and `rounded`, which is q or its rotated
  // part, in `queries`.
  void prepare(ValueId rounded, ValueId queries);
  // Both write the part's rows of `attended` [heads, value_dim].
  void absorbed(ValueId attended);
  void expanded(ValueId attended);

 private:
  ops::OpList& list() { return pass_.list(); }
  std::int32_t layer() const { return block_.kv_b.site.layer; }
  // A new value of heads of one width.
  ValueId heads(std::string_view name, DType type, std::int64_t width) {
    return list().split_heads(pass_.value(name, type, block_.heads * width), block_.heads);
  }
  // Multiplies by kv_b's rows for keys or for values, adds their deltas, and rounds the result into
  // `out`.
  void through_kv_b(bool keys, ValueId x, ValueId y, ValueId out);

  const LatentAttention& block_;
  Builder& pass_;
  const LatentConfig& sizes_ = block_.sizes;
  Projected rows_{};
};

void Appended::project(ValueId x) {
  const std::int64_t nope = sizes_.nope_dim;
  ValueId q = ops::no_value;
  if (block_.q) {
    const auto both = pass_.linears({&*block_.q, &block_.kv_a}, x, "q_kv").each;
    q = both[0];
    rows_.kv = both[1];
  } else {
    const auto both = pass_.linears({&*block_.q_a, &block_.kv_a}, x, "q_a_kv").each;
    q = pass_.linear(*block_.q_b, pass_.norm(block_.q_a_norm, both[0]), "q");
    rows_.kv = both[1];
  }
  rows_.q = list().split_heads(q, block_.heads);
  rows_.q_nope = list().head_columns(rows_.q, 0, nope);
  rows_.q_rope = list().head_columns(rows_.q, nope, sizes_.rope_dim);
}

void Appended::prepare(ValueId rounded, ValueId queries) {
  pass_.norm_in_place(block_.kv_a_norm, list().columns(rows_.kv, 0, sizes_.kv_rank));
  pass_.rotate(list().split_heads(list().columns(rows_.kv, sizes_.kv_rank, sizes_.rope_dim), 1),
               block_.sizes.rope);
  pass_.store(list().split_heads(rows_.kv, 1), layer(), keys_cache);
  pass_.rotate(rows_.q_rope, block_.sizes.rope);
  pass_.round(rounded, queries);
}

void Appended::through_kv_b(bool keys, ValueId x, ValueId y, ValueId out) {
  const std::int64_t per_head = sizes_.nope_dim + sizes_.value_dim;
  const quant::Weight* const narrow = block_.kv_b_rounded ? &*block_.kv_b_rounded : nullptr;
  list().append({.reads = {x}, .writes = {y}},
                PerHeadOp{.weight = block_.kv_b.weight,
                          .narrow = narrow,
                          .rows = {.rows_per_head = per_head, .first = keys ? 0 : sizes_.nope_dim},
                          .transposed = keys,
                          .x = x,
                          .y = y});
  list().append({.reads = {x, y}, .writes = {y}, .may_vanish = true},
                AdaptPerHeadOp{block_.kv_b, per_head, keys, x, y});
  pass_.round(y, out);
}

void Appended::absorbed(ValueId attended) {
  const std::int64_t latent = sizes_.kv_rank;
  const DType query_type = ops::query_type(pass_.device(), pass_.kv_type(),
                                           {.page_tokens = page_tokens,
                                            .kv_heads = 1,
                                            .keys = latent_width(sizes_),
                                            .values = latent,
                                            .values_in_keys = true});
  const ValueId queries = heads("queries", query_type, latent_width(sizes_));
  prepare(rows_.q_rope, list().head_columns(queries, latent, sizes_.rope_dim));
  list().append({.reads = {rows_.q_nope}, .writes = {rows_.q_nope}, .may_vanish = true},
                ScaleQueriesOp{block_.kv_b, sizes_.nope_dim + sizes_.value_dim, rows_.q_nope});
  through_kv_b(true, rows_.q_nope, heads("q_latent", DType::f32, latent),
               list().head_columns(queries, 0, latent));
  const ValueId latents = heads("attended_latents", DType::f32, latent);
  list().append({.reads = {queries}, .writes = {latents}},
                AttendOp{.layer = layer(),
                         .scale = static_cast<float>(sizes_.scale),
                         .window = 0,
                         .sinks = nullptr,
                         .values_in_keys = latent,
                         .queries = queries,
                         .out = latents});
  through_kv_b(false, latents, heads("attended_values", DType::f32, sizes_.value_dim), attended);
}

void Appended::expanded(ValueId attended) {
  // What is expanded of codes is wider than they are.
  const DType type = pass_.kv_type() == DType::f8_e4m3 ? DType::bf16 : pass_.kv_type();
  const ops::ExpandedWidths widths = expanded_widths(sizes_);
  const ValueId queries = heads("queries", ops::query_type(pass_.device(), widths), widths.keys);
  prepare(rows_.q, queries);
  const auto positions = [&](std::string_view name, DType of, std::int64_t width) {
    return pass_.value(name, of, width, ops::RowsOf::positions);
  };
  const ValueId latents = positions("latents", type, latent_width(sizes_));
  const ValueId labels = positions("latent_labels", DType::i32, 1);
  const ValueId kept = positions("expanded", type, block_.kv_b.out());
  list().append({.reads = {}, .writes = {latents, labels}}, GatherOp{layer(), latents, labels});
  const ValueId own = list().columns(latents, 0, sizes_.kv_rank);
  list().append({.reads = {own, labels}, .writes = {kept}},
                ExpandLatentsOp{block_.kv_b, block_.expanding(), own, labels, kept});
  list().append({.reads = {queries, latents, kept}, .writes = {attended}},
                AttendExpandedOp{.scale = static_cast<float>(sizes_.scale),
                                 .key_width = sizes_.nope_dim,
                                 .value_width = sizes_.value_dim,
                                 .shared_width = sizes_.rope_dim,
                                 .queries = queries,
                                 .latents = latents,
                                 .expanded = kept,
                                 .out = attended});
}

}  // namespace

bool LatentAttention::has_second_form(const ops::Context& device) const {
  return !device.exact && !device.batch_invariant &&
         ops::query_type(device, expanded_widths(sizes)) == DType::bf16;
}

std::int64_t LatentAttention::max_positions(std::int64_t rows, std::int64_t tokens) const {
  const std::int64_t bytes = 2 * (latent_width(sizes) + kv_b.out());
  return std::max(rows, std::min(rows + tokens, max_expanded_bytes / bytes));
}

// In units of attention of one row to one position. In absorbed form rows pay more for every
// position, and for the products into and out of latent space; in expanded form every cached
// position pays for its keys and values. Measured with 16 heads on an H200; all costs grow in
// proportion to the number of heads.
std::int64_t LatentAttention::saved_by_second_form(std::int64_t rows,
                                                   std::int64_t positions) const {
  constexpr std::int64_t row_cost = 512;
  constexpr std::int64_t position_cost = 144;
  const std::int64_t cached = positions - rows;
  return rows * (cached + rows / 2 + row_cost) - cached * position_cost;
}

ValueId LatentAttention::append(ValueId x, bool expands, Builder& pass) const {
  // On a rank without heads.
  if (heads == 0) {
    pass.input_maxima_of_others(o);
    return pass.sum_of_others("attention", o.size.out);
  }
  Appended layer(*this, pass);
  layer.project(x);
  const ValueId attended = pass.value("attended", pass.activations(), o.in());
  const ValueId by_head = pass.list().split_heads(attended, heads);
  pass.list().serve(absorbed_form);
  layer.absorbed(by_head);
  if (expands) {
    pass.list().serve(expanded_form);
    layer.expanded(by_head);
  }
  pass.list().serve(ops::all_forms);
  return pass.sum_over_ranks(pass.linear(o, attended, "attention"));
}

ValueId LatentAttention::append(ValueId x, Builder& pass) const {
  return append(x, has_second_form(pass.device()), pass);
}

}  // namespace motley::model
