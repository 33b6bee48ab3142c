#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/device_memory.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/cpu/test_weights.h"

// Weights of any format in a GPU's memory, beside the same numbers in the host's.
namespace motley::gpu_tests {

// A weight on the GPU, at the odd byte that the host's has, or at one that suits every load.
struct DeviceWeight {
  kernels::cpu::TestWeight host;
  DeviceArray<std::byte> bytes;
  DeviceArray<std::byte> scales;
  DeviceArray<std::uint8_t> zero_points;
  kernels::WeightView view;
};
// Whose products round their inputs as the format says.
inline DeviceWeight on_device_rounded(kernels::cpu::Numbers& numbers, kernels::cpu::Format format,
                                      std::int64_t out, std::int64_t in, bool aligned = true) {
  DeviceWeight weight;
  format.ordered = false;
  weight.host = kernels::cpu::make_weight(numbers, format, out, in);
  const std::span<const std::byte> bytes(weight.host.bytes);
  weight.bytes = DeviceArray<std::byte>(aligned ? bytes.subspan(1) : bytes);
  weight.view = weight.host.view;
  weight.view.data = weight.bytes.data() + (aligned ? 0 : 1);
  if (weight.view.scales != nullptr) {
    weight.scales = DeviceArray<std::byte>(
        weight.view.scales == weight.host.scales.data()
            ? std::as_bytes(std::span<const float>(weight.host.scales))
            : std::span<const std::byte>(weight.host.scale_bytes).subspan(1));
    weight.view.scales = weight.scales.data();
  }
  if (weight.view.zero_points != nullptr) {
    weight.zero_points = DeviceArray<std::uint8_t>(weight.host.zero_points);
    weight.view.zero_points = weight.zero_points.data();
  }
  return weight;
}
// Products take inputs as they are: they are neither rounded nor in another order.
inline DeviceWeight on_device(kernels::cpu::Numbers& numbers, kernels::cpu::Format format,
                              std::int64_t out, std::int64_t in, bool aligned) {
  format.inputs = {};
  return on_device_rounded(numbers, format, out, in, aligned);
}
inline DeviceWeight on_device(kernels::cpu::Numbers& numbers, kernels::WeightKind kind,
                              std::int64_t out, std::int64_t in) {
  return on_device(numbers, {.kind = kind}, out, in, true);
}

}  // namespace motley::gpu_tests
