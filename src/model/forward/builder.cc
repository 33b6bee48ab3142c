#include "model/forward/builder.h"

#include <algorithm>

#include "base/check.h"

namespace motley::model {

using ops::bit;

namespace {

ops::TakenInputs taken_by(const Linear& map) {
  return {.order = map.weight.view().input_order, .rounding = map.rounding};
}
bool takes_inputs_like(const Linear& map, const Linear& other) {
  if (taken_by(map).rounding != taken_by(other).rounding) return false;
  const auto& order = map.weight.input_order();
  const auto& others = other.weight.input_order();
  if (order == nullptr || others == nullptr) return order == others;
  return *order == *others;
}

}  // namespace

ValueId Builder::value(std::string_view name, DType type, std::int64_t width, ops::RowsOf rows) {
  return list_.add_value({.name = name, .rows = rows, .type = type, .width = width});
}

ValueId Builder::embed(const Linear& table, std::optional<std::int64_t> first) {
  const ValueId out = value("hidden", DType::f32, table.in());
  list_.append({.writes = {out}}, EmbedOp{table, first, out});
  if (first) sum_over_ranks(out);
  list_.append({.reads = {out}, .writes = {out}, .may_vanish = true},
               AdaptEmbeddingOp{table.size.out, out});
  return out;
}

void Builder::add_rope_table(const RopeTable& table) {
  const ValueId out = value("cos_sin", DType::f32, table.spec.dims);
  list_.append({.writes = {out}}, RopeTableOp{table, out});
  cos_sin_.push_back({&table, out});
}

ValueId Builder::add(ValueId a, ValueId b) {
  const ValueId sum = value("hidden", DType::f32, list_.value(a).width);
  list_.append({.reads = {a, b}, .writes = {sum}}, AddOp{a, b, sum});
  return sum;
}

void Builder::add_in_place(ValueId x, ValueId y) {
  list_.append({.reads = {y, x}, .writes = {y}}, AddOp{y, x, y});
}

void Builder::add_scaled(ValueId x, ValueId scale, ValueId y) {
  list_.append({.reads = {x, scale, y}, .writes = {y}}, AddScaledOp{x, scale, y});
}

ValueId Builder::norm(const Norm& norm, ValueId x) {
  const ValueId out = value("normed", types_.activations, list_.value(x).width);
  list_.append({.reads = {x}, .writes = {out}}, NormOp{norm, x, out});
  return out;
}

void Builder::norm(const Norm& norm, ValueId x, ValueId out) {
  list_.append({.reads = {x}, .writes = {out}}, NormOp{norm, x, out});
}

Builder::Joined Builder::linears(std::initializer_list<const Linear*> maps, ValueId x,
                                 std::string_view name) {
  std::int64_t width = 0;
  for (const Linear* const map : maps) width += map->out();
  width = (width + 3) / 4 * 4;  // rows in whole vec4s
  Joined joined{.all = value(name, DType::f32, width), .each = {}};
  std::int64_t first = 0;
  const Linear* last = nullptr;
  ValueId inputs = x;
  for (const Linear* const map : maps) {
    joined.each.push_back(list_.columns(joined.all, first, map->out()));
    first += map->out();
    MOTLEY_CHECK(map->cut_scales.count == 0, "maps of whole rows");
    if (last == nullptr || !takes_inputs_like(*map, *last)) inputs = inputs_of(*map, x).x;
    last = map;
    append_linear(*map, {inputs}, joined.each.back(), nullptr);
  }
  std::size_t i = 0;
  for (const Linear* const map : maps) append_adapt(*map, x, joined.each[i++]);
  return joined;
}

ValueId Builder::linear(const Linear& map, ValueId x, std::string_view name) {
  const ValueId y = value(name, DType::f32, map.out());
  append_linear(map, inputs_of(map, x), y, nullptr);
  append_adapt(map, x, y);
  return y;
}

ValueId Builder::logits(const Linear& router, const moe::RouterSpec& spec, ValueId x) {
  const ValueId y = value("router_logits", DType::f32, router.out());
  append_linear(router, inputs_of(router, x), y, &spec);
  append_adapt(router, x, y);
  return y;
}

Builder::Inputs Builder::inputs_of(const Linear& map, ValueId x) {
  const ops::TakenInputs taken = taken_by(map);
  ValueId maxima = ops::no_value;
  if (const auto& [count, first] = map.cut_scales; count > 0)
    maxima = list_.columns(input_maxima(map, x), first, count - first);
  const bool as_they_are =
      taken.order == nullptr && taken.rounding.scales == kernels::InputRounding::Scales::none;
  if (as_they_are || device_.kernels->arrange_inputs == nullptr) return {x, maxima};
  const ValueId out = value("arranged_inputs", list_.value(x).type, map.weight.columns());
  list_.append({.reads = {x, maxima}, .writes = {out}}, ArrangeInputsOp{taken, x, out, maxima});
  return {out};
}

ValueId Builder::input_maxima(const Linear& map, ValueId x) {
  const ValueId out = value("input_maxima", DType::f32, map.cut_scales.count);
  list_.append({.reads = {x}, .writes = {out}},
               InputMaximaOverRanksOp{{map.rounding, map.cut_scales}, x, out});
  return out;
}

void Builder::input_maxima_of_others(const Linear& map) {
  if (map.cut_scales.count > 0) input_maxima(map, ops::no_value);
}

void Builder::append_linear(const Linear& map, const Inputs& inputs, ValueId y,
                            const moe::RouterSpec* router) {
  list_.append({.reads = {inputs.x, inputs.maxima}, .writes = {y}},
               LinearOp{map, inputs.x, y, router, inputs.maxima});
}

void Builder::append_adapt(const Linear& map, ValueId x, ValueId y) {
  const bool has_bias = map.bias.data() != nullptr;
  list_.append({.reads = {x, y},
                .writes = {y},
                .live_kinds = has_bias ? bit(OpKind::bias) : 0,
                .may_vanish = !has_bias},
               AdaptOp{map, x, y});
}

void Builder::clip(ValueId x, float limit) {
  list_.append({.reads = {x}, .writes = {x}}, ClipOp{limit, x});
}

void Builder::rotate(ValueId heads, const ops::RopeSpec& spec) {
  if (spec.dims == 0) return;
  const auto found =
      std::ranges::find_if(cos_sin_, [&](const CosSin& each) { return each.table->spec == spec; });
  MOTLEY_CHECK(found != cos_sin_.end(), "a table for each way to rotate");
  list_.append({.reads = {heads, found->value}, .writes = {heads}},
               RotateOp{spec.pairs == ops::RopeSpec::Pairs::interleaved, found->value, heads});
}

void Builder::store(ValueId heads, std::int32_t layer, std::size_t cache) {
  list_.append({.reads = {heads}}, StoreOp{layer, cache, heads});
}

void Builder::round(ValueId x, ValueId out) {
  list_.append({.reads = {x}, .writes = {out}}, RoundOp{x, out});
}

ValueId Builder::sum_over_ranks(ValueId x) {
  if (device_.ranks != nullptr) list_.append({.reads = {x}, .writes = {x}}, SumOverRanksOp{.x = x});
  return x;
}

ValueId Builder::sum_of_others(std::string_view name, std::int64_t width, bool exact) {
  const ValueId x = value(name, DType::f32, width);
  list_.append({.writes = {x}},
               SumOverRanksOp{{.part = dist::Communicator::Part::none, .exact = exact}, x});
  return x;
}

void Builder::norm_over_ranks(const Norm& norm, std::int64_t whole_width, bool counts, ValueId x) {
  using Part = dist::Communicator::Part;
  list_.append({.reads = {x}, .writes = {x}},
               NormOverRanksOp{norm, whole_width, counts ? Part::own : Part::none, x});
}

ValueId Builder::gather_over_ranks(ValueId x, dist::Range columns, std::int64_t width) {
  if (device_.ranks == nullptr) return x;
  const ValueId out = value(list_.value(x).name, DType::f32, width);
  list_.append({.reads = {x}, .writes = {out}}, GatherOverRanksOp{columns, x, out});
  return out;
}

ValueId Builder::activate(const ops::ActivationSpec& spec, ValueId gate, ValueId up) {
  const ValueId out = value("activated", types_.activations, list_.value(gate).width);
  list_.append({.reads = {gate, up}, .writes = {out}}, ActivateOp{spec, gate, up, out});
  return out;
}

}  // namespace motley::model
