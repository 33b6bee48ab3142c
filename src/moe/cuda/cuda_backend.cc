#include "moe/cuda/cuda_backend.h"

#include "base/cat.h"
#include "kernels/cuda/experts/plan.h"
#include "moe/formats.h"
#include "ops/over_ranks.h"
#include "tensor/arena.h"

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

std::size_t CudaBackend::scratch_bytes(const Problem& problem, std::int64_t tokens) const {
  if (problem.cut_scales == 0) return 0;
  return static_cast<std::size_t>(tokens * problem.top_k * problem.cut_scales) * sizeof(float) +
         tensor::Allocator::alignment;
}

void CudaBackend::with_cut_rows(const ExpertCall& call,
                                FunctionRef<void(const kernels::cuda::CutRows&)> run) {
  const quant::CutScales& scales = call.experts.weights().down_scales;
  if (scales.count == 0) return run({});
  tensor::Arena& scratch = *call.context.scratch;
  const std::size_t mark = scratch.mark();
  const tensor::Tensor maxima =
      scratch.allocate(DType::f32, {call.ids.elements(), scales.count}).value();
  const auto take = [&] { ops::max_over_ranks(call.context, maxima); };
  const FunctionRef<void()> over_ranks = take;
  run({.scales = scales.count,
       .first = scales.first,
       .maxima = maxima.data<float>(),
       .over_ranks = &over_ranks});
  scratch.rewind(mark);
}

ExpertActivation CudaBackend::activation_of(const ExpertWeights& weights) {
  return weights.activation == ActivationKind::silu_mul ? ExpertActivation::silu_mul
                                                        : ExpertActivation::clamped_swiglu;
}

}  // namespace motley::moe
