#pragma once

#include "base/result.h"
#include "kernels/adapters.h"

namespace motley::kernels::cuda {

// Sets the kernels' attributes on the current device, and checks that their clusters fit on it.
Result<void> prepare_adapters();

void adapt_linears(const AdaptLinears& params, StreamHandle stream);
void adapt_heads(const AdaptHeads& params, StreamHandle stream);
bool adapt_takes_norm(const AdaptAndNorm& params);
void adapt_linear_and_norm(const AdaptAndNorm& params, StreamHandle stream);
void adapt_embedding(const AdaptEmbedding& params, StreamHandle stream);
void scale_latent_queries(const AdaptLatent& params, StreamHandle stream);
void adapt_latent_queries(const AdaptLatent& params, StreamHandle stream);
void adapt_latent_values(const AdaptLatent& params, StreamHandle stream);

// Entries of the GPU's kernel table.
inline constexpr AdapterTable adapter_table{.linears = adapt_linears,
                                            .heads = adapt_heads,
                                            .takes_norm = adapt_takes_norm,
                                            .linear_and_norm = adapt_linear_and_norm,
                                            .embedding = adapt_embedding,
                                            .scale_queries = scale_latent_queries,
                                            .latent_queries = adapt_latent_queries,
                                            .latent_values = adapt_latent_values};

}  // namespace motley::kernels::cuda
