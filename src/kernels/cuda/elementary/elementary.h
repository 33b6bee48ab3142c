#pragma once

#include "kernels/elementary.h"

// Entries of the GPU's kernel table. The order of a row's sums depends on its width only.
namespace motley::kernels::cuda {

void rms_norm(const RmsNorm& params, StreamHandle stream);
void add(const Add& params, StreamHandle stream);
void add_and_norm(const AddAndNorm& params, StreamHandle stream);
InputForm norm_inputs(const AddAndNorm& call, const Linears& products, StreamHandle stream);
bool takes_shared(const AfterExperts& call);
void add_shared_and_norm(const AfterExperts& params, StreamHandle stream);
void add_scaled(const AddScaled& params, StreamHandle stream);
void round_to(const RoundTo& params, StreamHandle stream);
void rope_table(const RopeTable& params, StreamHandle stream);
void embed(const Embed& params, StreamHandle stream);
void activate_and_multiply(const ActivateAndMultiply& params, StreamHandle stream);
bool takes_norm_of_parts(const ActivateAndMultiply& call);
InputForm activation_inputs(const ActivateAndMultiply& call, const Linears& products,
                            StreamHandle stream);
void activate_blocks(const ActivateAndMultiply& params, StreamHandle stream);
void linear(const Linear& params, StreamHandle stream);
void linears(const Linears& params, StreamHandle stream);
void linear_transposed(const LinearTransposed& params, StreamHandle stream);
void linear_per_head(const LinearPerHead& params, StreamHandle stream);
void prepare_latent(const PrepareLatent& params, StreamHandle stream);
void prepare_heads(const PrepareHeads& params, StreamHandle stream);
void combine(const Combine& params, StreamHandle stream);
void log_probabilities(const LogProbabilities& params, StreamHandle stream);
void top_k(const TopK& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
