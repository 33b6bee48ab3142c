#pragma once

#include <string_view>

#include "base/result.h"
#include "model/shard.h"
#include "quant/weight.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace motley::model {

// A rank's part of a stored plain matrix. Whole rows stay where they are; parts of rows are copied,
// and only they are read.
Result<quant::Weight> cut_weight(const tensor::ConstTensor& matrix, const Cut& cut,
                                 tensor::Allocator& allocator);

// The same of a quantised weight, always as a copy. What stands on both sides of a cut, a scale, is
// on both; so blocks may become smaller, or are filled up with columns that mean zero. An error
// says why that can't be, for the module. `in_order`: the module's scheme has an order of inputs,
// and so have weights beside this one.
Result<quant::Weight> cut_weight(const quant::Weight& whole, const Cut& cut,
                                 std::string_view module, tensor::Allocator& allocator,
                                 bool in_order);

// The size of a part.
quant::TrueSize size_of(const Cut& cut, quant::TrueSize whole);

}  // namespace motley::model
