#pragma once

#include <cstddef>

#include "kernels/recurrence.h"
#include "model/forward/frame.h"
#include "model/forward/op_params.h"
#include "ops/list/match.h"

namespace motley::model {

// Runs an op by itself, which defines its meaning on every device.
void run_op(const ops::LiveOp& live, const Frame& frame);

// Parts of ops that fused launches use:
const ops::KvPages& pages_of(std::int32_t layer, std::size_t cache, const Frame& frame);
ops::TakenInputs taken_inputs(const ArrangeInputsOp& op, const Frame& frame);
lora::AdaptedLinear adapted(const AdaptOp& op, const Frame& frame);
moe::Routing routing(const RouteOp& op, const Frame& frame);
kernels::AddScaled add_scaled_call(const AddScaledOp& op, const Frame& frame);
kernels::Convolve convolve_call(const ConvolveOp& op, const Frame& frame);
kernels::DeltaGates gates_call(const DeltaGatesOp& op, const Frame& frame);
// The call of the layer's experts; `next` as in ExpertCall. The call refers to `deltas`.
moe::ExpertCall expert_call(const ExpertsOp& op, const kernels::AfterExperts* next,
                            const lora::ExpertDeltas& deltas, const Frame& frame);
lora::ExpertDeltas deltas_of(const ExpertsOp& op, const Frame& frame);

// The scratch of an op in the largest step.
std::size_t scratch_bytes(const ops::Op& op, const ops::RowBounds& bounds);

}  // namespace motley::model
