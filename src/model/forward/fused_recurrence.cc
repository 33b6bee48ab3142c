#include "model/forward/fused_recurrence.h"

#include "kernels/recurrence.h"
#include "ops/norm.h"

namespace motley::model {

namespace {

kernels::RmsNorm norm_of(const ops::LiveOp& live, const Frame& frame) {
  const auto& op = params<NormOp>(live);
  return ops::rms_norm_call(frame.context, frame.at(op.x), op.norm.weight.view(), op.norm.options(),
                            frame.at(op.out));
}

kernels::DeltaInputs inputs_call(Ops ops, const Frame& frame) {
  return {.convolution = convolve_call(params<ConvolveOp>(ops[0]), frame),
          .queries = norm_of(ops[1], frame),
          .keys = norm_of(ops[2], frame),
          .gates = gates_call(params<DeltaGatesOp>(ops[3]), frame)};
}

}  // namespace

bool fits_delta_inputs(Ops ops, const Frame& frame) {
  const kernels::RecurrenceTable& kernels = *frame.context.kernels->recurrence;
  return kernels.takes_delta_inputs != nullptr &&
         kernels.takes_delta_inputs(inputs_call(ops, frame));
}

void run_delta_inputs(Ops ops, const Frame& frame, const kernels::Ahead&) {
  frame.context.kernels->recurrence->delta_inputs(inputs_call(ops, frame), frame.context.stream);
}

}  // namespace motley::model
