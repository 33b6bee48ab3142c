#include "moe/cuda/device_weights.h"

#include <array>
#include <cstddef>
#include <vector>

#include "base/dtype.h"

namespace motley::moe {
namespace {

using kernels::WeightView;
using quant::Weight;

// Every matrix is aligned for vector loads.
constexpr std::size_t unit = 256;
std::size_t rounded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

std::size_t scale_bytes(const Weight& weight) {
  return weight.scale_count() * static_cast<std::size_t>(bits(weight.format().scale_type)) / 8;
}
std::size_t order_bytes(const Weight& weight) {
  return static_cast<std::size_t>(weight.columns()) * sizeof(std::int32_t);
}

std::size_t placed_bytes(const Weight& weight) {
  std::size_t bytes = rounded(weight.data_bytes());
  if (weight.view().scales != nullptr) bytes += rounded(scale_bytes(weight));
  if (weight.view().zero_points != nullptr) bytes += rounded(weight.scale_count());
  if (weight.view().input_order != nullptr) bytes += rounded(order_bytes(weight));
  return bytes;
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
  const auto put = [&]<class T>(const T*& numbers, std::size_t size) -> Result<void> {
    if (numbers == nullptr) return {};
    MOTLEY_TRY_VOID(to.copy(at, numbers, size));
    numbers = reinterpret_cast<const T*>(at);
    at += rounded(size);
    return {};
  };
  std::vector<WeightView> views;
  for (const auto* const projection : projections(weights)) {
    for (const Weight& weight : *projection) {
      WeightView view = weight.view();
      MOTLEY_TRY_VOID(put(view.data, weight.data_bytes()));
      MOTLEY_TRY_VOID(put(view.scales, scale_bytes(weight)));
      MOTLEY_TRY_VOID(put(view.zero_points, weight.scale_count()));
      MOTLEY_TRY_VOID(put(view.input_order, order_bytes(weight)));
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
