#pragma once

#include "moe/cuda/cuda_backend.h"

namespace motley::moe {

// Plain loops in float32 on a GPU, over weights in the layout of the files: for --compute f32, and
// for sizes that no faster backend supports.
class CudaExact final : public CudaBackend {
 public:
  std::string_view name() const override { return "cuda_exact"; }
  Support supports(const Problem& problem) const override;
  lora::Layout factor_layout() const override { return lora::Layout::rows; }
  Result<std::unique_ptr<PreparedExperts>> prepare(const ExpertWeights& weights,
                                                   quant::Uploader* uploader) const override;
  Result<std::unique_ptr<Workspace>> make_workspace(const Problem& problem, std::int64_t max_tokens,
                                                    const DeltaLimits& limits,
                                                    tensor::Device& device) const override;
  std::span<const ExpertKernel> kernels() const override;
};

}  // namespace motley::moe
