#pragma once

#include <vector>

#include "gpu/device_plan.h"
#include "gpu/expert_world.h"

namespace motley::gpu_tests {

// A layer's weights on the device, as they lie in a file.
class DeviceLayer {
 public:
  explicit DeviceLayer(const WorldLayer& layer);

  const kernels::WeightView* gate() const { return gate_.data(); }
  const kernels::WeightView* up() const { return up_.data(); }
  const kernels::WeightView* down() const { return down_.data(); }
  const float* gate_bias() const { return biases_ ? gate_bias_.data() : nullptr; }
  const float* up_bias() const { return biases_ ? up_bias_.data() : nullptr; }
  const float* down_bias() const { return biases_ ? down_bias_.data() : nullptr; }

 private:
  DeviceArray<kernels::WeightView> put(const WorldShape& shape,
                                       const std::vector<WorldMatrix>& matrices);

  bool biases_;
  std::vector<DeviceArray<std::uint8_t>> bytes_;
  std::vector<DeviceArray<bf16>> scales_;
  std::vector<DeviceArray<float>> float_scales_;
  std::vector<DeviceArray<std::uint8_t>> byte_scales_, zero_points_;
  DeviceArray<kernels::WeightView> gate_, up_, down_;
  DeviceArray<float> gate_bias_, up_bias_, down_bias_;
};

// Runs the float32 kernels over poisoned scratch and output. `adapters` null: none.
std::vector<float> run_exact(const WorldLayer& layer, const WorldRows& rows,
                             const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                             DType x_type = DType::f32, DType factor_type = DType::f32);

}  // namespace motley::gpu_tests
