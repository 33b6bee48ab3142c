#pragma once

#include "kernels/cuda/experts/exact.h"
#include "moe/backend.h"
#include "moe/cuda/device_weights.h"

namespace motley::moe {

// Common to all backends of a GPU.
class CudaBackend : public Backend {
 public:
  tensor::DeviceKind device() const final { return tensor::DeviceKind::cuda; }
  std::size_t scratch_bytes(const Problem&, std::int64_t) const final { return 0; }

  static kernels::cuda::ExpertActivation activation_of(const ExpertWeights& weights);

 protected:
  // What all of them require.
  static Support supports_on_gpu(const Problem& problem);
  // Refuses more labels than the plan can sort.
  static Result<void> check_limits(const DeltaLimits& limits);
};

}  // namespace motley::moe
