#include "cli/bench/steps/step_cost.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "quant/upload.h"
#include "runner/kv_memory.h"
#include "runner/state_memory.h"

namespace motley::cli {
namespace {

using model::Linear;
using model::MoeBlock;
using quant::Weight;

double bytes_of(const Weight& weight) { return static_cast<double>(weight.stored_bytes()); }
double numbers_of(const Weight& weight) {
  return static_cast<double>(weight.out()) * static_cast<double>(weight.in());
}

struct Sum {
  StepCost cost;
  double rows = 0;

  void add(const Linear& linear) { add(linear, rows); }
  void add(const Linear& linear, double seen) {
    cost.bytes += bytes_of(linear.weight);
    cost.operations += 2 * seen * numbers_of(linear.weight);
  }
  void add(const model::Block& block) {
    for (const model::MapGroup& group : block.maps())
      for (const Linear* const map : group.maps) add(*map);
  }
};

}  // namespace

StepCost step_cost(const model::Model& model, const StepShape& shape, const Touched& touched,
                   std::span<const AdapterNumbers> adapters) {
  const auto rows = static_cast<double>(shape.rows());
  Sum sum{.cost = {}, .rows = rows};
  model::for_each_block(model.layers(), [&](const model::Block& block) { sum.add(block); });
  model::for_each_mixer(model.layers(), [&](const model::Mixer& mixer, std::size_t layer) {
    const model::Mixer::Cost cost =
        mixer.cost({.sequences = shape.sequences, .tokens = shape.tokens, .length = shape.length});
    const model::TokenCaches& caches = model.token_caches()[layer];
    const std::int64_t token_bytes =
        runner::KvMemory::page_bytes(std::span(&caches, 1), model.kv_type()) /
        runner::KvMemory::page_tokens;
    sum.cost.bytes += cost.tokens_read * static_cast<double>(token_bytes);
    const model::StateShape& state = model.state_shapes()[layer];
    sum.cost.bytes +=
        cost.states_read *
        static_cast<double>(runner::StateMemory::snapshot_bytes(std::span(&state, 1)));
    sum.cost.operations += cost.operations;
  });
  double expert_bytes = 0;
  double choices = 0;  // experts that a row chooses, over all layers
  model::for_each_moe(model.layers(), [&](const MoeBlock& block, std::size_t) {
    expert_bytes = 0;
    // Of several groups of ranks each has its share of the experts that rows choose.
    const double share = static_cast<double>(block.experts->experts) / block.spec.experts;
    for (const auto* weights : {&block.experts->gate, &block.experts->up, &block.experts->down}) {
      expert_bytes += share * bytes_of(weights->front());
      sum.cost.operations += 2 * share * rows * block.spec.top_k * numbers_of(weights->front());
    }
    choices += block.spec.top_k;
  });
  sum.cost.bytes += touched.experts * expert_bytes;
  sum.add(model.head(), static_cast<double>(shape.sequences));

  const int used = static_cast<int>(std::min<std::int64_t>(shape.adapters, shape.sequences));
  for (int i = 0; i < used; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto& [numbers, bytes_each] = adapters[at];
    const auto always = static_cast<double>(numbers.always);
    const auto each = static_cast<double>(numbers.each_expert);
    sum.cost.bytes += bytes_each * (always + each * touched.adapter_experts[at]);
    sum.cost.operations += 2 * rows / used * (always + each * choices);
  }
  return sum.cost;
}

double expected_experts(const model::Config& config, std::int64_t rows) {
  const auto experts = static_cast<double>(config.moe.router.experts);
  const double missed = std::pow(1 - config.moe.router.top_k / experts, static_cast<double>(rows));
  return experts * (1 - missed) * static_cast<double>(std::ranges::count(config.moe_layers, true));
}

namespace {

// The numbers of a mixer's maps.
std::int64_t numbers_of(const model::GroupedConfig& mixer, std::int64_t hidden) {
  const std::int64_t q_and_o = mixer.heads * (mixer.gated ? 3 : 2);
  const std::int64_t k_and_v = mixer.kv_heads * (mixer.values == model::Values::projected ? 2 : 1);
  return hidden * mixer.head_dim * (q_and_o + k_and_v);
}
std::int64_t numbers_of(const model::LatentConfig& mixer, std::int64_t hidden) {
  const std::int64_t q_width = mixer.heads * (mixer.nope_dim + mixer.rope_dim);
  const std::int64_t q = mixer.q_rank == 0 ? hidden * q_width : mixer.q_rank * (hidden + q_width);
  return q + hidden * (mixer.kv_rank + mixer.rope_dim) +
         mixer.kv_rank * mixer.heads * (mixer.nope_dim + mixer.value_dim) +
         hidden * mixer.heads * mixer.value_dim;
}

std::int64_t numbers_of(const model::DeltaNetConfig& mixer, std::int64_t hidden) {
  const std::int64_t z_and_out = 2 * mixer.values();
  const std::int64_t b_and_a = 2 * mixer.value_heads;
  return hidden * (mixer.channels() + z_and_out + b_and_a);
}

}  // namespace

std::uint64_t weight_bytes(const model::Config& config, model::RandomWeights::Experts experts) {
  const std::int64_t hidden = config.hidden;
  const quant::Format format = model::RandomWeights::expert_format(experts, hidden);
  const double scale_bits =
      format.block_columns > 0
          ? bits(format.scale_type) / static_cast<double>(format.block_rows * format.block_columns)
          : 0.0;
  double bytes = 2.0 * 2.0 * static_cast<double>(config.vocabulary * hidden);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const bool moe = config.moe_layers[static_cast<std::size_t>(layer)];
    bytes += 2.0 * static_cast<double>(
                       std::visit([&](const auto& mixer) { return numbers_of(mixer, hidden); },
                                  config.mixer(layer)));
    if (!moe || config.dense_and_experts)
      bytes += 2.0 * 3.0 * static_cast<double>(hidden * config.dense_intermediate);
    if (!moe) continue;
    bytes += 2.0 * 3.0 * static_cast<double>(hidden * config.moe.shared_intermediate);
    bytes += 3.0 *
             static_cast<double>(config.moe.router.experts * hidden * config.moe.intermediate) *
             (format.bits + scale_bits) / 8;
  }
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace motley::cli
