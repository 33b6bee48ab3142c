#include "ops/recurrence.h"

#include "ops/check.h"

namespace motley::ops {
namespace {

const kernels::RecurrenceTable& kernels_of(const Context& context) {
  check_context(context);
  MOTLEY_CHECK(has_recurrence(context), "a device with kernels for states");
  return *context.kernels->recurrence;
}

kernels::StateSteps steps_of(const PagedRows& rows, const StateRows& states, std::int64_t count) {
  return {.rows = {.count = rows.sequences,
                   .seq_begin = rows.seq_begin,
                   .positions = rows.positions,
                   .rows = count,
                   .max_rows = rows.max_rows,
                   .least_rows = rows.least_rows},
          .slots = states.slots,
          .anchors = states.anchors,
          .certain = states.certain};
}

// Heads of a row side by side.
template <class Tensor>
void check_heads(const Tensor& x) {
  check_float32(x, 3);
  MOTLEY_CHECK(x.dim(1) <= 1 || x.stride(1) == x.dim(2), "heads side by side");
}

}  // namespace

bool has_recurrence(const Context& context) { return context.kernels->recurrence != nullptr; }

kernels::KeptTypes kept_types(const Context& context, const kernels::RecurrenceShape& shape) {
  MOTLEY_CHECK(has_recurrence(context), "a device with kernels for states");
  return context.kernels->recurrence->kept_types(shape, context.exact);
}

void recur(const Context& context, const PagedRows& rows, const StateRows& states,
           const LayerStates& layer, const Recurrence& call) {
  for (const tensor::ConstTensor* const each : {&call.q, &call.k, &call.v}) check_heads(*each);
  check_heads(call.out);
  MOTLEY_CHECK(call.q.shape() == call.k.shape() && call.v.shape() == call.out.shape(),
               "queries like keys, results like values");
  const bool by_key = call.g.shape().rank() == 3;
  const bool has_beta = call.beta.bytes() != nullptr;
  kernels_of(context).recur({.key_heads = call.k.dim(1),
                             .value_heads = call.v.dim(1),
                             .key_width = call.k.dim(2),
                             .value_width = call.v.dim(2),
                             .decay_by_key = by_key,
                             .q = call.q.data<float>(),
                             .q_stride = call.q.stride(0),
                             .k = call.k.data<float>(),
                             .k_stride = call.k.stride(0),
                             .v = call.v.data<float>(),
                             .v_stride = call.v.stride(0),
                             .g = call.g.data<float>(),
                             .g_stride = call.g.stride(0),
                             .beta = has_beta ? call.beta.data<float>() : nullptr,
                             .beta_stride = has_beta ? call.beta.stride(0) : 0,
                             .out = call.out.data<float>(),
                             .out_stride = call.out.stride(0),
                             .steps = steps_of(rows, states, call.out.dim(0)),
                             .memory = layer.recurrence,
                             .exact = context.exact},
                            context.stream);
}

kernels::Convolve convolve_call(const Context& context, const PagedRows& rows,
                                const StateRows& states, const LayerStates& layer,
                                const Convolution& call) {
  check_context(context);
  check_float32(call.x, 2);
  check_float32(call.out, 2);
  check_float32(call.weight, 2);
  MOTLEY_CHECK(call.x.shape() == call.out.shape() && call.weight.dim(0) == call.x.dim(1),
               "a filter for each channel");
  return {.channels = call.x.dim(1),
          .taps = call.weight.dim(1),
          .weight = call.weight.data<float>(),
          .bias = call.bias.bytes() == nullptr ? nullptr : call.bias.data<float>(),
          .silu = call.silu,
          .x = call.x.data<float>(),
          .x_stride = call.x.stride(0),
          .out = call.out.data<float>(),
          .out_stride = call.out.stride(0),
          .steps = steps_of(rows, states, call.out.dim(0)),
          .memory = layer.convolution};
}

void convolve(const Context& context, const PagedRows& rows, const StateRows& states,
              const LayerStates& layer, const Convolution& call) {
  kernels_of(context).convolve(convolve_call(context, rows, states, layer, call), context.stream);
}

kernels::DeltaGates gates_call(const Context& context, const Gates& call) {
  check_context(context);
  check_float32(call.a, 2);
  check_float32(call.b, 2);
  check_float32(call.g, 2);
  check_float32(call.beta, 2);
  MOTLEY_CHECK(call.a.shape() == call.b.shape() && call.a.shape() == call.g.shape() &&
                   call.a.shape() == call.beta.shape() && call.decay.dim(0) == call.a.dim(1) &&
                   call.bias.dim(0) == call.a.dim(1),
               "a number for each head");
  return {.rows = call.a.dim(0),
          .heads = call.a.dim(1),
          .decay = call.decay.data<float>(),
          .bias = call.bias.data<float>(),
          .a = call.a.data<float>(),
          .a_stride = call.a.stride(0),
          .b = call.b.data<float>(),
          .b_stride = call.b.stride(0),
          .g = call.g.data<float>(),
          .g_stride = call.g.stride(0),
          .beta = call.beta.data<float>(),
          .beta_stride = call.beta.stride(0)};
}

void delta_gates(const Context& context, const Gates& call) {
  kernels_of(context).gates(gates_call(context, call), context.stream);
}

}  // namespace motley::ops
