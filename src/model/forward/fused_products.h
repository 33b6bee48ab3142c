#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "model/forward/fused_ops.h"
#include "ops/linear.h"

// Products of one x: what fusions.cc's patterns ask for, and their launches.
namespace motley::model {

// [linear...]
bool fits_linears(Ops ops, const Frame& frame);
void run_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead);

// Of inputs that are rounded for them alone: [arrange_inputs, linear...]. What stands in their
// place afterwards may be codes.
bool fits_rounded_linears(Ops ops, const Frame& frame);
void run_rounded_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead);
bool keeps_results(const ops::OpList& list, Ops ops, ValueId value);

// The same after the op that makes what is rounded: [..., arrange_inputs, linear...]. The launch of
// that op writes the products' inputs, too.
struct RoundedProducts {
  Ops made;
  Ops products;  // [arrange_inputs, linear...]

  explicit RoundedProducts(Ops ops);

  // The launch's call makes `out`.
  bool fit(const kernels::AddAndNorm& rows, ValueId out, const Frame& frame) const;
  bool fit(const kernels::ActivateAndMultiply& rows, ValueId out, const Frame& frame) const;
  // What the launch writes beside its result.
  kernels::RoundedRows rows_of(const kernels::AddAndNorm& call, const Frame& frame) const;
  kernels::RoundedRows rows_of(const kernels::ActivateAndMultiply& call, const Frame& frame) const;
  // After the launch.
  void multiply(const kernels::RoundedRows& rows, const Frame& frame,
                const kernels::Ahead& ahead) const;
};

}  // namespace motley::model
