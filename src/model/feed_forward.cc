#include "model/feed_forward.h"

#include <algorithm>
#include <iterator>

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
    // Not next to gate and up: a product with an odd number of outputs is slow for many rows.
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

std::vector<MapGroup> DenseBlock::maps(std::string_view part) const {
  return {{.part = part, .maps = {&gate, &up}}, {.part = part, .maps = {&down}}};
}

DenseBlock::Part DenseBlock::append_part(ValueId x, Builder& pass, const Linear* beside) const {
  const auto maps = beside == nullptr ? pass.linears({&gate, &up}, x, "gate_up").each
                                      : pass.linears({&gate, &up, beside}, x, "gate_up").each;
  return {.out = pass.linear(down, pass.activate({}, maps[0], maps[1]), "feed_forward"),
          .beside = beside == nullptr ? ops::no_value : maps[2]};
}

ValueId DenseBlock::append(ValueId x, Builder& pass) const {
  return pass.sum_over_ranks(append_part(x, pass).out);
}

std::vector<MapGroup> MoeBlock::maps() const {
  constexpr std::string_view of_shared = "shared experts";
  std::vector<MapGroup> all{{.part = "router", .maps = {&router}}};
  if (shared) std::ranges::move(shared->maps(of_shared), std::back_inserter(all));
  if (shared_gate) all.push_back({.part = of_shared, .maps = {&*shared_gate}});
  return all;
}

std::vector<const Vector*> MoeBlock::vectors() const { return {&correction_bias}; }

ValueId MoeBlock::append_part(ValueId x, Builder& pass) const {
  ops::OpList& list = pass.list();
  const std::int32_t layer = router.site.layer;
  const ValueId logits = pass.logits(router, spec, x);
  const ValueId ids = pass.value("expert_ids", DType::i32, spec.top_k);
  const ValueId weights = pass.value("expert_weights", DType::f32, spec.top_k);
  list.append({.reads = {logits}, .writes = {ids, weights}},
              RouteOp{spec, correction_bias, layer, logits, ids, weights});
  // Before the experts, so that their sum can include its rows.
  const DenseBlock::Part of_shared =
      shared ? shared->append_part(x, pass, shared_gate ? &*shared_gate : nullptr)
             : DenseBlock::Part{};
  ValueId own_ids = ids;
  if (first_expert) {
    own_ids = pass.value("own_expert_ids", DType::i32, spec.top_k);
    list.append({.reads = {ids}, .writes = {own_ids}},
                LocalExpertsOp{layer, *first_expert, ids, own_ids});
  }
  const ValueId out = pass.value("experts", DType::f32, router.in());
  list.append({.reads = {x, own_ids, weights}, .writes = {out}},
              ExpertsOp{.backend = *backend,
                        .problem = problem,
                        .experts = *prepared,
                        .layer = layer,
                        .local_ids = first_expert.has_value(),
                        .x = x,
                        .ids = own_ids,
                        .weights = weights,
                        .out = out});
  if (shared_gate) {
    pass.add_scaled(of_shared.out, of_shared.beside, out);
  } else if (shared) {
    pass.add_in_place(of_shared.out, out);
  }
  return out;
}

ValueId MoeBlock::append(ValueId x, Builder& pass) const {
  return pass.sum_over_ranks(append_part(x, pass));
}

std::vector<MapGroup> ParallelBlock::maps() const {
  std::vector<MapGroup> all = dense.maps();
  std::ranges::move(experts.maps(), std::back_inserter(all));
  return all;
}

ValueId ParallelBlock::append(ValueId x, Builder& pass) const {
  const ValueId of_dense = dense.append_part(x, pass).out;
  const ValueId out = experts.append_part(x, pass);
  pass.add_in_place(of_dense, out);
  return pass.sum_over_ranks(out);
}

}  // namespace motley::model
