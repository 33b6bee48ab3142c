#include "moe/cuda/cuda_backend.h"

#include "base/cat.h"
#include "kernels/cuda/experts/plan.h"
#include "moe/formats.h"

namespace motley::moe {

using kernels::cuda::ExpertActivation;

Support CudaBackend::supports_on_gpu(const Problem& problem) {
  if (problem.device != tensor::DeviceKind::cuda) return Support::no("it runs on a GPU only");
  if (!is_known_activation(problem.activation))
    return Support::no("it does not know the activation");
  if (problem.experts > kernels::cuda::max_experts) {
    return Support::no(cat("it sorts tokens by at most ", kernels::cuda::max_experts, " experts"));
  }
  return Support::yes();
}

Result<void> CudaBackend::check_limits(const DeltaLimits& limits) {
  if (limits.labels <= kernels::cuda::max_labels) return {};
  return Error(ErrorCode::invalid_argument,
               cat("a step with ", limits.labels, " mixes of adapters, where ",
                   kernels::cuda::max_labels, " can be"),
               "experts", "allow fewer sequences at once");
}

ExpertActivation CudaBackend::activation_of(const ExpertWeights& weights) {
  return weights.activation == ActivationKind::silu_mul ? ExpertActivation::silu_mul
                                                        : ExpertActivation::clamped_swiglu;
}

}  // namespace motley::moe
