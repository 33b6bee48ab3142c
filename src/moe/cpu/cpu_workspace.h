#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/check.h"
#include "moe/backend.h"
#include "plan/plan.h"

namespace motley::moe {

// The plan of the current layer. Scratch comes from the step's arena.
class CpuWorkspace final : public Workspace {
 public:
  CpuWorkspace(const Problem& problem, std::int64_t max_tokens)
      : no_labels_(static_cast<std::size_t>(max_tokens), plan::no_label),
        plan_(max_tokens, problem.top_k, problem.experts) {}

  void begin_step(std::int64_t tokens, const std::int32_t* labels, StreamHandle) override {
    MOTLEY_CHECK(tokens <= static_cast<std::int64_t>(no_labels_.size()),
                 "a step that the workspace was made for");
    labels_ = {labels == nullptr ? no_labels_.data() : labels, static_cast<std::size_t>(tokens)};
  }

  // Builds the plan from the call's ids and the step's labels; valid until the next one.
  static const plan::Plan& build_plan(const ExpertCall& call) {
    auto& workspace = own<CpuWorkspace>(call.workspace);
    plan::Plan& plan = workspace.plan_;
    MOTLEY_CHECK(plan.experts() == call.experts.weights().experts &&
                     plan.experts_per_token() == call.ids.dim(1),
                 "a workspace for the layer's experts");
    plan.build({call.ids.data<std::int32_t>(), static_cast<std::size_t>(call.ids.elements())},
               workspace.labels_);
    return plan;
  }

 private:
  std::vector<std::int32_t> no_labels_;
  std::span<const std::int32_t> labels_;
  plan::Plan plan_;
};

}  // namespace motley::moe
