#pragma once

#include <cstdint>

#include "kernels/recurrence.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// Where the sequences of a step keep their states; arrays [sequences] in the memory of the device
// that runs, as kernels::StateSteps explains them.
struct StateRows {
  const std::int32_t* slots = nullptr;
  const std::int32_t* anchors = nullptr;
  const std::int32_t* certain = nullptr;
};

// One layer's states, in memory that the runner owns.
struct LayerStates {
  kernels::RecurrenceMemory recurrence{};
  kernels::ConvolutionMemory convolution{};
};

bool has_recurrence(const Context& context);
// What the device's kernels keep of such a layer in this compute mode.
kernels::KeptTypes kept_types(const Context& context, const kernels::RecurrenceShape& shape);

// All f32: q and k [R, key heads, key width], v and out [R, value heads, value width], g [R, value
// heads] or [R, value heads, key width], beta [R, value heads] or nothing.
struct Recurrence {
  tensor::ConstTensor q, k, v, g, beta;
  tensor::Tensor out;
};
void recur(const Context& context, const PagedRows& rows, const StateRows& states,
           const LayerStates& layer, const Recurrence& call);

// x and out [R, channels] in f32; weight [channels, taps] and bias (or nothing) [channels].
struct Convolution {
  tensor::ConstTensor x, weight, bias;
  bool silu = false;
  tensor::Tensor out;
};
void convolve(const Context& context, const PagedRows& rows, const StateRows& states,
              const LayerStates& layer, const Convolution& call);

// All f32 [R, heads]; decay and bias [heads].
struct Gates {
  tensor::ConstTensor decay, bias, a, b;
  tensor::Tensor g, beta;
};
void delta_gates(const Context& context, const Gates& call);

// The kernel calls, checked but not made, for a caller that fuses several.
kernels::Convolve convolve_call(const Context& context, const PagedRows& rows,
                                const StateRows& states, const LayerStates& layer,
                                const Convolution& call);
kernels::DeltaGates gates_call(const Context& context, const Gates& call);

}  // namespace motley::ops
