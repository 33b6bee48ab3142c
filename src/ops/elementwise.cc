#include "ops/elementwise.h"

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {

void add(const Context& context, const tensor::ConstTensor& a, const tensor::ConstTensor& b,
         const tensor::Tensor& out) {
  check_context(context);
  check_activation(a, 2);
  check_activation(b, 2);
  check_activation(out, 2);
  MOTLEY_CHECK(a.shape() == out.shape() && b.shape() == out.shape(), "tensors of one shape");
  context.kernels->add({.rows = out.dim(0),
                        .width = out.dim(1),
                        .a = a.bytes(),
                        .a_type = a.dtype(),
                        .a_stride = a.stride(0),
                        .b = b.bytes(),
                        .b_type = b.dtype(),
                        .b_stride = b.stride(0),
                        .out = out.bytes(),
                        .out_type = out.dtype(),
                        .out_stride = out.stride(0)},
                       context.stream);
}

kernels::AddScaled add_scaled_call(const Context& context, const tensor::ConstTensor& x,
                                   const tensor::ConstTensor& scale,
                                   const AddScaledOptions& options, const tensor::Tensor& y) {
  check_context(context);
  check_activation(x, 2);
  check_float32(y, 2);
  check_float32(scale, scale.shape().rank());
  MOTLEY_CHECK(x.shape() == y.shape(), "tensors of one shape");
  MOTLEY_CHECK(scale.dim(0) == y.dim(0) && scale.elements() == y.dim(0), "one scale a row");
  return {.rows = y.dim(0),
          .width = y.dim(1),
          .x = x.bytes(),
          .x_type = x.dtype(),
          .x_stride = x.stride(0),
          .scale = scale.data<float>(),
          .scale_stride = scale.stride(0),
          .sigmoid = options.sigmoid,
          .y = y.data<float>(),
          .y_stride = y.stride(0)};
}

void add_scaled(const Context& context, const tensor::ConstTensor& x,
                const tensor::ConstTensor& scale, const AddScaledOptions& options,
                const tensor::Tensor& y) {
  context.kernels->add_scaled(add_scaled_call(context, x, scale, options, y), context.stream);
}

void round_to(const Context& context, const tensor::ConstTensor& x, const RoundOptions& options,
              const tensor::Tensor& out) {
  check_context(context);
  check_activation(x, 2);
  check_activation(out, 2);
  MOTLEY_CHECK(x.shape() == out.shape(), "tensors of one shape");
  context.kernels->round_to({.rows = out.dim(0),
                             .width = out.dim(1),
                             .x = x.bytes(),
                             .x_type = x.dtype(),
                             .x_stride = x.stride(0),
                             .factor = options.factor,
                             .bias = options.bias,
                             .limit = options.limit,
                             .out = out.bytes(),
                             .out_type = out.dtype(),
                             .out_stride = out.stride(0)},
                            context.stream);
}

kernels::ArrangeInputs arrange_inputs_call(const Context& context, const tensor::ConstTensor& x,
                                           const TakenInputs& taken, const tensor::Tensor& out) {
  check_context(context);
  check_activation(x, 2);
  MOTLEY_CHECK(x.dim(0) == out.dim(0) && x.dtype() == out.dtype(), "rows of one type");
  MOTLEY_CHECK(x.dim(1) == out.dim(1) || taken.order != nullptr, "rows of one width");
  return {.rows = out.dim(0),
          .width = out.dim(1),
          .x = x.bytes(),
          .x_type = x.dtype(),
          .x_stride = x.stride(0),
          .order = taken.order,
          .rounding = taken.rounding,
          .maxima = taken.maxima,
          .out = out.bytes(),
          .out_stride = out.stride(0)};
}

void arrange_inputs(const Context& context, const tensor::ConstTensor& x, const TakenInputs& taken,
                    const tensor::Tensor& out) {
  context.kernels->arrange_inputs(arrange_inputs_call(context, x, taken, out), context.stream);
}

}  // namespace motley::ops
