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

// What a call may take of context.scratch, whatever the shapes.
inline constexpr std::size_t scratch_bytes = std::size_t{6} << 20;

// The mixes of the rows that a call works on. The CPU walks the batch; kernels of a device read its
// table, and the batch only says that somebody uses an adapter.
struct RowMixes {
  const Batch* batch = nullptr;  // null: no row does
  // [rows], in the memory of the device that runs: a row's mix in the batch, or plan::no_label.
  const std::int32_t* labels = nullptr;
  const StepTable* table = nullptr;  // of the same batch; null on the CPU
  bool labels_in_step = false;       // a kernel of the step writes the labels
};

// Whether any adapter of the step may have something at the site.
bool touches(const RowMixes& mixes, Site site);
// Whether any may have gains there.
bool scales(const RowMixes& mixes, Site site);
// Whether any may have something on the layer's experts: else a backend gets no
// deltas.
bool touches_experts(const RowMixes& mixes, std::int32_t layer);

// Deltas of one linear map on the CPU, row by row: acc[r] += sum over the row's adapters of scale *
// B (A x[r]). labels[r] is the row's mix in `batch`, or plan::no_label for the base, whose rows are
// not touched by a bit. x is [rows, in] (f32 or bf16), acc is [rows, out] in f32.
void dense_delta(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                 const tensor::ConstTensor& x, const tensor::Tensor& acc,
                 const ops::Context& context);

// A linear map behind its base product: acc is [rows, out] in f32 and is used up, out is [rows,
// out] and may be acc. A bias is [out], in the memory of the device that runs, or null.
struct AdaptedLinear {
  Site site;
  tensor::Tensor acc;
  const float* bias = nullptr;
  tensor::Tensor out;
};

// The whole of linear maps that share x behind their base products: replaced rows
// (modules_to_save), + delta, x gain (DoRA), + bias (the base's, or the adapter's where it replaces
// it), rounded once into out.
void finish_linears(const RowMixes& mixes, const tensor::ConstTensor& x,
                    std::span<const AdaptedLinear> linears, const ops::Context& context);
// The same, and then the heads that they are.
void finish_heads(const RowMixes& mixes, const tensor::ConstTensor& x,
                  std::span<const AdaptedLinear> linears, const ops::HeadsCall& heads,
                  const ops::Context& context);

// The same of a map whose result takes its accumulator's place, and then the sum of which it is the
// second part, with the norm of that (ops::add_and_norm_call): one launch, where the device takes
// it.
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

// kv_b of a layer: a head's rows, keys' first and values' last.
struct KvB {
  std::int32_t layer = 0;
  std::int64_t rows_a_head = 0;
};

// MLA in absorbed form. kv_b_scale_queries comes first, before the base product: q_nope [rows,
// heads, dn] (f32 or bf16) is multiplied in place by the gains of kv_b's key rows where a row's
// adapter has them (DoRA). q_nope [rows, heads, dn] -> adds to q_latent [rows, heads, kl] (f32)
// what the delta of kv_b's key rows gives; latent [rows, heads, kl] (f32) -> adds to values [rows,
// heads, dv] (f32), which hold the base product, what that of its value rows gives, and applies
// their gains. On a device that reads a table, where an adapter may have something here, `rounded`
// gets all rows of the result in bf16; elsewhere there is none.
void kv_b_scale_queries(const RowMixes& mixes, const KvB& kv_b, const tensor::Tensor& q_nope,
                        const ops::Context& context);
void kv_b_key_delta(const RowMixes& mixes, const KvB& kv_b, const tensor::ConstTensor& q_nope,
                    const tensor::Tensor& q_latent, const ops::Context& context,
                    const tensor::Tensor& rounded = {});
void kv_b_value_delta(const RowMixes& mixes, const KvB& kv_b, const tensor::ConstTensor& latent,
                      const tensor::Tensor& values, const ops::Context& context,
                      const tensor::Tensor& rounded = {});

// What an expert backend gets: null when no row of the batch has an adapter on these experts.
struct ExpertDeltas {
  const Batch* batch = nullptr;
  std::int32_t layer = 0;
  const StepTable* table = nullptr;  // of the same batch; null on the CPU
};

// Seam 1, before the activation: gate and up [pairs, I] (f32, plan order) from the tokens' own rows
// of x [T, H]. Seam 2, before weights and sum: out [pairs, H] (f32, plan order) from h [pairs, I],
// rows in plan order. The plan's labels are those of the batch.
void add_gate_up(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& x,
                 const tensor::Tensor& gate, const tensor::Tensor& up, const ops::Context& context);
void add_down(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& h,
              const tensor::Tensor& out, const ops::Context& context);

}  // namespace motley::lora
