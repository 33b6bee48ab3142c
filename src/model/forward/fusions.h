#pragma once

#include <span>

#include "model/forward/frame.h"
#include "ops/list/match.h"

namespace motley::model {

// The ops that may run together; the table is in fusions.cc.
std::span<const ops::Pattern> fusion_patterns();

// Whether the ops use each other's results as the pattern's launch does, and whether the launch
// supports the frame's step.
bool fusion_fits(int pattern, std::span<const ops::LiveOp> ops, const Frame& frame);

// Runs a pattern that fits. `ahead`: memory that a later launch reads.
void run_fusion(int pattern, std::span<const ops::LiveOp> ops, const Frame& frame,
                const kernels::Ahead& ahead);

}  // namespace motley::model
