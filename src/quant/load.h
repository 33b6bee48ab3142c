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

namespace motley::quant {

// The tensor of that name, or nothing.
using Lookup = FunctionRef<std::optional<tensor::ConstTensor>(std::string_view name)>;

struct LoadedWeight {
  Weight weight;
  std::vector<std::string> used;  // the names of the tensors that it was made of
};

// The weight of a module ("model.layers.0.self_attn.q_proj"), which must have that size, from
// whatever tensors stand for it: <module>.weight, plain or FP8 with its scales, or packed ones.
// Tensors and configuration must agree, and errors name the tensor. What the weight borrows must
// outlive it; what is made comes from the allocator, which must be the host's.
Result<LoadedWeight> load_weight(const Config& config, Lookup lookup, std::string_view module,
                                 TrueSize size, tensor::Allocator& allocator);

}  // namespace motley::quant
