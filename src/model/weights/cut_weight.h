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

// The size of a part.
quant::TrueSize size_of(const Cut& cut, quant::TrueSize whole);

}  // namespace motley::model
