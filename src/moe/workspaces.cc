#include "moe/workspaces.h"

#include "base/check.h"

namespace motley::moe {

Result<void> Workspaces::add(const Backend& backend, const Problem& problem,
                             std::int64_t max_tokens, const DeltaLimits& limits,
                             tensor::Device& device) {
  if (all_.contains(&backend)) return {};
  MOTLEY_TRY(all_[&backend], backend.make_workspace(problem, max_tokens, limits, device));
  return {};
}

void Workspaces::begin_step(std::int64_t tokens, const std::int32_t* labels, StreamHandle stream) {
  for (const auto& [backend, workspace] : all_) workspace->begin_step(tokens, labels, stream);
}

Workspace& Workspaces::of(const Backend& backend) const {
  const auto at = all_.find(&backend);
  MOTLEY_CHECK(at != all_.end(), "a workspace for the layer's backend");
  return *at->second;
}

}  // namespace motley::moe
