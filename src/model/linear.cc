#include "model/linear.h"

#include <array>
#include <span>

#include "base/cat.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace motley::model {

Result<Linear> load_linear(WeightSource& source, lora::Site site, std::string_view module,
                           quant::TrueSize size, bool bias) {
  Linear linear{.site = site};
  MOTLEY_TRY(quant::Weight weight, source.matrix(module, size));
  if (source.memory().uploader == nullptr) {
    linear.weight = std::move(weight);
  } else {
    MOTLEY_TRY(linear.weight, source.resident(weight));
    linear.stored = std::move(weight);
  }
  if (bias) {
    MOTLEY_TRY(linear.bias, source.vector(cat(module, ".bias"), size.out));
  }
  return linear;
}

void apply(std::initializer_list<LinearCall> calls, const ops::Context& context,
           const lora::RowMixes& mixes, const tensor::ConstTensor& x) {
  MOTLEY_CHECK(calls.size() <= most_linear_calls, "as many maps as one call takes");
  Scratch scratch(context);
  std::array<lora::AdaptedLinear, most_linear_calls> parts;
  std::array<ops::Product, most_linear_calls> products;
  std::size_t count = 0;
  for (const auto& [linear, out] : calls) {
    // float32 results are their own accumulators.
    const tensor::Tensor acc =
        out.dtype() == DType::f32 ? out : scratch.take(DType::f32, {x.dim(0), linear.out()});
    products[count] = {&linear.weight, acc};
    parts[count++] = {.site = linear.site, .acc = acc, .bias = linear.bias.data(), .out = out};
  }
  ops::linears(context, x, std::span(products).first(count));
  lora::finish_linears(mixes, x, std::span(parts).first(count), context);
}

void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  apply({{linear, out}}, step.context, step.batch.mixes, x);
}

void apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  ops::rms_norm(context, x, norm.weight.view(), norm.options(), out);
}

void add_and_apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& a,
                   const tensor::ConstTensor& b, const tensor::Tensor& sum,
                   const tensor::Tensor& out) {
  ops::add_and_norm(context, a, b, sum, norm.weight.view(), norm.options(), out);
}

}  // namespace motley::model
