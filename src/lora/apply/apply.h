#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lora/site.h"
#include "plan/plan.h"
#include "tensor/tensor.h"

namespace motley::kernels {
struct AddAndNorm;
}  // namespace motley::kernels

namespace motley::ops {
struct Context;
class HeadsCall;
}  // namespace motley::ops

namespace motley::lora {

class Batch;
class StepTable;

// The most that a call takes from context.scratch, for any shapes.
inline constexpr std::size_t scratch_bytes = std::size_t{6} << 20;

// The mixes of the rows of a call. The CPU iterates over the batch; a device's kernels read its
// table, and there `batch` only tells whether any row has an adapter.
struct RowMixes {
  const Batch* batch = nullptr;  // null: no row has an adapter
  // [rows], in the memory of the device that runs: a row's label in the batch, or plan::no_label.
  const std::int32_t* labels = nullptr;
  const StepTable* table = nullptr;  // of the same batch; null on the CPU
  bool labels_in_step = false;       // a kernel of the step writes the labels
};

// Whether any adapter of the step may have a delta at the site.
bool touches(const RowMixes& mixes, Site site);
// Whether any adapter of the step may have gains there.
bool scales(const RowMixes& mixes, Site site);
// Whether any adapter may have factors for the layer's experts. If not, a backend gets no deltas.
bool touches_experts(const RowMixes& mixes, std::int32_t layer);

// Deltas of one linear map on the CPU, row by row: acc[r] += sum over the row's adapters of scale *
// B (A x[r]). labels[r] is the row's label in `batch`, or plan::no_label for base rows, which stay
// bit for bit unchanged. x is [rows, in] (f32 or bf16), acc is [rows, out] in f32.
void dense_delta(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                 const tensor::ConstTensor& x, const tensor::Tensor& acc,
                 const ops::Context& context);

// A linear map whose base product has been computed: acc is [rows, out] in f32, and its contents
// are lost; out is [rows, out] and may be acc. A bias is [out], in the memory of the device that
// runs, or null.
struct AdaptedLinear {
  Site site;
  tensor::Tensor acc;
  const float* bias = nullptr;
  tensor::Tensor out;
};

// Completes linear maps that share x after their base products: replaced rows (modules_to_save), +
// delta, * gain (DoRA), + bias (the base's, or the adapter's if it replaces it), rounded once into
// out.
void finish_linears(const RowMixes& mixes, const tensor::ConstTensor& x,
                    std::span<const AdaptedLinear> linears, const ops::Context& context);
// The same, followed by the preparation of the heads that the maps compute.
void finish_heads(const RowMixes& mixes, const tensor::ConstTensor& x,
                  std::span<const AdaptedLinear> linears, const ops::HeadsCall& heads,
                  const ops::Context& context);

// The same for a map whose result overwrites its accumulator, followed by the sum of which it is
// the second addend, and the norm of that (ops::add_and_norm_call). One launch, if the device
// supports it.
bool takes_norm(const RowMixes& mixes, const tensor::ConstTensor& x, const AdaptedLinear& linear,
                const kernels::AddAndNorm& rows, const ops::Context& context);
void finish_linear_and_norm(const RowMixes& mixes, const tensor::ConstTensor& x,
                            const AdaptedLinear& linear, const kernels::AddAndNorm& rows,
                            const ops::Context& context);

// Embedding rows: out[r] = acc[r] + sum of scale * B A[:, ids[r]], or the row of a replaced table.
// ids is [rows], each a token of the vocabulary; out may be acc, in f32.
void finish_embedding(const RowMixes& mixes, const std::int32_t* ids, std::int64_t vocabulary,
                      const tensor::Tensor& acc, const tensor::Tensor& out,
                      const ops::Context& context);

// kv_b of a layer: each head has rows of keys, then rows of values.
struct KvB {
  std::int32_t layer = 0;
  std::int64_t rows_a_head = 0;
};

// MLA in absorbed form. kv_b_scale_queries runs before the base product: it multiplies q_nope
// [rows, heads, dn] (f32 or bf16) in place by the gains of kv_b's key rows, for rows whose adapter
// has them (DoRA). kv_b_key_delta adds the delta of kv_b's key rows: from q_nope [rows, heads, dn]
// to q_latent [rows, heads, kl] (f32). kv_b_value_delta adds the delta of kv_b's value rows, from
// latent [rows, heads, kl] (f32) to the base product in values [rows, heads, dv] (f32), and applies
// their gains. On a device that reads a table, if an adapter may have a delta here, `rounded`
// receives all rows of the result in bf16; elsewhere it is not used.
void kv_b_scale_queries(const RowMixes& mixes, const KvB& kv_b, const tensor::Tensor& q_nope,
                        const ops::Context& context);
void kv_b_key_delta(const RowMixes& mixes, const KvB& kv_b, const tensor::ConstTensor& q_nope,
                    const tensor::Tensor& q_latent, const ops::Context& context,
                    const tensor::Tensor& rounded = {});
void kv_b_value_delta(const RowMixes& mixes, const KvB& kv_b, const tensor::ConstTensor& latent,
                      const tensor::Tensor& values, const ops::Context& context,
                      const tensor::Tensor& rounded = {});

// What an expert backend receives; null if no row of the batch has an adapter on these experts.
struct ExpertDeltas {
  const Batch* batch = nullptr;
  std::int32_t layer = 0;
  const StepTable* table = nullptr;  // of the same batch; null on the CPU
};

// Seam 1, before the activation: adds to gate and up [pairs, I] (f32, plan order) from the tokens'
// own rows of x [T, H]. Seam 2, before weights and sum: adds to out [pairs, H] (f32, plan order)
// from h [pairs, I] in plan order. The labels of the plan are those of the batch.
void add_gate_up(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& x,
                 const tensor::Tensor& gate, const tensor::Tensor& up, const ops::Context& context);
void add_down(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& h,
              const tensor::Tensor& out, const ops::Context& context);

}  // namespace motley::lora
