#pragma once

#include "kernels/elementary.h"
#include "model/forward/fused_ops.h"

// Activations with a norm before them, or with inputs that the products after them round: what
// fusions.cc's patterns ask for, and their launches.
namespace motley::model {

// [norm, activate]: a norm in place of the heads that a gate then multiplies.
bool fits_norm_activate(Ops ops, const Frame& frame);
void run_norm_activate(Ops ops, const Frame& frame, const kernels::Ahead& ahead);
bool keeps_all_but_normed(const ops::OpList& list, Ops ops, ValueId value);

// [norm?, activate, arrange_inputs, linear...]
bool fits_activate_linears(Ops ops, const Frame& frame);
void run_activate_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead);
bool keeps_all_but_normed_and_rounded(const ops::OpList& list, Ops ops, ValueId value);

}  // namespace motley::model
