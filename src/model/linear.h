#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "lora/site.h"
#include "model/shard.h"
#include "model/weights/vector.h"
#include "model/weights/weight_source.h"
#include "ops/norm.h"
#include "quant/cut_scales.h"

namespace motley::model {

// A linear map of the model: base product, + delta, * gain, + bias, rounded once. A rank of several
// may have some of its outputs, or of its inputs: then its result is a part of a sum over ranks.
struct Linear {
  lora::Site site;
  std::string module = {};    // its name in files
  quant::TrueSize size = {};  // of the whole map
  Cut cut = {};               // the part that this rank has
  quant::Weight weight = {};  // in the memory of the device's products
  // How the checkpoint's weight takes its inputs; `weight` may be a decoded copy.
  kernels::InputRounding rounding = {};
  quant::CutScales cut_scales = {};  // of the inputs, where ranks cut them
  Vector bias = {};                  // [out], or empty; of a part of a sum only on rank 0
  // The checkpoint's whole one, in host memory, if `weight` is elsewhere or a part; empty if parts
  // are read from the file again.
  quant::Weight stored = {};

  std::int64_t in() const { return weight.in(); }
  std::int64_t out() const { return weight.out(); }
  const quant::Weight& host_weight() const {
    return stored.view().data == nullptr ? weight : stored;
  }
};

struct LinearSpec {
  lora::Site site;
  std::string module;
  quant::TrueSize size;  // of the whole map
  bool bias = false;
  bool exact_inputs = false;  // x is never quantised, whatever the checkpoint says
  bool float32_rows = false;  // x is float32, whatever the type of activations
  Cut cut = {};
};
Result<Linear> load_linear(WeightSource& source, const LinearSpec& spec);

// Loads maps that share x. On a GPU, unquantised weights of one type are contiguous in the returned
// memory: with contiguous results they are one product.
Result<tensor::Buffer> load_linears(WeightSource& source,
                                    std::initializer_list<std::pair<Linear*, LinearSpec>> maps);

// A norm over the last dimension.
struct Norm {
  Vector weight = {};
  float eps = 1e-6F;
  bool weight_in_f32 = false;

  ops::RmsNormOptions options() const { return {.eps = eps, .weight_in_f32 = weight_in_f32}; }
};

}  // namespace motley::model
