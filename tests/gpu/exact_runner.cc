#include "gpu/exact_runner.h"

#include <bit>
#include <memory>

#include "gpu/device_kernels.h"
#include "gpu/expert_pages.h"

namespace motley::gpu_tests {

using kernels::WeightKind;
using kernels::WeightView;

namespace {

std::vector<std::uint8_t> to_bytes(const std::vector<float>& values, DType type) {
  std::vector<std::uint8_t> bytes;
  for (const float value : values) {
    const std::uint32_t bits =
        type == DType::bf16 ? bf16_bits(value) : std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < (type == DType::bf16 ? 16 : 32); shift += 8)
      bytes.push_back(static_cast<std::uint8_t>(bits >> shift));
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
    if (shape.kind == WeightKind::int4) {
      std::vector<bf16> scales;
      for (const float scale : matrix.scales) scales.push_back(bf16::from(scale));
      scales_.emplace_back(scales);
      view.scales = scales_.back().data();
      view.scale_type = DType::bf16;
      view.block_columns = shape.group;
    }
    if (shape.kind == WeightKind::i8 || shape.kind == WeightKind::f8_e4m3) {
      if (shape.e8m0_scales) {
        std::vector<std::uint8_t> scales;
        for (const float scale : matrix.scales)
          scales.push_back(f8_e8m0::from_rounded_up(scale).bits);
        byte_scales_.emplace_back(scales);
        view.scales = byte_scales_.back().data();
        view.scale_type = DType::f8_e8m0;
      } else {
        float_scales_.emplace_back(matrix.scales);
        view.scales = float_scales_.back().data();
      }
      if (shape.zero_points) {
        zero_points_.emplace_back(matrix.zero_points);
        view.zero_points = zero_points_.back().data();
      }
      view.block_rows = shape.scale_rows;
      view.block_columns = shape.scale_columns == 0 ? matrix.in : shape.scale_columns;
    }
    views.push_back(view);
  }
  return DeviceArray<WeightView>(views);
}

std::vector<float> run_exact(const WorldLayer& layer, const WorldRows& rows,
                             const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                             DType x_type, DType factor_type) {
  const WorldShape& shape = layer.shape;
  const DeviceLayer weights(layer);
  const AdapterPages pages(shape, adapters, mixes, {.dtype = factor_type});
  DevicePlan plan(
      rows.ids, rows.labels, static_cast<int>(mixes.size()),
      {rows.tokens, shape.experts_per_token, shape.experts, kernels::cuda::exact_tile_places});
  const DeviceArray<std::uint8_t> x(to_bytes(rows.x, x_type));
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
  std::unique_ptr<lora::StepTable> table;
  if (!rows.labels.empty()) {
    table = pages.table(rows.labels);
    params.deltas = {.labels = table->labels(),
                     .term_begin = table->term_begin(),
                     .terms = table->terms(),
                     .layer = adapted_layer,
                     .factor_type = factor_type,
                     .max_terms = pages.max_terms,
                     .max_rank = pages.max_rank};
  }
  const DeviceArray<float> scratch(kernels::cuda::exact_scratch_bytes(params) / sizeof(float));
  params.scratch = scratch.data();
  plan.build();
  kernels::cuda::run_exact_experts(params, default_stream());
  EXPECT_TRUE(launches().ok());
  const cudaError_t status = cudaDeviceSynchronize();
  EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
  return out.read();
}

}  // namespace motley::gpu_tests
