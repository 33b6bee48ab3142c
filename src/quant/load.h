#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "quant/config.h"
#include "quant/weight.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace motley::quant {

// The tensor of that name, or nothing.
using Lookup = FunctionRef<std::optional<tensor::ConstTensor>(std::string_view name)>;

struct LoadedWeight {
  Weight weight;
  std::vector<std::string> used;  // the names of the tensors that it was made of
  // Programs differ on what some of its zero points mean (readers/gptq.cc).
  bool disputed_zero_points = false;
};

struct WeightRequest {
  Lookup lookup;
  std::string_view module;       // "model.layers.0.self_attn.q_proj"
  TrueSize size;                 // that it must have
  tensor::Allocator& allocator;  // of what is made; the host's
};

// The weight of a module from whatever tensors stand for it: <module>.weight, plain or with scales,
// or packed ones. Tensors and configuration must agree, and errors name the tensor. What the weight
// borrows must outlive it.
Result<LoadedWeight> load_weight(const Config& config, const WeightRequest& request);

}  // namespace motley::quant
