#include "gpu/grouped_runner.h"

#include "gpu/device_kernels.h"
#include "gpu/launch_watch.h"
#include "kernels/cuda/tuned_thresholds.h"

namespace motley::gpu_tests {

using kernels::WeightKind;
using namespace kernels::cuda;  // NOLINT(google-build-using-namespace): the test's subject

std::vector<std::uint8_t> bytes_of_bf16(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(values.size() * 2);
  for (const float value : values) {
    const std::uint16_t bits = bf16_bits(value);
    bytes.push_back(static_cast<std::uint8_t>(bits));
    bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  return bytes;
}

namespace {
ExpertFormat format_of(const WorldShape& shape) {
  const bool fine = shape.scale_columns == 32 || shape.scale_columns == 64;
  switch (shape.kind) {
    case WeightKind::bf16:
      return ExpertFormat::bf16;
    case WeightKind::i8:
      return fine || shape.zero_points ? ExpertFormat::int8_any_fine : ExpertFormat::int8;
    case WeightKind::f8_e4m3:
      if (!fine) return ExpertFormat::fp8;
      return shape.e8m0_scales ? ExpertFormat::mxfp8 : ExpertFormat::fp8_fine;
    default:
      return shape.group == 128 ? ExpertFormat::int4 : ExpertFormat::int4_fine;
  }
}
}  // namespace

PackedLayer::PackedLayer(const WorldLayer& layer)
    : layer_(layer),
      rounding_(layer.shape.inputs),
      inputs_(std::vector<ExpertInputs>(std::size_t(layer.shape.experts),
                                        {.rounding = layer.shape.inputs})) {
  const WorldShape& s = layer.shape;
  shape = {.experts = s.experts, .hidden = s.hidden, .intermediate = s.intermediate};
  experts.format = format_of(s);
  experts.scales_of_rows =
      s.scale_columns == 0 || std::max(s.hidden, s.intermediate) <= s.scale_columns;
  experts.scales_of_tiles = shares_scales_in_tiles(s.intermediate, s.scale_rows, false) &&
                            shares_scales_in_tiles(s.hidden, s.scale_rows, true);
  const GroupedInputs both[2] = {inputs(), inputs()};
  experts.format = format_for_inputs(experts, both, shape);
  const auto bytes = [&](int rows, int columns) {
    return packed_expert_bytes(experts.format, s.experts, rows, columns);
  };
  gate_up_ = DeviceArray<std::uint8_t>(bytes(2 * s.intermediate, s.hidden));
  down_ = DeviceArray<std::uint8_t>(bytes(s.hidden, s.intermediate));
  experts.gate_up = gate_up_.data();
  experts.down = down_.data();
  EXPECT_TRUE(grouped_supports(shape, s.experts_per_token));
  EXPECT_TRUE(pack_experts({.shape = shape,
                            .format = experts.format,
                            .gate = layer_.gate(),
                            .up = layer_.up(),
                            .down = layer_.down(),
                            .packed_gate_up = gate_up_.data(),
                            .packed_down = down_.data()},
                           {})
                  .ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

GroupedInputs PackedLayer::inputs() const {
  if (rounding_.scales == kernels::InputRounding::Scales::none) return {};
  return {.each = inputs_.data(), .rounding = rounding_};
}

GroupedBatch::GroupedBatch(const WorldLayer& layer, const PackedLayer& packed_layer,
                           const WorldRows& rows, const AdapterPages* adapters, DType out_type)
    : x_(bytes_of_bf16(rows.x)),
      ids_(rows.ids),
      by_label_(rows.labels.size()),
      weights_(rows.weights),
      out_(rows.x.size() * (out_type == DType::f32 ? 4 : 2)) {
  const WorldShape& shape = layer.shape;
  params.shape = packed_layer.shape;
  params.experts_per_token = shape.experts_per_token;
  params.tokens = rows.tokens;
  params.max_tokens = rows.tokens + 3;
  params.weights = packed_layer.experts;
  for (GroupedInputs& inputs : params.inputs) inputs = packed_layer.inputs();
  params.gate_bias = packed_layer.layer().gate_bias();
  params.up_bias = packed_layer.layer().up_bias();
  params.down_bias = packed_layer.layer().down_bias();
  params.activation = shape.activation;
  params.x = x_.data();
  params.ids = ids_.data();
  params.routing_weights = weights_.data();
  params.out = out_.data();
  params.out_type = out_type;
  if (adapters != nullptr && !rows.labels.empty()) {
    label_count_ = adapters->label_count();
    table_ = adapters->table(rows.labels);
    params.deltas = {.labels = table_->labels(),
                     .tokens_by_label = by_label_.data(),
                     .term_begin = table_->term_begin(),
                     .terms = table_->terms(),
                     .layer = adapted_layer,
                     .factor_type = adapters->dtype(),
                     .max_terms = adapters->max_terms,
                     .max_gate_up_rank = adapters->max_columns[0],
                     .max_down_rank = adapters->max_columns[1]};
  }
  scratch_ = DeviceArray<std::uint8_t>(grouped_scratch_bytes(params));
  params.scratch = scratch_.data();
}

std::vector<float> GroupedBatch::run(const GroupedTiles& tiles) {
  scratch_.poison();
  out_.poison();
  prepare_grouped_scratch(params, default_stream());
  if (params.deltas.labels != nullptr) {
    sort_tokens_by_label(params.deltas.labels, params.tokens, label_count_, by_label_.data(),
                         default_stream());
  }
  const LaunchWatch watch(name_of(tiles));
  run_grouped_experts(params, tiles, default_stream());
  const auto ran = launches();
  EXPECT_TRUE(ran.ok()) << ran.error().message();
  const cudaError_t status = cudaDeviceSynchronize();
  EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
  const auto bytes = out_.read();
  std::vector<float> values;
  if (params.out_type == DType::f32) {
    values.resize(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < bytes.size(); i += 2)
    values.push_back(bf16_value(static_cast<std::uint16_t>(bytes[i] | bytes[i + 1] << 8)));
  return values;
}

}  // namespace motley::gpu_tests
