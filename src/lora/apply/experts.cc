#include <array>

#include "base/check.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "lora/apply/grouped.h"
#include "lora/apply/kernels.h"
#include "lora/apply/step_table.h"

namespace motley::lora {

bool touches_experts(const RowMixes& mixes, std::int32_t layer) {
  if (mixes.batch == nullptr) return false;
  return mixes.table != nullptr ? mixes.table->touches_experts(layer)
                                : mixes.batch->touches_experts(layer);
}

namespace {

struct SeamInputs {
  const tensor::ConstTensor& x;
  const std::int32_t* rows = nullptr;  // of a place; null: x is in plan order
  Shrinks shrinks = Shrinks::own;
};

void add_deltas(const ExpertDeltas& deltas, const plan::Plan& plan, const SeamInputs& inputs,
                std::span<const DeltaOutput> outputs, const ops::Context& context) {
  if (plan.routed_pairs() == 0) return;
  const auto& [x, x_rows, shrinks] = inputs;
  GroupedDelta delta(*deltas.batch, x, outputs, plan.routed_pairs(), context, shrinks);
  for (const plan::Segment& segment : plan.segments()) {
    if (segment.label == plan::no_label) continue;
    delta.add(segment.label, segment.expert,
              {.begin = segment.begin,
               .count = segment.end - segment.begin,
               .x_rows = x_rows == nullptr ? nullptr : x_rows + segment.begin});
  }
}

}  // namespace

void add_gate_up(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& x,
                 const tensor::Tensor& gate, const tensor::Tensor& up,
                 const ops::Context& context) {
  const Batch& batch = *deltas.batch;
  const std::array<DeltaOutput, 2> outputs = {{
      {.site = {deltas.layer, Projection::expert_gate}, .acc = gate},
      {.site = {deltas.layer, Projection::expert_up}, .acc = up},
  }};
  if (!batch.touches(outputs[0].site) && !batch.touches(outputs[1].site)) return;
  check_rows(x, plan.tokens(), x.dim(1));
  MOTLEY_CHECK(gate.dim(0) >= plan.routed_pairs() && up.dim(0) == gate.dim(0) &&
                   up.dim(1) == gate.dim(1) && gate.stride(1) == 1 && up.stride(1) == 1,
               "a row for each pair");
  add_deltas(deltas, plan,
             {x, plan.tokens_in_order().data(),
              shrinks_of(context.shared_shrinks.experts, plan.pairs(), context)},
             outputs, context);
}

void add_down(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& h,
              const tensor::Tensor& out, const ops::Context& context) {
  const Batch& batch = *deltas.batch;
  const std::array<DeltaOutput, 1> outputs = {
      {{.site = {deltas.layer, Projection::expert_down}, .acc = out}}};
  if (!batch.touches(outputs[0].site)) return;
  MOTLEY_CHECK(h.dim(0) >= plan.routed_pairs() && out.dim(0) >= plan.routed_pairs() &&
                   h.stride(1) == 1 && out.stride(1) == 1,
               "a row for each pair");
  add_deltas(deltas, plan, {h}, outputs, context);
}

}  // namespace motley::lora
