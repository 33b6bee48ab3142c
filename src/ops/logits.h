#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// out[r * n + i] = log_softmax(logits[r])[ids[r * n + i]], with n = ids.size() / R. logits is [R,
// V] in f32, ids are inside the vocabulary.
void log_probabilities(const Context& context, const tensor::ConstTensor& logits,
                       std::span<const std::int32_t> ids, std::span<float> out);

// The k = ids.size() / R largest of each row of x [R, V] (f32), falling; equal ones by rising id.
// `values` may be empty.
void top_k(const Context& context, const tensor::ConstTensor& x, std::span<std::int32_t> ids,
           std::span<float> values);

}  // namespace motley::ops
