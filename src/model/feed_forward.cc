#include "model/feed_forward.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/cat.h"
#include "model/load_experts.h"
#include "moe/select.h"
#include "ops/activation.h"
#include "ops/elementwise.h"

namespace motley::model {

using lora::Projection;
using tensor::Tensor;

namespace {

struct DenseSites {
  Projection gate, up, down;
};

Result<DenseBlock> load_dense(WeightSource& source, std::int32_t layer, std::string_view module,
                              std::int64_t hidden, std::int64_t width, DenseSites sites) {
  const auto spec = [&](Projection projection, std::string_view name, quant::TrueSize size) {
    return LinearSpec{{layer, projection}, cat(module, ".", name), size};
  };
  DenseBlock block;
  MOTLEY_TRY(block.gate_up_memory,
             load_linears(source, {{&block.gate, spec(sites.gate, "gate_proj", {width, hidden})},
                                   {&block.up, spec(sites.up, "up_proj", {width, hidden})}}));
  MOTLEY_TRY(block.down, load_linear(source, spec(sites.down, "down_proj", {hidden, width})));
  return block;
}

}  // namespace

Result<DenseBlock> load_dense_block(WeightSource& source, const Config& config,
                                    std::int32_t layer) {
  return load_dense(source, layer, cat("model.layers.", layer, ".mlp"), config.hidden,
                    config.dense_intermediate,
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
  if (sizes.shared_intermediate > 0) {
    MOTLEY_TRY(
        block.shared,
        load_dense(source, layer, cat(module, ".", config.naming.shared_expert), config.hidden,
                   sizes.shared_intermediate,
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

std::size_t scratch_bytes(const DenseBlock& block, std::int64_t rows) {
  const std::int64_t width = block.gate.out();
  return scratch_bytes(rows, {width, width, width, std::max(width, block.down.out())}) +
         lora::scratch_bytes;
}

std::size_t scratch_bytes(const MoeBlock& block, std::int64_t rows) {
  const std::size_t shared =
      block.shared ? scratch_bytes(*block.shared, rows) + scratch_bytes(rows, {block.router.in()})
                   : 0;
  return scratch_bytes(rows, {block.spec.experts, block.spec.experts, block.spec.top_k,
                              block.spec.top_k, block.router.in(), 1, 1}) +
         std::max(block.backend->scratch_bytes(block.problem, rows), shared) + lora::scratch_bytes;
}

namespace {

// x [R, hidden] -> out [R, hidden].
void apply_dense(const DenseBlock& block, const Step& step, const tensor::ConstTensor& x,
                 const Tensor& out) {
  Scratch scratch(step.context);
  const std::int64_t width = block.gate.out();
  // Side by side, as their weights are.
  const Tensor gate_up = scratch.take(DType::f32, {step.rows(), 2 * width});
  const Tensor gate = gate_up.slice(1, 0, width);
  const Tensor up = gate_up.slice(1, width, 2 * width);
  const Tensor product = scratch.take(step.activations, {step.rows(), width});
  apply({{block.gate, gate}, {block.up, up}}, step.context, step.batch.mixes, x);
  ops::activate_and_multiply(step.context, {}, gate, up, product);
  apply(block.down, step, product, out);
}

// entry.x, and the experts of its rows with their weights. One product serves a step's base rows,
// whether an adapter changes the router or not.
void enter(const MoeBlock& block, const Step& step, const NormedSum& entry, const Tensor& ids,
           const Tensor& weights) {
  const ops::Context& context = step.context;
  Scratch scratch(context);
  const Tensor logits = scratch.take(DType::f32, {step.rows(), block.spec.experts});
  const ops::PagedRows& rows = step.batch.rows;
  const moe::RouterCall call{.spec = block.spec,
                             .rows = call_of(entry, context),
                             .x = entry.x,
                             .weight = block.router.weight,
                             .bias = block.router.bias.data(),
                             .logits = logits,
                             .correction_bias = block.correction_bias.data(),
                             .ids = ids,
                             .weights = weights,
                             .live_rows = rows.seq_begin + rows.sequences};
  const bool adapted = lora::touches(step.batch.mixes, block.router.site);
  if (!entry.made && !adapted) return moe::norm_and_route(call, context);
  if (entry.made) {
    apply(block.router, step, entry.x, logits);
  } else {
    moe::norm_and_logits(call, context);
    const lora::AdaptedLinear router{
        .site = block.router.site, .acc = logits, .bias = block.router.bias.data(), .out = logits};
    lora::finish_linears(step.batch.mixes, entry.x, std::span(&router, 1), context);
  }
  moe::route(call, context);
}

}  // namespace

void apply(const DenseBlock& block, const Step& step, const NormedSum& entry, const Tensor& out,
           NormedSum* /*next*/) {
  apply(entry, step.context);
  apply_dense(block, step, entry.x, out);
}

void apply(const MoeBlock& block, const Step& step, const NormedSum& entry, const Tensor& out,
           NormedSum* next) {
  const ops::Context& context = step.context;
  const tensor::ConstTensor x = entry.x;
  const std::int64_t rows = step.rows();
  const std::int64_t hidden = x.dim(1);
  const std::int32_t layer = block.router.site.layer;
  Scratch scratch(context);

  const Tensor* const kept = step.batch.choices;
  const Tensor ids = kept != nullptr ? kept->select(layer).slice(0, 0, rows)
                                     : scratch.take(DType::i32, {rows, block.spec.top_k});
  const Tensor weights = scratch.take(DType::f32, {rows, block.spec.top_k});
  enter(block, step, entry, ids, weights);

  const lora::RowMixes& mixes = step.batch.mixes;
  const lora::ExpertDeltas deltas{.batch = mixes.batch, .layer = layer, .table = mixes.table};
  const bool adapted = lora::touches_experts(mixes, layer);
  // A shared expert's result would come in between.
  std::optional<moe::NextSum> sum;
  if (next != nullptr && !block.shared) sum.emplace(call_of(*next, context));
  block.backend->run({.experts = *block.prepared,
                      .x = x,
                      .ids = ids,
                      .routing_weights = weights,
                      .deltas = adapted ? &deltas : nullptr,
                      .out = out,
                      .next = sum ? &*sum : nullptr,
                      .workspace = step.experts.of(*block.backend),
                      .context = context});
  if (sum) next->made = sum->made;
  if (block.shared) {
    const Tensor shared = scratch.take(DType::f32, {rows, hidden});
    apply_dense(*block.shared, step, x, shared);
    if (block.shared_gate) {
      const Tensor weight = scratch.take(DType::f32, {rows, 1});
      apply(*block.shared_gate, step, x, weight);
      ops::add_scaled(context, shared, weight, {.sigmoid = true}, out);
    } else {
      ops::add(context, out, shared, out);
    }
  }
}

}  // namespace motley::model
