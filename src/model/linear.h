#pragma once

#include <string_view>
#include <vector>

#include "lora/site.h"
#include "model/step.h"
#include "model/weight_source.h"

namespace motley::model {

// A linear map of the model: base product, + delta, x gain, + bias, rounded once.
struct Linear {
  lora::Site site;
  quant::Weight weight = {};
  std::vector<float> bias = {};  // [out], or empty

  std::int64_t in() const { return weight.in(); }
  std::int64_t out() const { return weight.out(); }
};

Result<Linear> load_linear(WeightSource& source, lora::Site site, std::string_view module,
                           quant::TrueSize size, bool bias);

// x is [R, in], out is [R, out] in f32 or in the step's activation type.
void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out);

// The same for rows that are not the step's: labels[r] is row r's mix.
void apply(const Linear& linear, const ops::Context& context, const lora::Batch* adapters,
           std::span<const std::int32_t> labels, const tensor::ConstTensor& x,
           const tensor::Tensor& out);

struct Norm {
  std::vector<float> weight = {};
  float eps = 1e-6F;
  bool weight_in_f32 = false;
};

// Over the last dimension of x, which is [R, W] or [R, heads, W].
void apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& x,
           const tensor::Tensor& out);

}  // namespace motley::model
