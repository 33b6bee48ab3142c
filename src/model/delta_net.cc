#include "model/delta_net.h"

#include <cmath>
#include <string>

#include "base/cat.h"
#include "base/check.h"

namespace motley::model {

using lora::Projection;

namespace {

// The rows of the input projections that a rank has.
struct InputRows {
  dist::Ranges qkv, z, heads;  // heads: of b and of a
  dist::Ranges qkvz, ba;       // by key head
  dist::Ranges channels;       // of the convolution
};

InputRows rows_of(const DeltaNetConfig& sizes, const dist::HeadShard& own) {
  const std::int64_t keys = sizes.keys();
  const dist::Range key_rows = own.kv_heads.times(sizes.key_width);
  const dist::Range value_rows = own.heads.times(sizes.value_width);
  const auto after = [](const dist::Range& range, std::int64_t offset) {
    return dist::Range{range.begin + offset, range.end + offset};
  };
  InputRows rows{.z = value_rows, .heads = own.heads};
  for (const dist::Range& part : {key_rows, after(key_rows, keys), after(value_rows, 2 * keys)})
    rows.qkv.add(part);
  rows.channels = rows.qkv;

  // A key head's queries and keys, and what the rank has of its value heads.
  const std::int64_t each = sizes.value_heads / sizes.key_heads;
  const std::int64_t value_width = each * sizes.value_width;
  for (std::int64_t head = own.kv_heads.begin; head < own.kv_heads.end; ++head) {
    const dist::Range values{std::max(own.heads.begin, head * each) - head * each,
                             std::min(own.heads.end, (head + 1) * each) - head * each};
    const std::int64_t first = head * 2 * (sizes.key_width + value_width);
    rows.qkvz.add({first, first + 2 * sizes.key_width});
    for (const std::int64_t part : {0, 1})
      rows.qkvz.add(
          after(values.times(sizes.value_width), first + 2 * sizes.key_width + part * value_width));
    for (const std::int64_t part : {0, 1})
      rows.ba.add(after(values, head * 2 * each + part * each));
  }
  return rows;
}

Result<void> load_inputs(WeightSource& source, std::int64_t hidden, const DeltaNetConfig& sizes,
                         const InputRows* rows, const std::string& module, std::int32_t layer,
                         DeltaNet& block) {
  const auto spec = [&](Projection projection, std::string_view name, std::int64_t out,
                        const dist::Ranges InputRows::* own) {
    return LinearSpec{.site = {layer, projection},
                      .module = cat(module, ".", name),
                      .size = {out, hidden},
                      .cut = rows == nullptr ? Cut{} : Cut{.rows = rows->*own}};
  };
  if (sizes.by_key_head) {
    block.in.resize(2);
    MOTLEY_TRY(block.in_memory,
               load_linears(source, {{&block.in[0],
                                      spec(Projection::in_qkvz, "in_proj_qkvz",
                                           sizes.channels() + sizes.values(), &InputRows::qkvz)},
                                     {&block.in[1], spec(Projection::in_ba, "in_proj_ba",
                                                         2 * sizes.value_heads, &InputRows::ba)}}));
    return {};
  }
  block.in.resize(4);
  MOTLEY_TRY(block.in_memory,
             load_linears(source, {{&block.in[0], spec(Projection::in_qkv, "in_proj_qkv",
                                                       sizes.channels(), &InputRows::qkv)},
                                   {&block.in[1], spec(Projection::in_z, "in_proj_z",
                                                       sizes.values(), &InputRows::z)},
                                   {&block.in[2], spec(Projection::in_b, "in_proj_b",
                                                       sizes.value_heads, &InputRows::heads)},
                                   {&block.in[3], spec(Projection::in_a, "in_proj_a",
                                                       sizes.value_heads, &InputRows::heads)}}));
  return {};
}

// The convolution, the decays, and the norms.
Result<void> load_vectors(WeightSource& source, const Config& config, const DeltaNetConfig& sizes,
                          const InputRows* rows, const std::string& module, DeltaNet& block) {
  // [channels, 1, taps]
  MOTLEY_TRY(const std::vector<float> filter,
             source.numbers(module + ".conv1d.weight", {sizes.channels(), 1, sizes.taps}));
  std::optional<dist::Ranges> taps;
  if (rows != nullptr) {
    taps.emplace();
    for (const dist::Range& part : rows->channels.parts()) taps->add(part.times(sizes.taps));
  }
  MOTLEY_TRY(block.filter, source.vector(filter, taps));

  const auto heads = rows == nullptr ? std::nullopt : std::optional(rows->heads);
  MOTLEY_TRY(std::vector<float> decay, source.numbers(module + ".A_log", {sizes.value_heads}));
  for (float& number : decay) number = -std::exp(number);
  MOTLEY_TRY(block.decay, source.vector(decay, heads));
  MOTLEY_TRY(block.decay_bias, source.vector(module + ".dt_bias", sizes.value_heads, heads));

  MOTLEY_TRY(block.out_norm.weight, source.vector(module + ".norm.weight", sizes.value_width));
  block.out_norm.eps = static_cast<float>(config.norm_eps);
  // Heads become x / sqrt(sum of x^2 + 1e-6), and queries are divided by the root of their width
  // besides. A norm divides by the root of a mean.
  const auto width = static_cast<float>(sizes.key_width);
  const auto constant = [&](float number) {
    const std::vector<float> all(static_cast<std::size_t>(sizes.key_width), number);
    return source.vector(all);
  };
  block.query_norm.eps = block.key_norm.eps = 1e-6F / width;
  MOTLEY_TRY(block.key_norm.weight, constant(1 / std::sqrt(width)));
  MOTLEY_TRY(block.query_norm.weight, constant(1 / width));
  return {};
}

}  // namespace

Result<DeltaNet> load_attention(WeightSource& source, const Config& config,
                                const DeltaNetConfig& sizes, std::int32_t layer) {
  const std::string module = cat("model.layers.", layer, ".linear_attn");
  const Shard& shard = source.memory().shard;
  const HeadPart part = heads_of(sizes, shard);
  const InputRows rows = rows_of(sizes, part.own);
  const InputRows* const own = shard.is_cut() ? &rows : nullptr;
  DeltaNet block;
  MOTLEY_TRY_VOID(load_inputs(source, config.hidden, sizes, own, module, layer, block));
  MOTLEY_TRY_VOID(load_vectors(source, config, sizes, own, module, block));
  Cut columns;
  if (shard.is_cut()) {
    columns.columns = part.own.heads.times(sizes.value_width);
    columns.column_unit = part.unit * sizes.value_width;
  }
  MOTLEY_TRY(block.out, load_linear(source, {.site = {layer, Projection::delta_out},
                                             .module = module + ".out_proj",
                                             .size = {config.hidden, sizes.values()},
                                             .cut = columns}));
  block.sizes = sizes;
  block.sizes.key_heads = part.own.kv_heads.size();
  block.sizes.value_heads = part.own.heads.size();
  return block;
}

std::vector<MapGroup> DeltaNet::maps() const {
  MapGroup inputs{.part = "delta net", .maps = {}};
  for (const Linear& map : in) inputs.maps.push_back(&map);
  return {inputs, {.part = "delta net", .maps = {&out}}};
}

std::vector<const Vector*> DeltaNet::vectors() const {
  return {&filter, &decay, &decay_bias, &out_norm.weight};
}

StateShape DeltaNet::kept_per_sequence() const {
  if (sizes.value_heads == 0) return {};
  return {.key_heads = sizes.key_heads,
          .value_heads = sizes.value_heads,
          .key_width = sizes.key_width,
          .value_width = sizes.value_width,
          .corrects = true,
          .channels = sizes.channels(),
          .taps = sizes.taps};
}

// A row multiplies the state with its key and its query, and changes it.
Mixer::Cost DeltaNet::cost(const EqualSequences& step) const {
  const double state = static_cast<double>(sizes.values()) * static_cast<double>(sizes.key_width);
  return {.operations = 6 * state * static_cast<double>(step.sequences * step.tokens),
          .states_read = static_cast<double>(step.sequences)};
}

DeltaNet::Projected DeltaNet::append_projections(ValueId x, Builder& pass) const {
  if (sizes.by_key_head) {
    const auto each = pass.linears({&in[0], &in[1]}, x, "delta_inputs").each;
    return append_sorted(each[0], each[1], pass);
  }
  const auto each = pass.linears({&in[0], &in[1], &in[2], &in[3]}, x, "delta_inputs").each;
  return {.qkv = each[0], .z = each[1], .b = each[2], .a = each[3]};
}

DeltaNet::Projected DeltaNet::append_sorted(ValueId qkvz, ValueId ba, Builder& pass) const {
  ops::OpList& list = pass.list();
  const std::int64_t key_heads = sizes.key_heads;
  const std::int64_t each = sizes.value_heads / key_heads;
  const Projected to{.qkv = pass.value("qkv", DType::f32, sizes.channels()),
                     .z = pass.value("z", DType::f32, sizes.values()),
                     .b = pass.value("b", DType::f32, sizes.value_heads),
                     .a = pass.value("a", DType::f32, sizes.value_heads)};
  std::int64_t from = 0;  // in the rows of a key head
  const auto sort = [&](ValueId by_head, std::int64_t width, ValueId out, std::int64_t first) {
    const ValueId part = list.head_columns(list.split_heads(by_head, key_heads), from, width);
    const ValueId place = list.columns(out, first, key_heads * width);
    pass.round(part, list.split_heads(place, key_heads));
    from += width;
  };
  sort(qkvz, sizes.key_width, to.qkv, 0);
  sort(qkvz, sizes.key_width, to.qkv, sizes.keys());
  sort(qkvz, each * sizes.value_width, to.qkv, 2 * sizes.keys());
  sort(qkvz, each * sizes.value_width, to.z, 0);
  from = 0;
  sort(ba, each, to.b, 0);
  sort(ba, each, to.a, 0);
  return to;
}

ValueId DeltaNet::append_recurrence(const Projected& of, Builder& pass) const {
  ops::OpList& list = pass.list();
  const std::int32_t layer = out.site.layer;
  const ValueId mixed = pass.value("convolved", DType::f32, sizes.channels());
  list.append({.reads = {of.qkv}, .writes = {mixed}}, ConvolveOp{.layer = layer,
                                                                 .weight = filter,
                                                                 .bias = no_bias,
                                                                 .silu = true,
                                                                 .x = of.qkv,
                                                                 .out = mixed});
  const ValueId q = list.split_heads(list.columns(mixed, 0, sizes.keys()), sizes.key_heads);
  const ValueId k =
      list.split_heads(list.columns(mixed, sizes.keys(), sizes.keys()), sizes.key_heads);
  const ValueId v =
      list.split_heads(list.columns(mixed, 2 * sizes.keys(), sizes.values()), sizes.value_heads);
  pass.norm_in_place(query_norm, q);
  pass.norm_in_place(key_norm, k);
  const ValueId g = pass.value("g", DType::f32, sizes.value_heads);
  const ValueId beta = pass.value("beta", DType::f32, sizes.value_heads);
  list.append(
      {.reads = {of.a, of.b}, .writes = {g, beta}},
      DeltaGatesOp{.decay = decay, .bias = decay_bias, .a = of.a, .b = of.b, .g = g, .beta = beta});
  const ValueId recurred = pass.value("recurred", DType::f32, sizes.values());
  const ValueId by_head = list.split_heads(recurred, sizes.value_heads);
  list.append(
      {.reads = {q, k, v, g, beta}, .writes = {by_head}},
      RecurOp{.layer = layer, .q = q, .k = k, .v = v, .g = g, .beta = beta, .out = by_head});
  pass.norm_in_place(out_norm, by_head);
  return recurred;
}

ValueId DeltaNet::append(ValueId x, Builder& pass) const {
  if (sizes.value_heads == 0) {
    pass.input_maxima_of_others(out);
    return pass.sum_of_others("delta_net", out.size.out);
  }
  const Projected projected = append_projections(x, pass);
  const ValueId recurred = append_recurrence(projected, pass);
  const ValueId gated = pass.activate({}, projected.z, recurred);
  return pass.sum_over_ranks(pass.linear(out, gated, "delta_net"));
}

}  // namespace motley::model
