#include "ops/linear.h"

#include <array>

#include "ops/check.h"

namespace motley::ops {
namespace {

// `x_width` and `y_width` are those of a head; one of them is `in`, the other the head's share of
// `out`.
kernels::Linear params(const Context& context, const tensor::ConstTensor& x,
                       const quant::Weight& weight, HeadRows part, std::int64_t head_rows,
                       const tensor::Tensor& acc) {
  check_context(context);
  check_activation(x, 3);
  check_float32(acc, 3);
  const std::int64_t heads = x.dim(1);
  MOTLEY_CHECK(acc.dim(0) == x.dim(0) && acc.dim(1) == heads, "as many rows and heads as x");
  MOTLEY_CHECK(part.first >= 0 && part.first + head_rows <= part.rows_per_head &&
                   heads * part.rows_per_head <= weight.out(),
               "rows that the weight has");
  return {.rows = x.dim(0),
          .heads = heads,
          .x = x.bytes(),
          .x_type = x.dtype(),
          .x_stride = x.stride(0),
          .x_head_stride = x.stride(1),
          .w = weight.view(),
          .w_rows_per_head = part.rows_per_head,
          .w_first = part.first,
          .out = head_rows,
          .y = acc.data<float>(),
          .y_stride = acc.stride(0),
          .y_head_stride = acc.stride(1),
          .exact = context.exact,
          .batch_invariant = context.batch_invariant};
}

}  // namespace

kernels::Linear linear_call(const Context& context, const tensor::ConstTensor& x,
                            const Product& product) {
  const quant::Weight& weight = *product.weight;
  const tensor::Tensor& acc = product.acc;
  check_context(context);
  check_activation(x, 2);
  check_float32(acc, 2);
  MOTLEY_CHECK(acc.dim(0) == x.dim(0), "as many rows as x");
  // Where an op arranges inputs, each column has its own.
  const bool arranged = context.kernels->arrange_inputs != nullptr;
  MOTLEY_CHECK(
      x.dim(1) == (arranged ? weight.columns() : weight.in()) && acc.dim(1) == weight.out(),
      "sizes of the weight");
  return {.rows = x.dim(0),
          .x = x.bytes(),
          .x_type = x.dtype(),
          .x_stride = x.stride(0),
          .w = weight.view(),
          .w_rows_per_head = weight.out(),
          .out = weight.out(),
          .y = acc.data<float>(),
          .y_stride = acc.stride(0),
          .exact = context.exact,
          .batch_invariant = context.batch_invariant};
}

void linear(const Context& context, const tensor::ConstTensor& x, const quant::Weight& weight,
            const tensor::Tensor& acc, const kernels::InputMaxima& maxima) {
  kernels::Linear call = linear_call(context, x, {&weight, acc});
  call.maxima = maxima;
  context.kernels->linear(call, context.stream);
}

namespace {

// The kernel call of products, for as long as it lives.
struct LinearsCall {
  LinearsCall(const Context& context, const tensor::ConstTensor& x,
              std::span<const Product> products) {
    MOTLEY_CHECK(products.size() <= max_products, "as many products as a call takes");
    for (std::size_t i = 0; i < products.size(); ++i) all[i] = linear_call(context, x, products[i]);
    call = {.all = all.data(), .count = static_cast<std::int64_t>(products.size())};
  }
  LinearsCall(const LinearsCall&) = delete;
  LinearsCall& operator=(const LinearsCall&) = delete;
  ~LinearsCall() = default;

  std::array<kernels::Linear, max_products> all;
  kernels::Linears call;
};

}  // namespace

void linears(const Context& context, const tensor::ConstTensor& x,
             std::span<const Product> products, const kernels::Ahead& ahead,
             const kernels::ArrangeInputs* inputs, bool coded) {
  LinearsCall all(context, x, products);
  all.call.ahead = ahead;
  all.call.inputs = inputs;
  all.call.coded = coded;
  context.kernels->linears(all.call, context.stream);
}

kernels::InputForm norm_inputs(const Context& context, const kernels::AddAndNorm& call,
                               const tensor::ConstTensor& x, std::span<const Product> products,
                               const kernels::ArrangeInputs& inputs) {
  if (context.kernels->norm_inputs == nullptr) return kernels::InputForm::none;
  MOTLEY_CHECK(inputs.x == call.norm.out && inputs.x_stride == call.norm.out_stride,
               "inputs that the norm makes");
  LinearsCall all(context, x, products);
  all.call.inputs = &inputs;
  return context.kernels->norm_inputs(call, all.call, context.stream);
}

kernels::InputForm activation_inputs(const Context& context,
                                     const kernels::ActivateAndMultiply& call,
                                     const tensor::ConstTensor& x,
                                     std::span<const Product> products,
                                     const kernels::ArrangeInputs& inputs) {
  if (context.kernels->activation_inputs == nullptr) return kernels::InputForm::none;
  MOTLEY_CHECK(inputs.x == call.out && inputs.x_stride == call.out_stride,
               "inputs that the activation makes");
  LinearsCall all(context, x, products);
  all.call.inputs = &inputs;
  return context.kernels->activation_inputs(call, all.call, context.stream);
}

namespace {

void multiply_heads(const Context& context, const kernels::Linear& product, bool transposed,
                    const tensor::Tensor& acc, const PerHeadOptions& options) {
  kernels::LinearPerHead call{.product = product, .transposed = transposed};
  if (options.narrow != nullptr) {
    MOTLEY_CHECK(options.narrow->in() == product.w.in && options.narrow->out() == product.w.out,
                 "the same weight");
    call.narrow = options.narrow->view();
  }
  const tensor::Tensor& rounded = options.rounded;
  if (rounded.bytes() != nullptr) {
    check_activation(rounded, 3);
    MOTLEY_CHECK(rounded.shape() == acc.shape() && rounded.dtype() == DType::bf16,
                 "a place for every result, in bf16");
    call.rounded = rounded.bytes();
    call.rounded_stride = rounded.stride(0);
    call.rounded_head_stride = rounded.stride(1);
  }
  context.kernels->linear_per_head(call, context.stream);
}

}  // namespace

void linear_per_head(const Context& context, const tensor::ConstTensor& x,
                     const quant::Weight& weight, HeadRows part, const tensor::Tensor& acc,
                     const PerHeadOptions& options) {
  MOTLEY_CHECK(x.dim(2) == weight.in(), "a head's inputs are the weight's");
  multiply_heads(context, params(context, x, weight, part, acc.dim(2), acc), false, acc, options);
}

void linear_per_head_transposed(const Context& context, const tensor::ConstTensor& x,
                                const quant::Weight& weight, HeadRows part,
                                const tensor::Tensor& acc, const PerHeadOptions& options) {
  MOTLEY_CHECK(acc.dim(2) == weight.in() && weight.columns() == weight.in(),
               "a head's outputs are the weight's inputs");
  multiply_heads(context, params(context, x, weight, part, x.dim(2), acc), true, acc, options);
}

}  // namespace motley::ops
