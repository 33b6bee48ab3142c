#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "lora/site.h"
#include "model/step.h"
#include "model/vector.h"
#include "model/weight_source.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace motley::model {

// A linear map of the model: base product, + delta, x gain, + bias, rounded once.
struct Linear {
  lora::Site site;
  quant::Weight weight = {};  // where the device's products read it
  Vector bias = {};           // [out], or empty
  quant::Weight stored = {};  // the checkpoint's, in the host's memory, where `weight` is not

  std::int64_t in() const { return weight.in(); }
  std::int64_t out() const { return weight.out(); }
  const quant::Weight& host_weight() const {
    return stored.view().data == nullptr ? weight : stored;
  }
};

struct LinearSpec {
  lora::Site site;
  std::string module;
  quant::TrueSize size;
  bool bias = false;
  bool float32_rows = false;  // x is float32, whatever activations are
};
Result<Linear> load_linear(WeightSource& source, const LinearSpec& spec);

// Maps that share x. On a GPU, plain weights of one type stand side by side in the memory that is
// returned: with results side by side, they are one product.
Result<tensor::Buffer> load_linears(WeightSource& source,
                                    std::initializer_list<std::pair<Linear*, LinearSpec>> maps);

// Linear maps that share x, and where each one's result goes: [R, out], in f32 or in the step's
// activation type.
struct LinearCall {
  const Linear& linear;
  tensor::Tensor out;
};
inline constexpr std::size_t most_linear_calls = ops::most_products;
void apply(std::initializer_list<LinearCall> calls, const ops::Context& context,
           const lora::RowMixes& mixes, const tensor::ConstTensor& x);

// One of them; x is [R, in].
void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out);

struct NormedSum;
// The same. `next` has out as its addend: it may be made with it, and out is then nobody's
// business.
void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out, NormedSum& next);

struct Norm {
  Vector weight = {};
  float eps = 1e-6F;
  bool weight_in_f32 = false;

  ops::RmsNormOptions options() const { return {.eps = eps, .weight_in_f32 = weight_in_f32}; }
};

// Over the last dimension of x, which is [R, W] or [R, heads, W].
void apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& x,
           const tensor::Tensor& out);

// The way into a block: sum = hidden + addend, x = the norm of it; all [R, W]. Without an addend
// hidden itself is the sum.
struct NormedSum {
  const Norm& norm;
  tensor::ConstTensor hidden;
  tensor::ConstTensor addend = {};
  tensor::Tensor sum = {};  // neither of the two, so that a device may go on with x at once
  tensor::Tensor x;
  bool made = false;  // by the block before
};
void apply(const NormedSum& entry, const ops::Context& context);
kernels::AddAndNorm call_of(const NormedSum& entry, const ops::Context& context);

// Both: the way in, and the maps of entry.x; and the heads that they are, if there are any.
// `ahead`: what a later call reads.
void apply(std::initializer_list<LinearCall> calls, const Step& step, const NormedSum& entry,
           const kernels::Ahead& ahead, const ops::HeadsCall* heads = nullptr);
kernels::Ahead reading(const Linear& linear);

}  // namespace motley::model
