#pragma once

#include "kernels/cuda/experts/grouped.h"
#include "moe/cuda/cuda_backend.h"

namespace motley::moe {

// Grouped GEMMs on tensor cores with float32 sums, adapters inside the products. The GPU packs the
// weights at load.
class CudaGrouped final : public CudaBackend {
 public:
  // native: packs weights in their own format. decoded: decodes any format to bf16 at load,
  // which takes the memory of bf16.
  enum class Weights : std::uint8_t { native, decoded };
  explicit CudaGrouped(Weights weights) : weights_(weights) {}

  std::string_view name() const override {
    return weights_ == Weights::native ? "cuda_grouped" : "cuda_grouped_decoded";
  }
  Support supports(const Problem& problem) const override;
  lora::Layout factor_layout() const override { return lora::Layout::packed; }
  Result<std::unique_ptr<PreparedExperts>> prepare(const ExpertWeights& weights,
                                                   quant::Uploader* uploader) const override;
  Result<std::unique_ptr<Workspace>> make_workspace(const Problem& problem, std::int64_t max_tokens,
                                                    const DeltaLimits& limits,
                                                    tensor::Device& device) const override;
  // One for each tiling of the layer.
  std::span<const ExpertKernel> kernels() const override;
  const ExpertKernel& choose(const ExpertCall& call) const override;

 private:
  Weights weights_;
};

}  // namespace motley::moe
