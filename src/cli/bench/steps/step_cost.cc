#include "cli/bench/steps/step_cost.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "quant/upload.h"
#include "runner/kv_memory.h"

namespace motley::cli {
namespace {

using model::DenseBlock;
using model::GroupedAttention;
using model::LatentAttention;
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
  void add(const DenseBlock& block) {
    for (const Linear* linear : {&block.gate, &block.up, &block.down}) add(*linear);
  }
  void add(const GroupedAttention& block) {
    for (const Linear* linear : {&block.q, &block.k, &block.v, &block.o}) add(*linear);
  }
  void add(const LatentAttention& block) {
    for (const auto* linear : {&block.q, &block.q_a, &block.q_b})
      if (*linear) add(**linear);
    for (const Linear* linear : {&block.kv_a, &block.kv_b, &block.o}) add(*linear);
  }
};

// Attention over KV memory: heads, widths of a score and of a value, and the window.
struct AttentionSize {
  std::int64_t heads = 0;
  std::int64_t key_width = 0;
  std::int64_t value_width = 0;
  std::int64_t window = 0;
};
AttentionSize size_of(const GroupedAttention& block) {
  return {block.heads, block.head_dim, block.head_dim, block.window};
}
AttentionSize size_of(const LatentAttention& block) {
  return {block.heads, block.sizes.kv_rank + block.sizes.rope_dim, block.sizes.kv_rank, 0};
}
// In plain form, which first computes a key and a value for each cached position.
AttentionSize plain_size_of(const LatentAttention& block) {
  return {block.heads, block.sizes.nope_dim + block.sizes.rope_dim, block.sizes.value_dim, 0};
}

StepCost attention_cost(const AttentionSize& size, const model::CacheLayout& cache, DType dtype,
                        const StepShape& shape) {
  const std::int64_t all = shape.length + shape.tokens;
  std::int64_t read = all;
  if (size.window > 0) read = std::min(read, size.window + shape.tokens - 1);
  double seen = 0;  // positions attended to, summed over a sequence's rows
  for (std::int64_t position = shape.length; position < all; ++position)
    seen +=
        static_cast<double>(size.window > 0 ? std::min(position + 1, size.window) : position + 1);
  const auto sequences = static_cast<double>(shape.sequences);
  const std::int64_t token_bytes =
      runner::KvMemory::page_bytes(std::span(&cache, 1), dtype) / runner::KvMemory::page_tokens;
  return {.bytes = sequences * static_cast<double>(read * token_bytes),
          .operations = 2 * sequences * seen *
                        static_cast<double>(size.heads * (size.key_width + size.value_width))};
}

StepCost attention_cost(const GroupedAttention& block, const model::CacheLayout& cache, DType dtype,
                        const StepShape& shape) {
  return attention_cost(size_of(block), cache, dtype, shape);
}
// Of the cheaper form.
StepCost attention_cost(const LatentAttention& block, const model::CacheLayout& cache, DType dtype,
                        const StepShape& shape) {
  StepCost cost = attention_cost(size_of(block), cache, dtype, shape);
  const StepCost plain = attention_cost(plain_size_of(block), cache, dtype, shape);
  const double cached = static_cast<double>(shape.sequences * shape.length);
  cost.operations =
      std::min(cost.operations, plain.operations + 2 * cached * numbers_of(block.kv_b.weight));
  return cost;
}

}  // namespace

StepCost step_cost(const model::Model& model, const StepShape& shape, const Touched& touched,
                   std::span<const AdapterNumbers> adapters) {
  const auto rows = static_cast<double>(shape.rows());
  Sum sum{.cost = {}, .rows = rows};
  double expert_bytes = 0;
  double choices = 0;  // experts that a row chooses, over all layers
  for (std::size_t index = 0; index < model.layers().size(); ++index) {
    const model::Layer& layer = model.layers()[index];
    std::visit(
        [&](const auto& block) {
          sum.add(block);
          const StepCost cost =
              attention_cost(block, model.cache_layouts()[index], model.kv_type(), shape);
          sum.cost.bytes += cost.bytes;
          sum.cost.operations += cost.operations;
        },
        layer.attention);
    if (const auto* dense = std::get_if<DenseBlock>(&layer.ffn)) {
      sum.add(*dense);
      continue;
    }
    const auto& block = std::get<MoeBlock>(layer.ffn);
    sum.add(block.router);
    if (block.shared) sum.add(*block.shared);
    if (block.shared_gate) sum.add(*block.shared_gate);
    expert_bytes = 0;
    // Of several groups of ranks each has its share of the experts that rows choose.
    const double share = static_cast<double>(block.experts->experts) / block.spec.experts;
    for (const auto* weights : {&block.experts->gate, &block.experts->up, &block.experts->down}) {
      expert_bytes += share * bytes_of(weights->front());
      sum.cost.operations += 2 * share * rows * block.spec.top_k * numbers_of(weights->front());
    }
    choices += block.spec.top_k;
  }
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

std::uint64_t weight_bytes(const model::Config& config, model::RandomWeights::Experts experts) {
  const std::int64_t hidden = config.hidden;
  const model::AttentionConfig& a = config.attention;
  const model::LatentConfig& l = config.latent;
  std::int64_t attention = hidden * a.head_dim * 2 * (a.heads + a.kv_heads);
  if (config.latent_attention) {
    const std::int64_t q_width = a.heads * (l.nope_dim + l.rope_dim);
    const std::int64_t q = l.q_rank == 0 ? hidden * q_width : l.q_rank * (hidden + q_width);
    attention = q + hidden * (l.kv_rank + l.rope_dim) +
                l.kv_rank * a.heads * (l.nope_dim + l.value_dim) + hidden * a.heads * l.value_dim;
  }
  const quant::Format format = model::RandomWeights::expert_format(experts, hidden);
  const double scale_bits =
      format.block_columns > 0
          ? bits(format.scale_type) / static_cast<double>(format.block_rows * format.block_columns)
          : 0.0;
  double bytes = 2.0 * 2.0 * static_cast<double>(config.vocabulary * hidden);
  for (const bool moe : config.moe_layers) {
    bytes += 2.0 * static_cast<double>(attention);
    if (!moe) {
      bytes += 2.0 * 3.0 * static_cast<double>(hidden * config.dense_intermediate);
      continue;
    }
    bytes += 2.0 * 3.0 * static_cast<double>(hidden * config.moe.shared_intermediate);
    bytes += 3.0 *
             static_cast<double>(config.moe.router.experts * hidden * config.moe.intermediate) *
             (format.bits + scale_bits) / 8;
  }
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace motley::cli
