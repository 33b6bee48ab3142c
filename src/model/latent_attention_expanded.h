#pragma once

#include "model/latent_attention.h"

namespace motley::model {

// Latent attention of prompts on a GPU: the latents of all positions of some sequences, cached ones
// too, become every head's keys and values, in the step's scratch, and rows attend to those. A
// position costs one product, and a score and a value take 128 to 192 numbers instead of 512: what
// StepLayout weighs against each other. The values of a row differ from the absorbed form's by
// roundings, so batch-invariant steps do without.

// Whether kernels gain by it, and results are not to be the same in any company.
bool can_expand(const LatentAttention& block, const ops::Context& context);

// Positions that a step of so many rows, with sequences of so many tokens, has scratch for: its
// rows, and as many cached ones as a fixed amount of memory holds.
std::int64_t most_expanded(const LatentAttention& block, std::int64_t rows, std::int64_t tokens);
std::size_t expanded_scratch_bytes(const LatentAttention& block, std::int64_t rows,
                                   std::int64_t positions, DType kept);

// The part's rows to their rows of mixed [R, heads * value_dim].
void attend_expanded(const LatentAttention& block, const Step& step, const LayerPages& pages,
                     const StepPart& part, const Projected& projected, const tensor::Tensor& mixed);

}  // namespace motley::model
