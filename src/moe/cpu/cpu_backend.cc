#include "moe/cpu/cpu_backend.h"

#include "base/cat.h"
#include "moe/cpu/cpu_workspace.h"
#include "moe/formats.h"

namespace motley::moe {

Support CpuBackend::supports(const Problem& problem) const {
  if (problem.device != tensor::DeviceKind::cpu) return Support::no("it runs on the CPU only");
  for (const quant::Format* format : {&problem.gate_up, &problem.down}) {
    if (!quant::is_known(*format))
      return Support::no(cat("it has no loops for weights in ", to_string(*format)));
  }
  if (!is_known_activation(problem.activation))
    return Support::no("it does not know the activation");
  return Support::yes();
}

namespace {

// Read in place.
class CpuExperts final : public PreparedExperts {
 public:
  using PreparedExperts::PreparedExperts;
  std::optional<float> rank_row_unit() const override { return 1.0F; }
};

}  // namespace

Result<std::unique_ptr<PreparedExperts>> CpuBackend::prepare(const ExpertWeights& weights,
                                                             quant::Uploader*) const {
  return std::unique_ptr<PreparedExperts>(std::make_unique<CpuExperts>(weights));
}

Result<std::unique_ptr<Workspace>> CpuBackend::make_workspace(const Problem& problem,
                                                              std::int64_t max_tokens,
                                                              const DeltaLimits&,
                                                              tensor::Device&) const {
  return std::unique_ptr<Workspace>(std::make_unique<CpuWorkspace>(problem, max_tokens));
}

}  // namespace motley::moe
