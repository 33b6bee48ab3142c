#pragma once

#include "lora/apply/apply.h"

// The same calls for devices whose kernels read the step's table.
namespace motley::lora {

// `heads` may be null.
void finish_on_device(const RowMixes& mixes, const tensor::ConstTensor& x,
                      std::span<const AdaptedLinear> linears, const ops::Context& context,
                      const ops::HeadsCall* heads);
void adapt_embedding_on_device(const RowMixes& mixes, const std::int32_t* ids,
                               std::int64_t vocabulary, const tensor::Tensor& out,
                               const ops::Context& context);

// The parts of kv_b.
enum class LatentPart : std::uint8_t { query_gains, key_delta, value_delta };
// heads is [rows, heads, width]: queries or values. latent is [rows, heads, kl] in f32, and unused
// for gains. rounded has the shape of the side to which the delta is added.
struct LatentCall {
  tensor::ConstTensor heads;
  tensor::ConstTensor latent = {};
  tensor::Tensor rounded = {};
};
void adapt_latent_on_device(const RowMixes& mixes, const KvB& kv_b, LatentPart part,
                            const LatentCall& call, const ops::Context& context);

}  // namespace motley::lora
