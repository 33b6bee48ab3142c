#pragma once

#include "base/result.h"
#include "kernels/weight_view.h"
#include "moe/experts.h"
#include "quant/upload.h"
#include "tensor/buffer.h"

namespace motley::moe {

// A layer's experts in device memory, in the layout of their files. Kernels read them, or pack
// them.
struct DeviceWeights {
  tensor::Buffer numbers;  // data and scales of all matrices
  tensor::Buffer views;
  // [experts] each, in device memory.
  const kernels::WeightView* gate = nullptr;
  const kernels::WeightView* up = nullptr;
  const kernels::WeightView* down = nullptr;
};

// Valid when the uploader has finished.
Result<DeviceWeights> place_weights(const ExpertWeights& weights, quant::Uploader& to);

// Unchanged biases; null if the experts have none.
struct DeviceBiases {
  tensor::Buffer numbers[3];
  const float* gate = nullptr;
  const float* up = nullptr;
  const float* down = nullptr;
};
Result<DeviceBiases> place_biases(const ExpertWeights& weights, quant::Uploader& to);

}  // namespace motley::moe
