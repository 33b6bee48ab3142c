#pragma once

#include "moe/backend.h"

namespace motley::moe {

// Common to all backends of the CPU: they read weights in place, and factors in rows.
class CpuBackend : public Backend {
 public:
  tensor::DeviceKind device() const final { return tensor::DeviceKind::cpu; }
  Support supports(const Problem& problem) const override;
  lora::Layout factor_layout() const final { return lora::Layout::rows; }
  Result<std::unique_ptr<PreparedExperts>> prepare(const ExpertWeights& weights,
                                                   quant::Uploader* uploader) const final;
  Result<std::unique_ptr<Workspace>> make_workspace(const Problem& problem, std::int64_t max_tokens,
                                                    const DeltaLimits& limits,
                                                    tensor::Device& device) const final;
};

}  // namespace motley::moe
