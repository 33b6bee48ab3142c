#include "gpu/exact_runner.h"

#include <algorithm>
#include <bit>

#include "base/cat.h"

namespace motley::gpu_tests {

using kernels::WeightKind;
using kernels::WeightView;
using kernels::cuda::ExactFactor;
using kernels::cuda::ExactTerm;

namespace {

// Narrowed where the type is bf16; `columns` padded with zeros to `padded`.
std::vector<std::uint8_t> to_bytes(const std::vector<float>& values, DType type,
                                   std::size_t columns, std::size_t padded) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < values.size(); i += columns) {
    for (std::size_t j = 0; j < padded; ++j) {
      const float value = j < columns ? values[i + j] : 0.0F;
      if (type == DType::bf16) {
        const std::uint16_t bits = bf16_bits(value);
        bytes.push_back(static_cast<std::uint8_t>(bits));
        bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
      } else {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        for (int shift = 0; shift < 32; shift += 8)
          bytes.push_back(static_cast<std::uint8_t>(bits >> shift));
      }
    }
  }
  return bytes;
}

}  // namespace

DeviceLayer::DeviceLayer(const WorldLayer& layer)
    : biases_(layer.shape.biases),
      gate_(put(layer.shape, layer.gate)),
      up_(put(layer.shape, layer.up)),
      down_(put(layer.shape, layer.down)),
      gate_bias_(layer.gate_bias),
      up_bias_(layer.up_bias),
      down_bias_(layer.down_bias) {}

DeviceArray<WeightView> DeviceLayer::put(const WorldShape& shape,
                                         const std::vector<WorldMatrix>& matrices) {
  std::vector<WeightView> views;
  for (const WorldMatrix& matrix : matrices) {
    bytes_.emplace_back(matrix.bytes);
    WeightView view{.kind = shape.kind,
                    .data = bytes_.back().data(),
                    .scales = nullptr,
                    .out = matrix.out,
                    .in = matrix.in,
                    .block_rows = 1,
                    .block_columns = 0};
    if (shape.kind == WeightKind::int4_group) {
      scales_.emplace_back(matrix.scales);
      view.scales = scales_.back().data();
      view.block_columns = shape.group;
    }
    views.push_back(view);
  }
  return DeviceArray<WeightView>(views);
}

DeviceAdapters::DeviceAdapters(const WorldShape& shape, const std::vector<WorldAdapter>& adapters,
                               const WorldMixes& mixes, DType type) {
  deltas.factor_type = type;
  struct Sites {
    const ExactFactor *gate, *up, *down;
  };
  std::vector<Sites> sites;
  sites.reserve(adapters.size());
  for (const WorldAdapter& adapter : adapters) {
    sites.push_back({put(adapter.gate, shape.hidden, shape.intermediate),
                     put(adapter.up, shape.hidden, shape.intermediate),
                     put(adapter.down, shape.intermediate, shape.hidden)});
  }
  std::vector<std::int32_t> begin{0};
  std::vector<ExactTerm> terms;
  for (const auto& mix : mixes) {
    for (const WorldTerm& term : mix) {
      const Sites& s = sites[static_cast<std::size_t>(term.adapter)];
      terms.push_back({s.gate, s.up, s.down, term.scale});
    }
    begin.push_back(static_cast<std::int32_t>(terms.size()));
    deltas.most_terms = std::max(deltas.most_terms, static_cast<int>(mix.size()));
  }
  term_begin_ = DeviceArray<std::int32_t>(begin);
  terms_ = DeviceArray<ExactTerm>(terms);
  deltas.term_begin = term_begin_.data();
  deltas.terms = terms_.data();
}

const ExactFactor* DeviceAdapters::put(const std::vector<WorldFactor>& factors, int in, int out) {
  if (factors.empty()) return nullptr;
  std::vector<ExactFactor> table;
  for (const WorldFactor& factor : factors) {
    if (factor.rank == 0) {
      table.push_back({nullptr, nullptr, 0, 0, 0});
      continue;
    }
    const int padded = (factor.rank + 7) / 8 * 8;
    // A has no rows behind the rank that anybody may read: what lies there is NaN.
    std::vector<float> a = factor.a;
    a.resize(static_cast<std::size_t>(padded) * static_cast<std::size_t>(in),
             std::bit_cast<float>(0x7FC00000U));
    pages_.emplace_back(to_bytes(a, deltas.factor_type, std::size_t(in), std::size_t(in)));
    const void* const a_at = pages_.back().data();
    pages_.emplace_back(
        to_bytes(factor.b, deltas.factor_type, std::size_t(factor.rank), std::size_t(padded)));
    const void* const b_at = pages_.back().data();
    EXPECT_EQ(factor.b.size(), std::size_t(factor.rank) * std::size_t(out));
    table.push_back({a_at, b_at, factor.rank, padded, factor.scale});
    deltas.most_rank = std::max(deltas.most_rank, factor.rank);
  }
  factors_.push_back(std::make_unique<DeviceArray<ExactFactor>>(table));
  return factors_.back()->data();
}

std::vector<float> run_exact(const WorldLayer& layer, const WorldRows& rows,
                             const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                             DType x_type, DType factor_type) {
  const WorldShape& shape = layer.shape;
  const DeviceLayer weights(layer);
  const DeviceAdapters deltas(shape, adapters, mixes, factor_type);
  DevicePlan plan(rows.ids, rows.labels, static_cast<int>(mixes.size()), rows.tokens,
                  shape.experts_per_token, shape.experts, kernels::cuda::exact_tile_places);
  const DeviceArray<std::uint8_t> x(
      to_bytes(rows.x, x_type, std::size_t(shape.hidden), std::size_t(shape.hidden)));
  const DeviceArray<float> routing(rows.weights);
  const DeviceArray<float> out(rows.x.size());
  kernels::cuda::ExactExperts params{.tokens = rows.tokens,
                                     .experts_per_token = shape.experts_per_token,
                                     .experts = shape.experts,
                                     .hidden = shape.hidden,
                                     .intermediate = shape.intermediate,
                                     .gate = weights.gate(),
                                     .up = weights.up(),
                                     .down = weights.down(),
                                     .gate_bias = weights.gate_bias(),
                                     .up_bias = weights.up_bias(),
                                     .down_bias = weights.down_bias(),
                                     .activation = shape.activation,
                                     .x = x.data(),
                                     .x_type = x_type,
                                     .routing_weights = routing.data(),
                                     .plan = plan.params.plan,
                                     .out = out.data()};
  if (!rows.labels.empty()) {
    params.deltas = deltas.deltas;
    params.deltas.labels = plan.params.labels;
  }
  const DeviceArray<float> scratch(kernels::cuda::exact_scratch_bytes(params) / sizeof(float));
  params.scratch = scratch.data();
  plan.build();
  EXPECT_TRUE(kernels::cuda::run_exact_experts(params, {}).ok());
  const cudaError_t status = cudaDeviceSynchronize();
  EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
  return out.read();
}

}  // namespace motley::gpu_tests
