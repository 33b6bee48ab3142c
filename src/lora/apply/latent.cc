// kv_b of MLA in absorbed form. Its output is, for each head, dn key rows and then dv value rows;
// neither product is ever computed for a cached token.

#include <algorithm>
#include <array>

#include "base/check.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "lora/apply/device.h"
#include "lora/apply/grouped.h"
#include "lora/apply/kernels.h"
#include "tensor/arena.h"

namespace motley::lora {

namespace {

// The numbers in rank space that a task keeps on its stack.
constexpr std::int64_t rank_space_of_a_task = 16384;
static_assert(rank_space_of_a_task >= max_rank);
using RankSpace = std::array<float, rank_space_of_a_task>;

void check_heads(const tensor::ConstTensor& tensor, std::int64_t rows) {
  MOTLEY_CHECK(tensor.shape().rank() == 3 && tensor.dim(0) == rows &&
                   (tensor.dim(2) == 1 || tensor.stride(2) == 1),
               "[rows, heads, width] with contiguous heads");
}

const std::byte* head_of(const tensor::ConstTensor& tensor, std::int64_t head) {
  return tensor.bytes() + head * tensor.stride(1) * bits(tensor.dtype()) / 8;
}
float* sums_of(const tensor::Tensor& tensor, std::int64_t head) {
  return tensor.data<float>() + head * tensor.stride(1);
}

// Calls body(label, head, rows) for the rows with adapters, those of one label together.
template <class Body>
void for_heads(const RowMixes& mixes, Site site, std::int64_t rows, std::int64_t heads,
               const ops::Context& context, Body body) {
  if (rows == 0 || mixes.batch == nullptr || !mixes.batch->touches(site)) return;
  MOTLEY_CHECK(context.scratch != nullptr, "scratch for the rows' order");
  const std::span labels(mixes.labels, static_cast<std::size_t>(rows));
  for (std::int64_t first = 0; first < rows; first += rows_at_once) {
    const std::size_t mark = context.scratch->mark();
    const std::span<const std::int32_t> order =
        rows_by_label(labels, first, std::min(first + rows_at_once, rows), *context.scratch);
    for_labels(order, labels, [&](std::int32_t label, std::span<const std::int32_t> own) {
      for_tasks(context, heads, [&](std::int64_t head) { body(label, head, own); });
    });
    context.scratch->rewind(mark);
  }
}

// Calls body(rows) for as many rows at a time as fit in rank space.
template <class Body>
void in_rank_space(std::span<const std::int32_t> rows, const kernels::FactorEntry& factor,
                   Body body) {
  const auto at_once = static_cast<std::size_t>(rank_space_of_a_task / factor.split);
  for (std::size_t first = 0; first < rows.size(); first += at_once)
    body(rows.subspan(first, std::min(at_once, rows.size() - first)));
}

}  // namespace

void kv_b_scale_queries(const RowMixes& mixes, const KvB& kv_b, const tensor::Tensor& q_nope,
                        const ops::Context& context) {
  const Site site{kv_b.layer, Projection::kv_b};
  const Batch* const batch = mixes.batch;
  check_heads(q_nope, q_nope.dim(0));
  if (mixes.table != nullptr)
    return adapt_latent_on_device(mixes, kv_b, LatentPart::query_gains, {.heads = q_nope}, context);
  const std::int64_t heads = q_nope.dim(1);
  const std::int64_t width = q_nope.dim(2);
  for_heads(mixes, site, q_nope.dim(0), heads, context,
            [&](std::int32_t label, std::int64_t head, std::span<const std::int32_t> rows) {
              const SiteView* const view = batch->alone(label, site);
              if (view == nullptr || view->gain == nullptr) return;
              const float* const gain = view->gain + head * kv_b.rows_a_head;
              for (const std::int32_t row : rows) {
                const std::int64_t at = row * q_nope.stride(0) + head * q_nope.stride(1);
                for (std::int64_t d = 0; d < width; ++d) {
                  if (q_nope.dtype() == DType::f32) {
                    q_nope.data<float>()[at + d] *= gain[d];
                  } else {
                    bf16& q = q_nope.data<bf16>()[at + d];
                    q = bf16::from(q.to_float() * gain[d]);
                  }
                }
              }
            });
}

void kv_b_key_delta(const RowMixes& mixes, const KvB& kv_b, const tensor::ConstTensor& q_nope,
                    const tensor::Tensor& q_latent, const ops::Context& context,
                    const tensor::Tensor& rounded) {
  const Site site{kv_b.layer, Projection::kv_b};
  const Batch* const batch = mixes.batch;
  check_heads(q_nope, q_nope.dim(0));
  check_heads(q_latent, q_nope.dim(0));
  if (mixes.table != nullptr)
    return adapt_latent_on_device(mixes, kv_b, LatentPart::key_delta, {q_nope, q_latent, rounded},
                                  context);
  MOTLEY_CHECK(rounded.bytes() == nullptr, "a device that rounds");
  const std::int64_t heads = q_nope.dim(1);
  // A bias behind B shifts a query's scores of all keys equally, which the softmax cancels.
  for_heads(mixes, site, q_nope.dim(0), heads, context,
            [&](std::int32_t label, std::int64_t head, std::span<const std::int32_t> all_rows) {
              // Only the part that is written is read.
              // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
              RankSpace t;
              for (const Batch::Term& term : batch->terms(label)) {
                const SiteView* const view = term.adapter->find(site);
                if (view == nullptr || view->factors[0].rank == 0) continue;
                const kernels::FactorEntry& factor = view->factors[0];
                MOTLEY_CHECK(view->in == q_latent.dim(2), "the latent's own width");
                in_rank_space(all_rows, factor, [&](std::span<const std::int32_t> rows) {
                  const auto count = static_cast<std::int64_t>(rows.size());
                  kernels::cpu::transposed_tile(
                      {.x = head_of(q_nope, head),
                       .x_type = q_nope.dtype(),
                       .x_stride = q_nope.stride(0),
                       .x_rows = rows.data(),
                       .rows = count,
                       .w = page_view(batch->dtype(), factor.b, view->out, factor.split),
                       .first = head * kv_b.rows_a_head,
                       .count = q_nope.dim(2),
                       .in_end = factor.rank,
                       .y = t.data(),
                       .y_stride = factor.rank});
                  const float scale = factor.scale[0] * term.scale;
                  for (float& number : std::span(t).first(rows.size() * std::size_t(factor.rank)))
                    number *= scale;
                  kernels::cpu::transposed_tile(
                      {.x = t.data(),
                       .x_stride = factor.rank,
                       .rows = count,
                       .w = page_view(batch->dtype(), factor.a, factor.split, view->in),
                       .count = factor.rank,
                       .in_end = view->in,
                       .y = sums_of(q_latent, head),
                       .y_stride = q_latent.stride(0),
                       .y_rows = rows.data(),
                       .add = true});
                });
              }
            });
}

void kv_b_value_delta(const RowMixes& mixes, const KvB& kv_b, const tensor::ConstTensor& latent,
                      const tensor::Tensor& values, const ops::Context& context,
                      const tensor::Tensor& rounded) {
  const Site site{kv_b.layer, Projection::kv_b};
  const Batch* const batch = mixes.batch;
  check_heads(latent, latent.dim(0));
  check_heads(values, latent.dim(0));
  if (mixes.table != nullptr)
    return adapt_latent_on_device(mixes, kv_b, LatentPart::value_delta, {values, latent, rounded},
                                  context);
  MOTLEY_CHECK(rounded.bytes() == nullptr, "a device that rounds");
  const std::int64_t heads = values.dim(1);
  const std::int64_t width = values.dim(2);
  for_heads(mixes, site, latent.dim(0), heads, context,
            [&](std::int32_t label, std::int64_t head, std::span<const std::int32_t> all_rows) {
              // Only the part that is written is read.
              // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
              RankSpace t;
              for (const Batch::Term& term : batch->terms(label)) {
                const SiteView* const view = term.adapter->find(site);
                if (view == nullptr) continue;
                const kernels::FactorEntry& factor = view->factors[0];
                const float scale = factor.scale[0] * term.scale;
                // The value rows are the last rows of the head.
                const std::int64_t first = (head + 1) * kv_b.rows_a_head - width;
                if (factor.rank > 0) {
                  in_rank_space(all_rows, factor, [&](std::span<const std::int32_t> rows) {
                    const auto count = static_cast<std::int64_t>(rows.size());
                    shrink({factor, batch->dtype(), scale, view->in},
                           {.data = head_of(latent, head),
                            .dtype = latent.dtype(),
                            .stride = latent.stride(0),
                            .rows = rows.data(),
                            .count = count},
                           0, factor.split, t.data(), factor.split);
                    kernels::cpu::expand_tile(
                        {.t = t.data(),
                         .t_stride = factor.split,
                         .rows = count,
                         .b = factor.b,
                         .b_type = batch->dtype(),
                         .b_scales = row_scales(batch->dtype(), factor.b, view->out, factor.split),
                         .padded = factor.split,
                         .out_begin = first,
                         .out_end = first + width,
                         .y = sums_of(values, head),
                         .y_stride = values.stride(0),
                         .y_rows = rows.data()});
                  });
                }
                for (const std::int32_t row : all_rows) {
                  float* const value = sums_of(values, head) + row * values.stride(0);
                  if (view->lora_bias != nullptr) {
                    for (std::int64_t d = 0; d < width; ++d)
                      value[d] += scale * view->lora_bias[first + d];
                  }
                  if (view->gain != nullptr) {
                    for (std::int64_t d = 0; d < width; ++d) value[d] *= view->gain[first + d];
                  }
                }
              }
            });
}

}  // namespace motley::lora
