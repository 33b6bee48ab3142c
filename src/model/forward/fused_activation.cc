#include "model/forward/fused_activation.h"

#include "model/forward/fused_products.h"
#include "ops/activation.h"

namespace motley::model {

using ops::OpList;

namespace {

// [norm?, activate]
struct Activation {
  const NormOp* norm = nullptr;
  const ActivateOp* activate;

  explicit Activation(Ops ops) : activate(&params<ActivateOp>(ops.back())) {
    if (ops.size() > 1) norm = &params<NormOp>(ops.front());
  }

  kernels::ActivateAndMultiply call(const Frame& frame) const {
    kernels::ActivateAndMultiply call =
        ops::activation_call(frame.context, activate->spec, frame.at(activate->gate),
                             frame.at(activate->up), frame.at(activate->out));
    if (norm != nullptr)
      call.norm = {.weight = norm->norm.weight.data(),
                   .width = frame.list.value(norm->out).width,
                   .eps = norm->norm.eps};
    return call;
  }
  // Whether the norm is one in place of all that the gate multiplies.
  bool norms_factor(const Frame& frame) const {
    const OpList& list = frame.list;
    const ops::Value& heads = list.value(norm->out);
    const ops::Value& whole = list.value(activate->up);
    return norm->x == norm->out && list.root_of(norm->out) == list.root_of(activate->up) &&
           heads.first == whole.first && heads.heads * heads.width == whole.width &&
           heads.head_stride == heads.width && heads.type == DType::f32;
  }
  bool fits(const Frame& frame) const {
    const kernels::ElementaryTable& kernels = *frame.context.kernels;
    if (kernels.activate_blocks == nullptr || frame.context.exact) return false;
    return norm == nullptr || (norms_factor(frame) && kernels.takes_norm_of_parts(call(frame)));
  }
};

}  // namespace

bool fits_norm_activate(Ops ops, const Frame& frame) { return Activation(ops).fits(frame); }

void run_norm_activate(Ops ops, const Frame& frame, const kernels::Ahead&) {
  frame.context.kernels->activate_blocks(Activation(ops).call(frame), frame.context.stream);
}

bool keeps_all_but_normed(const OpList& list, Ops ops, ValueId value) {
  return ops.front().kind != OpKind::norm || !list.overlap(value, params<NormOp>(ops.front()).out);
}

bool fits_activate_linears(Ops ops, const Frame& frame) {
  const RoundedProducts products(ops);
  const Activation activation(products.made);
  return activation.fits(frame) &&
         products.fit(activation.call(frame), activation.activate->out, frame);
}

void run_activate_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  const RoundedProducts products(ops);
  kernels::ActivateAndMultiply call = Activation(products.made).call(frame);
  call.rounded = products.rows_of(call, frame);
  frame.context.kernels->activate_blocks(call, frame.context.stream);
  products.multiply(call.rounded, frame, ahead);
}

bool keeps_all_but_normed_and_rounded(const OpList& list, Ops ops, ValueId value) {
  const RoundedProducts products(ops);
  return keeps_all_but_normed(list, products.made, value) &&
         keeps_results(list, products.products, value);
}

}  // namespace motley::model
