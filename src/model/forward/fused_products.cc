#include "model/forward/fused_products.h"

#include <algorithm>

#include "ops/elementwise.h"

namespace motley::model {

using ops::LiveOp;

namespace {

struct Products {
  std::array<ops::Product, ops::max_products> all;
  std::size_t count = 0;

  Products(Ops linears, const Frame& frame) {
    for (const LiveOp& each : linears) {
      const auto& op = params<LinearOp>(each);
      all[count++] = {&op.linear.weight, frame.at(op.y)};
    }
  }
  std::span<const ops::Product> span() const { return std::span(all).first(count); }
};

kernels::ArrangeInputs inputs_call(const LiveOp& arranges, const Frame& frame) {
  const auto& arrange = params<ArrangeInputsOp>(arranges);
  return ops::arrange_inputs_call(frame.context, frame.at(arrange.x), taken_inputs(arrange, frame),
                                  frame.at(arrange.out));
}

void multiply_rounded(Ops ops, const Frame& frame, const kernels::Ahead& ahead, bool coded) {
  const kernels::ArrangeInputs inputs = inputs_call(ops[0], frame);
  ops::linears(frame.context, frame.at(params<LinearOp>(ops[1]).x),
               Products(ops.subspan(1), frame).span(), ahead, &inputs, coded);
}

kernels::InputForm form_beside(const kernels::AddAndNorm& call, const tensor::ConstTensor& x,
                               std::span<const ops::Product> products,
                               const kernels::ArrangeInputs& inputs, const Frame& frame) {
  return ops::norm_inputs(frame.context, call, x, products, inputs);
}
kernels::InputForm form_beside(const kernels::ActivateAndMultiply& call,
                               const tensor::ConstTensor& x, std::span<const ops::Product> products,
                               const kernels::ArrangeInputs& inputs, const Frame& frame) {
  return ops::activation_inputs(frame.context, call, x, products, inputs);
}

template <class Call>
kernels::RoundedRows rows_beside(const Call& call, Ops products, const Frame& frame) {
  const kernels::ArrangeInputs inputs = inputs_call(products[0], frame);
  const Ops linears = products.subspan(1);
  return {.form = form_beside(call, frame.at(params<LinearOp>(linears[0]).x),
                              Products(linears, frame).span(), inputs, frame),
          .rounding = inputs.rounding,
          .data = inputs.out};
}

template <class Call>
bool fits_beside(const Call& call, ValueId out, Ops products, const Frame& frame) {
  return params<ArrangeInputsOp>(products[0]).x == out && fits_rounded_linears(products, frame) &&
         rows_beside(call, products, frame).form != kernels::InputForm::none;
}

}  // namespace

bool fits_linears(Ops ops, const Frame&) {
  return share_x(ops) && std::ranges::none_of(ops, [](const LiveOp& each) {
           const auto& linear = params<LinearOp>(each);
           return linear.router != nullptr || linear.maxima != ops::no_value;
         });
}

void run_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  ops::linears(frame.context, frame.at(params<LinearOp>(ops[0]).x), Products(ops, frame).span(),
               ahead);
}

bool keeps_results(const ops::OpList& list, Ops ops, ValueId value) {
  return !list.overlap(value, params<ArrangeInputsOp>(ops[0]).out);
}

bool fits_rounded_linears(Ops ops, const Frame& frame) {
  using Scales = kernels::InputRounding::Scales;
  const auto& inputs = params<ArrangeInputsOp>(ops[0]);
  return inputs.taken.rounding.scales != Scales::none && !frame.context.exact &&
         params<LinearOp>(ops[1]).x == inputs.out && fits_linears(ops.subspan(1), frame);
}

void run_rounded_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  multiply_rounded(ops, frame, ahead, false);
}

RoundedProducts::RoundedProducts(Ops ops) {
  const auto arranges = std::ranges::find(ops, OpKind::arrange_inputs, &LiveOp::kind);
  const auto before = static_cast<std::size_t>(arranges - ops.begin());
  made = ops.first(before);
  products = ops.subspan(before);
}

bool RoundedProducts::fit(const kernels::AddAndNorm& rows, ValueId out, const Frame& frame) const {
  return fits_beside(rows, out, products, frame);
}
bool RoundedProducts::fit(const kernels::ActivateAndMultiply& rows, ValueId out,
                          const Frame& frame) const {
  return fits_beside(rows, out, products, frame);
}

kernels::RoundedRows RoundedProducts::rows_of(const kernels::AddAndNorm& call,
                                              const Frame& frame) const {
  return rows_beside(call, products, frame);
}
kernels::RoundedRows RoundedProducts::rows_of(const kernels::ActivateAndMultiply& call,
                                              const Frame& frame) const {
  return rows_beside(call, products, frame);
}

void RoundedProducts::multiply(const kernels::RoundedRows& rows, const Frame& frame,
                               const kernels::Ahead& ahead) const {
  if (rows.form == kernels::InputForm::codes)
    multiply_rounded(products, frame, ahead, true);
  else
    run_linears(products.subspan(1), frame, ahead);
}

}  // namespace motley::model
