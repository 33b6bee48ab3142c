#pragma once

#include "base/function_ref.h"
#include "kernels/cuda/experts/exact.h"
#include "moe/backend.h"
#include "moe/cuda/device_weights.h"

namespace motley::moe {

// Common to all backends of a GPU.
class CudaBackend : public Backend {
 public:
  tensor::DeviceKind device() const final { return tensor::DeviceKind::cuda; }
  // Beside the workspace: maxima of rows that ranks cut.
  std::size_t scratch_bytes(const Problem& problem, std::int64_t tokens) const final;

  static kernels::cuda::ExpertActivation activation_of(const ExpertWeights& weights);
  // Calls run with what kernels need for rows of h that ranks cut.
  static void with_cut_rows(const ExpertCall& call,
                            FunctionRef<void(const kernels::cuda::CutRows&)> run);

 protected:
  // What all of them require.
  static Support supports_on_gpu(const Problem& problem);
  // Refuses more labels than the plan can sort.
  static Result<void> check_limits(const DeltaLimits& limits);
};

}  // namespace motley::moe
