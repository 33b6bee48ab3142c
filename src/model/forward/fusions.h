#pragma once

#include <span>

#include "model/forward/frame.h"
#include "ops/list/match.h"

namespace motley::model {

// Which ops run together, and as what: the table is in fusions.cc.
std::span<const ops::Pattern> fusion_patterns();

// Whether the ops take each other's results as the pattern's launch does, and whether that serves
// the frame's step.
bool fusion_fits(int pattern, std::span<const ops::LiveOp> ops, const Frame& frame);

// The launch of a pattern that fits. `ahead`: what a later launch reads.
void run_fusion(int pattern, std::span<const ops::LiveOp> ops, const Frame& frame,
                const kernels::Ahead& ahead);

}  // namespace motley::model
