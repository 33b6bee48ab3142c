#include "model/feed_forward.h"

#include "base/cat.h"
#include "model/weights/load_experts.h"
#include "moe/select.h"

namespace motley::model {

using lora::Projection;

namespace {

struct DenseSites {
  Projection gate, up, down;
};

struct DenseSize {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  dist::Range own;  // of the width: this rank's
  std::int64_t unit = 0;
};

Result<DenseBlock> load_dense(WeightSource& source, std::int32_t layer, std::string_view module,
                              const DenseSize& size, DenseSites sites) {
  const auto& [hidden, width, own, unit] = size;
  Cut rows;
  Cut columns;
  if (source.memory().shard.is_cut()) rows.rows = columns.columns = own;
  columns.column_unit = unit;
  const auto spec = [&](Projection projection, std::string_view name, quant::TrueSize of,
                        const Cut& cut) {
    return LinearSpec{
        .site = {layer, projection}, .module = cat(module, ".", name), .size = of, .cut = cut};
  };
  DenseBlock block;
  MOTLEY_TRY(
      block.gate_up_memory,
      load_linears(source, {{&block.gate, spec(sites.gate, "gate_proj", {width, hidden}, rows)},
                            {&block.up, spec(sites.up, "up_proj", {width, hidden}, rows)}}));
  MOTLEY_TRY(block.down,
             load_linear(source, spec(sites.down, "down_proj", {hidden, width}, columns)));
  return block;
}

// Of several ranks each computes a part of the sum.
ValueId append_part(const DenseBlock& block, ValueId x, Builder& pass) {
  const auto gate_up = pass.linears({&block.gate, &block.up}, x, "gate_up").each;
  return pass.linear(block.down, pass.activate({}, gate_up[0], gate_up[1]), "feed_forward");
}

}  // namespace

Result<DenseBlock> load_dense_block(WeightSource& source, const Config& config,
                                    std::int32_t layer) {
  const Shard& shard = source.memory().shard;
  return load_dense(source, layer, cat("model.layers.", layer, ".mlp"),
                    {config.hidden, config.dense_intermediate, shard.dense, shard.units.dense},
                    {Projection::gate, Projection::up, Projection::down});
}

Result<MoeBlock> load_moe_block(WeightSource& source, const Config& config, std::int32_t layer,
                                const BackendChoice& choice) {
  const MoeConfig& sizes = config.moe;
  MOTLEY_TRY(const std::string module, moe_module(source, config, layer));
  MoeBlock block;
  block.spec = sizes.router;
  const std::string router = cat(module, ".", config.naming.router);
  MOTLEY_TRY(block.router, load_linear(source, {{layer, Projection::router},
                                                router,
                                                {sizes.router.experts, config.hidden},
                                                sizes.router_bias}));
  if (sizes.correction_bias) {
    MOTLEY_TRY(block.correction_bias,
               source.vector(cat(router, ".e_score_correction_bias"), sizes.router.experts));
  }
  MOTLEY_TRY(moe::ExpertWeights experts, load_experts(source, config, module));
  block.experts = std::make_unique<moe::ExpertWeights>(std::move(experts));
  const Shard& shard = source.memory().shard;
  if (shard.deals_experts())
    block.first_expert = static_cast<std::int32_t>(shard.experts.experts.begin);
  if (sizes.shared_intermediate > 0) {
    MOTLEY_TRY(
        block.shared,
        load_dense(source, layer, cat(module, ".", config.naming.shared_expert),
                   {config.hidden, sizes.shared_intermediate, shard.shared_expert,
                    shard.units.shared_expert},
                   {Projection::shared_gate, Projection::shared_up, Projection::shared_down}));
    if (sizes.shared_gate) {
      MOTLEY_TRY(block.shared_gate, load_linear(source, {{layer, Projection::shared_expert_gate},
                                                         cat(module, ".shared_expert_gate"),
                                                         {1, config.hidden}}));
    }
  }
  const WeightSource::Memory& memory = source.memory();
  block.problem = moe::problem_of(*block.experts, {.top_k = sizes.router.top_k,
                                                   .lora = true,
                                                   .exact = memory.exact,
                                                   .factors = choice.factors,
                                                   .device = memory.device.id().kind});
  MOTLEY_TRY(block.backend,
             moe::select(block.problem, moe::backends_of(block.problem.device), choice.forced));
  MOTLEY_TRY(block.prepared, block.backend->prepare(*block.experts, memory.uploader));
  return block;
}

ValueId append(const DenseBlock& block, ValueId x, Builder& pass) {
  return pass.sum_over_ranks(append_part(block, x, pass));
}

ValueId append(const MoeBlock& block, ValueId x, Builder& pass) {
  ops::OpList& list = pass.list();
  const std::int32_t layer = block.router.site.layer;
  const ValueId logits = pass.logits(block.router, block.spec, x);
  const ValueId ids = pass.value("expert_ids", DType::i32, block.spec.top_k);
  const ValueId weights = pass.value("expert_weights", DType::f32, block.spec.top_k);
  list.append({.reads = {logits}, .writes = {ids, weights}},
              RouteOp{block.spec, block.correction_bias, layer, logits, ids, weights});
  // Before the experts, so that their sum can include its rows.
  const ValueId shared = block.shared ? append_part(*block.shared, x, pass) : ops::no_value;
  const ValueId gate =
      block.shared_gate ? pass.linear(*block.shared_gate, x, "shared_gate") : ops::no_value;
  ValueId own_ids = ids;
  if (block.first_expert) {
    own_ids = pass.value("own_expert_ids", DType::i32, block.spec.top_k);
    list.append({.reads = {ids}, .writes = {own_ids}},
                LocalExpertsOp{layer, *block.first_expert, ids, own_ids});
  }
  const ValueId out = pass.value("experts", DType::f32, block.router.in());
  list.append({.reads = {x, own_ids, weights}, .writes = {out}},
              ExpertsOp{.backend = *block.backend,
                        .problem = block.problem,
                        .experts = *block.prepared,
                        .layer = layer,
                        .local_ids = block.first_expert.has_value(),
                        .x = x,
                        .ids = own_ids,
                        .weights = weights,
                        .out = out});
  if (block.shared_gate) {
    pass.add_scaled(shared, gate, out);
  } else if (block.shared) {
    pass.add_in_place(shared, out);
  }
  return pass.sum_over_ranks(out);
}

}  // namespace motley::model
