#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "gpu/device_memory.h"
#include "kernels/adapter_tables.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/experts/grouped.h"

// Layers of experts in sizes of released models, at random straight in the packed layouts: for
// tests of whether launches end and of bits, which need no definition of the numbers.
namespace motley::gpu_tests {

// All experts have the same numbers.
class RandomExperts {
 public:
  RandomExperts(kernels::cuda::ExpertFormat format, const kernels::cuda::ExpertShape& shape);

  kernels::cuda::ExpertShape shape;
  kernels::cuda::PackedExperts packed;
  kernels::cuda::GroupedInputs inputs() const { return inputs_; }

 private:
  DeviceArray<std::uint8_t> gate_up_, down_;
  DeviceArray<float> gate_up_rows_, down_rows_;
  DeviceArray<kernels::cuda::ExpertInputs> each_;
  kernels::cuda::GroupedInputs inputs_;
};

// `count` adapters of one rank, each the same at all experts.
class RandomAdapters {
 public:
  RandomAdapters(const kernels::cuda::ExpertShape& shape, int count, int rank, DType factor_type);

  int count = 0;
  // But for the labels.
  kernels::cuda::GroupedDeltas deltas;

 private:
  DeviceArray<std::uint8_t> factors_;
  DeviceArray<kernels::FactorEntry> entries_;
  DeviceArray<kernels::AdapterTerm> terms_;
  DeviceArray<std::int32_t> term_begin_;
};

// Tokens that route uniformly, `layers` times, in memory for `max_tokens`. Labels go through the
// adapters and -1.
class RandomBatch {
 public:
  RandomBatch(const RandomExperts& experts, int experts_per_token, std::int64_t max_tokens,
              int layers);

  void set(std::int64_t tokens, const RandomAdapters* adapters);
  const kernels::cuda::GroupedExperts& params() const { return params_; }
  // All layers one after the other without a wait between them, as in a step; the last one's rows.
  std::vector<std::uint16_t> run(const kernels::cuda::GroupedTiles& tiles);

 private:
  int layers_;
  int labels_ = 0;
  kernels::cuda::GroupedExperts params_;
  DeviceArray<std::uint16_t> x_, out_;
  DeviceArray<std::int32_t> ids_, label_of_, by_label_;
  DeviceArray<float> weights_;
  DeviceArray<std::uint8_t> scratch_;
};

}  // namespace motley::gpu_tests
