#pragma once

#include "kernels/cuda/experts/grouped.h"
#include "moe/cuda/cuda_backend.h"

namespace motley::moe {

// Tensor cores with float32 sums, adapters inside the products, and images of the weights that are
// made on the GPU at load.
class CudaGrouped final : public CudaBackend {
 public:
  // native: images of bf16 and int4 as they are. decoded: any format becomes bf16 at load, in as
  // much memory as that takes.
  enum class Images : std::uint8_t { native, decoded };
  explicit CudaGrouped(Images images) : images_(images) {}

  std::string_view name() const override {
    return images_ == Images::native ? "cuda_grouped" : "cuda_grouped_decoded";
  }
  Support supports(const Problem& problem) const override;
  lora::Layout factor_layout() const override { return lora::Layout::packed; }
  Result<std::unique_ptr<PreparedExperts>> prepare(const ExpertWeights& weights,
                                                   quant::Uploader* uploader) const override;
  Result<std::unique_ptr<Workspace>> make_workspace(const Problem& problem, std::int64_t max_tokens,
                                                    const DeltaLimits& limits,
                                                    tensor::Device& device) const override;
  // One for each cut of the layer.
  std::span<const ExpertKernel> kernels() const override;
  const ExpertKernel& choose(const ExpertCall& call) const override;

 private:
  Images images_;
};

}  // namespace motley::moe
