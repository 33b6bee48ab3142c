#pragma once

#include <memory>
#include <vector>

#include "gpu/exact_runner.h"
#include "gpu/expert_pages.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/experts/grouped.h"

namespace motley::gpu_tests {

std::vector<std::uint8_t> bytes_of_bf16(const std::vector<float>& values);

// A layer in the packed layout that the grouped GEMM kernels read.
class PackedLayer {
 public:
  explicit PackedLayer(const WorldLayer& layer);

  kernels::cuda::ExpertShape shape;
  kernels::cuda::PackedExperts experts;
  const DeviceLayer& layer() const { return layer_; }
  kernels::cuda::GroupedInputs inputs() const;

 private:
  DeviceLayer layer_;
  DeviceArray<std::uint8_t> gate_up_, down_;
  kernels::InputRounding rounding_;
  DeviceArray<kernels::cuda::ExpertInputs> inputs_;
};

// One batch's buffers for the grouped kernels; run() poisons output and scratch first.
class GroupedBatch {
 public:
  GroupedBatch(const WorldLayer& layer, const PackedLayer& packed_layer, const WorldRows& rows,
               const AdapterPages* adapters, DType out_type = DType::f32);

  std::vector<float> run(const kernels::cuda::GroupedTiles& tiles);
  std::vector<float> run() { return run(kernels::cuda::choose_grouped_tiles(params)); }

  kernels::cuda::GroupedExperts params;

 private:
  int label_count_ = 0;
  std::unique_ptr<lora::StepTable> table_;
  DeviceArray<std::uint8_t> x_;
  DeviceArray<std::int32_t> ids_, by_label_;
  DeviceArray<float> weights_;
  DeviceArray<std::uint8_t> out_, scratch_;
};

}  // namespace motley::gpu_tests
