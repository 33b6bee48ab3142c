#include "ops/norm.h"

#include "ops/check.h"

namespace motley::ops {

namespace {

kernels::RmsNorm params(const tensor::ConstTensor& x, const tensor::ConstTensor& weight,
                        const RmsNormOptions& options, const tensor::Tensor& out) {
  const int rank = x.shape().rank();
  MOTLEY_CHECK(rank == 2 || rank == 3, "rows, or rows of heads");
  check_activation(x, rank);
  check_activation(out, rank);
  check_float32(weight, 1);
  MOTLEY_CHECK(out.shape() == x.shape(), "out of x's shape");
  const std::int64_t width = x.dim(rank - 1);
  MOTLEY_CHECK(weight.dim(0) == width, "a weight for each number");
  return {.size = {.rows = x.dim(0), .parts = rank == 3 ? x.dim(1) : 1, .width = width},
          .x = x.bytes(),
          .x_type = x.dtype(),
          .x_stride = x.stride(0),
          .x_part_stride = rank == 3 ? x.stride(1) : 0,
          .weight = weight.data<float>(),
          .eps = options.eps,
          .weight_in_f32 = options.weight_in_f32,
          .out = out.bytes(),
          .out_type = out.dtype(),
          .out_stride = out.stride(0),
          .out_part_stride = rank == 3 ? out.stride(1) : 0};
}

}  // namespace

void rms_norm(const Context& context, const tensor::ConstTensor& x,
              const tensor::ConstTensor& weight, const RmsNormOptions& options,
              const tensor::Tensor& out) {
  context.kernels->rms_norm(rms_norm_call(context, x, weight, options, out), context.stream);
}

kernels::RmsNorm rms_norm_call(const Context& context, const tensor::ConstTensor& x,
                               const tensor::ConstTensor& weight, const RmsNormOptions& options,
                               const tensor::Tensor& out) {
  check_context(context);
  return params(x, weight, options, out);
}

kernels::AddAndNorm add_and_norm_call(const Context& context, const Addition& add,
                                      const tensor::ConstTensor& weight,
                                      const RmsNormOptions& options, const tensor::Tensor& out) {
  const auto& [a, b, sum, b_bias] = add;
  check_context(context);
  for (const tensor::ConstTensor& each : {a, b, tensor::ConstTensor(sum)}) {
    check_float32(each, 2);
    MOTLEY_CHECK(each.shape() == out.shape(), "one shape");
  }
  return {.add = {.rows = a.dim(0),
                  .width = a.dim(1),
                  .a = a.bytes(),
                  .a_stride = a.stride(0),
                  .b = b.bytes(),
                  .b_stride = b.stride(0),
                  .b_bias = b_bias,
                  .out = sum.bytes(),
                  .out_stride = sum.stride(0)},
          .norm = params(sum, weight, options, out)};
}

}  // namespace motley::ops
