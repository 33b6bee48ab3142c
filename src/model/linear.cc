#include "model/linear.h"

#include "base/cat.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace motley::model {

Result<Linear> load_linear(WeightSource& source, lora::Site site, std::string_view module,
                           quant::TrueSize size, bool bias) {
  Linear linear{.site = site};
  MOTLEY_TRY(linear.weight, source.matrix(module, size));
  if (bias) {
    MOTLEY_TRY(linear.bias, source.vector(cat(module, ".bias"), size.out));
  }
  return linear;
}

void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  apply(linear, step.context, step.batch.adapters, step.batch.labels, x, out);
}

void apply(const Linear& linear, const ops::Context& context, const lora::Batch* adapters,
           std::span<const std::int32_t> labels, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  Scratch scratch(context);
  const tensor::Tensor acc = scratch.take(DType::f32, {x.dim(0), linear.out()});
  ops::linear(context, x, linear.weight, acc);
  const float* const bias = linear.bias.empty() ? nullptr : linear.bias.data();
  lora::finish_linear(adapters, linear.site, labels, x, acc, bias, out, context);
}

void apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  const tensor::ConstTensor weight(reinterpret_cast<const std::byte*>(norm.weight.data()),
                                   DType::f32, {static_cast<std::int64_t>(norm.weight.size())});
  ops::rms_norm(context, x, weight, {.eps = norm.eps, .weight_in_f32 = norm.weight_in_f32}, out);
}

}  // namespace motley::model
