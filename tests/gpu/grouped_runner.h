#pragma once

#include <memory>
#include <vector>

#include "gpu/exact_runner.h"
#include "kernels/cuda/expert_grouped.h"

namespace motley::gpu_tests {

// A layer in the images of the grouped kernels.
class DeviceImages {
 public:
  explicit DeviceImages(const WorldLayer& layer);

  kernels::cuda::ExpertShape shape;
  kernels::cuda::ExpertImages images;
  const DeviceLayer& layer() const { return layer_; }

 private:
  DeviceLayer layer_;
  DeviceArray<std::uint8_t> gate_up_, down_;
};

// A batch's adapters in packed images, each in an allocation of its own with poison behind it.
class PackedAdapters {
 public:
  PackedAdapters(const WorldShape& shape, const std::vector<WorldAdapter>& adapters,
                 const WorldMixes& mixes);

  kernels::cuda::GroupedDeltas deltas;  // without labels

 private:
  struct Table {
    const kernels::cuda::PackedDelta* entries = nullptr;
    std::vector<int> ranks;  // [experts]
  };
  Table put(const WorldShape& shape, const std::vector<WorldFactor>& first,
            const std::vector<WorldFactor>& second, bool gate_up);

  std::vector<DeviceArray<std::uint8_t>> pages_;
  std::vector<std::unique_ptr<DeviceArray<kernels::cuda::PackedDelta>>> tables_;
  DeviceArray<std::int32_t> term_begin_;
  DeviceArray<kernels::cuda::GroupedTerm> terms_;
};

// One batch's buffers for the grouped kernels; run() poisons output and scratch first.
class GroupedBatch {
 public:
  GroupedBatch(const WorldLayer& layer, const DeviceImages& images, const WorldRows& rows,
               const PackedAdapters* adapters, int label_count, DType out_type = DType::f32);

  std::vector<float> run(const kernels::cuda::GroupedTiles& tiles);
  std::vector<float> run() { return run(kernels::cuda::choose_grouped_tiles(params)); }

  kernels::cuda::GroupedExperts params;

 private:
  int label_count_;
  DeviceArray<std::uint8_t> x_;
  DeviceArray<std::int32_t> ids_, labels_, by_label_;
  DeviceArray<float> weights_;
  DeviceArray<std::uint8_t> out_, scratch_;
};

}  // namespace motley::gpu_tests
