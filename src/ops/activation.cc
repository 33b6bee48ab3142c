#include "ops/activation.h"

#include "ops/check.h"

namespace motley::ops {

kernels::ActivateAndMultiply activation_call(const Context& context, const ActivationSpec& spec,
                                             const tensor::ConstTensor& gate,
                                             const tensor::ConstTensor& up,
                                             const tensor::Tensor& out) {
  check_context(context);
  check_activation(gate, 2);
  check_activation(up, 2);
  check_activation(out, 2);
  MOTLEY_CHECK(gate.dtype() == up.dtype(), "gate and up of one type");
  MOTLEY_CHECK(gate.shape() == out.shape() && up.shape() == out.shape(), "tensors of one shape");
  return {.rows = out.dim(0),
          .width = out.dim(1),
          .activation = spec.kind,
          .limit = spec.limit,
          .alpha = spec.alpha,
          .gate = gate.bytes(),
          .up = up.bytes(),
          .type = gate.dtype(),
          .gate_stride = gate.stride(0),
          .up_stride = up.stride(0),
          .out = out.bytes(),
          .out_type = out.dtype(),
          .out_stride = out.stride(0)};
}

void activate_and_multiply(const Context& context, const ActivationSpec& spec,
                           const tensor::ConstTensor& gate, const tensor::ConstTensor& up,
                           const tensor::Tensor& out) {
  context.kernels->activate_and_multiply(activation_call(context, spec, gate, up, out),
                                         context.stream);
}

}  // namespace motley::ops
