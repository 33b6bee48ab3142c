#include "moe/cuda/device_weights.h"

#include <array>
#include <cstddef>
#include <vector>

#include "quant/formats.h"

namespace motley::moe {
namespace {

using kernels::WeightView;
using quant::Weight;

// Every matrix is aligned for vector loads.
constexpr std::size_t unit = 256;
std::size_t rounded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

std::size_t scale_bytes(const Weight& weight) { return weight.scale_count() * sizeof(float); }

// Whether kernels decode it. What they don't is decoded here, to float32.
bool is_decoded_there(const quant::Format& format) {
  if (format.scales == quant::Format::Scales::none || format.element == DType::f8_e4m3) return true;
  return quant::is_symmetric_int4(format);
}

std::size_t placed_bytes(const Weight& weight) {
  if (is_decoded_there(weight.format()))
    return rounded(weight.data_bytes()) + rounded(scale_bytes(weight));
  return rounded(static_cast<std::size_t>(weight.out() * weight.in()) * sizeof(float));
}

std::array<const std::vector<Weight>*, 3> projections(const ExpertWeights& weights) {
  return {&weights.gate, &weights.up, &weights.down};
}

Result<const float*> place(const std::vector<float>& bias, tensor::Buffer& numbers,
                           quant::Uploader& to) {
  if (bias.empty()) return nullptr;
  MOTLEY_TRY(numbers, to.copy(bias.data(), bias.size() * sizeof(float)));
  return reinterpret_cast<const float*>(numbers.data());
}

}  // namespace

Result<DeviceWeights> place_weights(const ExpertWeights& weights, quant::Uploader& to) {
  std::size_t bytes = 0;
  for (const auto* const projection : projections(weights)) {
    for (const Weight& weight : *projection) bytes += placed_bytes(weight);
  }
  DeviceWeights placed;
  MOTLEY_TRY(placed.numbers, to.device().allocate(bytes));

  std::byte* at = placed.numbers.data();
  const auto put = [&](const void* from, std::size_t size) -> Result<const void*> {
    const std::byte* const here = at;
    MOTLEY_TRY_VOID(to.copy(at, from, size));
    at += rounded(size);
    return here;
  };
  std::vector<WeightView> views;
  for (const auto* const projection : projections(weights)) {
    for (const Weight& weight : *projection) {
      WeightView view = weight.view();
      if (!is_decoded_there(weight.format())) {
        std::vector<float> decoded(static_cast<std::size_t>(weight.out() * weight.in()));
        weight.decode(0, weight.out(), decoded.data());
        MOTLEY_TRY(const void* const data, put(decoded.data(), decoded.size() * sizeof(float)));
        views.push_back({.data = data, .out = weight.out(), .in = weight.in()});
        continue;
      }
      MOTLEY_TRY(view.data, put(view.data, weight.data_bytes()));
      if (view.scales != nullptr) {
        const std::vector<float> scales = quant::scales_of(weight);
        MOTLEY_TRY(view.scales, put(scales.data(), scale_bytes(weight)));
        view.scale_type = DType::f32;
        view.scale_factor = 1;
      }
      views.push_back(view);
    }
  }
  MOTLEY_TRY(placed.views, to.copy(views.data(), views.size() * sizeof(WeightView)));
  placed.gate = reinterpret_cast<const WeightView*>(placed.views.data());
  placed.up = placed.gate + weights.experts;
  placed.down = placed.up + weights.experts;
  return placed;
}

Result<DeviceBiases> place_biases(const ExpertWeights& weights, quant::Uploader& to) {
  DeviceBiases placed;
  MOTLEY_TRY(placed.gate, place(weights.gate_bias, placed.numbers[0], to));
  MOTLEY_TRY(placed.up, place(weights.up_bias, placed.numbers[1], to));
  MOTLEY_TRY(placed.down, place(weights.down_bias, placed.numbers[2], to));
  return placed;
}

}  // namespace motley::moe
