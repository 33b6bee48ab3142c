#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lora/site.h"
#include "plan/plan.h"
#include "tensor/tensor.h"

namespace motley::ops {
struct Context;
}

namespace motley::lora {

class Batch;

// What a call may take of context.scratch, whatever the shapes.
inline constexpr std::size_t scratch_bytes = std::size_t{6} << 20;

// Deltas of one linear map, row by row: acc[r] += sum over the row's adapters of scale * B (A
// x[r]). labels[r] is the row's mix in `batch`, or plan::no_label for the base, whose rows are not
// touched by a bit. x is [rows, in] (f32 or bf16), acc is [rows, out] in f32.
void dense_delta(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                 const tensor::ConstTensor& x, const tensor::Tensor& acc,
                 const ops::Context& context);

// The whole of a linear map behind its base product: replaced rows (modules_to_save), + delta, x
// gain (DoRA),
// + bias (the base's, or the adapter's where it replaces it), rounded once into out. `batch` may be
// null; `bias` may be null. acc is [rows, out] in f32 and is used up.
void finish_linear(const Batch* batch, Site site, std::span<const std::int32_t> labels,
                   const tensor::ConstTensor& x, const tensor::Tensor& acc, const float* bias,
                   const tensor::Tensor& out, const ops::Context& context);

// Embedding rows: out[r] += sum of scale * B A[:, ids[r]], or the row of a replaced table.
void finish_embedding(const Batch* batch, std::span<const std::int32_t> labels,
                      std::span<const std::int32_t> ids, const tensor::Tensor& acc,
                      const tensor::Tensor& out, const ops::Context& context);

// MLA in absorbed form, labels by row. kv_b_scale_queries comes first, before the base product:
// q_nope [rows, heads, dn] (f32 or bf16) is multiplied in place by the gains of kv_b's key rows
// where a row's adapter has them (DoRA). q_nope [rows, heads, dn] -> adds to q_latent [rows, heads,
// kl] (f32) what the delta of kv_b's key rows gives; latent [rows, heads, kl] (f32) -> adds to
// values [rows, heads, dv] (f32), which hold the base product, what that of its value rows gives,
// and applies their gains.
void kv_b_scale_queries(const Batch& batch, std::int32_t layer,
                        std::span<const std::int32_t> labels, const tensor::Tensor& q_nope,
                        const ops::Context& context);
void kv_b_key_delta(const Batch& batch, std::int32_t layer, std::span<const std::int32_t> labels,
                    const tensor::ConstTensor& q_nope, const tensor::Tensor& q_latent,
                    const ops::Context& context);
void kv_b_value_delta(const Batch& batch, std::int32_t layer, std::span<const std::int32_t> labels,
                      const tensor::ConstTensor& latent, const tensor::Tensor& values,
                      const ops::Context& context);

// What an expert backend gets: null when nobody in the batch uses an adapter on these experts.
struct ExpertDeltas {
  const Batch* batch = nullptr;
  std::int32_t layer = 0;
};

// Seam 1, before the activation: gate and up [pairs, I] (f32, plan order) from the tokens' own rows
// of x [T, H]. Seam 2, before weights and sum: out [pairs, H] (f32, plan order) from h [pairs, I],
// rows in plan order. The plan's labels are those of the batch.
void add_gate_up(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& x,
                 const tensor::Tensor& gate, const tensor::Tensor& up, const ops::Context& context);
void add_down(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& h,
              const tensor::Tensor& out, const ops::Context& context);

}  // namespace motley::lora
