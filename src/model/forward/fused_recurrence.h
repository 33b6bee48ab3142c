#pragma once

#include "kernels/elementary.h"
#include "model/forward/fused_ops.h"

// What a gated delta net's recurrence reads, by one launch: what fusions.cc's pattern asks for, and
// the launch.
namespace motley::model {

// [convolve, norm of queries, norm of keys, delta_gates]
bool fits_delta_inputs(Ops ops, const Frame& frame);
void run_delta_inputs(Ops ops, const Frame& frame, const kernels::Ahead& ahead);

}  // namespace motley::model
