#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/elementary.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "lora/apply/device.h"
#include "lora/apply/grouped.h"
#include "lora/apply/kernels.h"
#include "lora/apply/step_table.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "tensor/arena.h"

namespace motley::lora {

bool touches(const RowMixes& mixes, Site site) {
  if (mixes.batch == nullptr) return false;
  return mixes.table != nullptr ? mixes.table->touches(site) : mixes.batch->touches(site);
}

bool scales(const RowMixes& mixes, Site site) {
  if (mixes.batch == nullptr) return false;
  return mixes.table != nullptr ? mixes.table->scales(site) : mixes.batch->touches(site);
}

void dense_delta(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                 const tensor::ConstTensor& x, const tensor::Tensor& acc,
                 const ops::Context& context) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  if (rows == 0 || !batch.touches(site)) return;
  check_rows(x, rows, x.dim(1));
  check_rows(acc, rows, acc.dim(1));
  MOTLEY_CHECK(context.scratch != nullptr, "scratch for the rows' order");
  const std::array<DeltaOutput, 1> outputs = {{{.site = site, .acc = acc}}};
  const Shrinks shrinks =
      shrinks_of(context.shared_shrinks.dense && has_whole_inputs(site.projection), rows, context);
  for (std::int64_t first = 0; first < rows; first += rows_at_once) {
    const std::size_t mark = context.scratch->mark();
    const std::span<const std::int32_t> order =
        rows_by_label(labels, first, std::min(first + rows_at_once, rows), *context.scratch);
    if (!order.empty()) {
      const auto count = static_cast<std::int64_t>(order.size());
      GroupedDelta delta(batch, x, outputs, count, context, shrinks);
      for_labels(order, labels, [&](std::int32_t label, std::span<const std::int32_t> own) {
        delta.add(label, 0,
                  {.count = static_cast<std::int64_t>(own.size()),
                   .x_rows = own.data(),
                   .y_rows = own.data()});
      });
    }
    context.scratch->rewind(mark);
  }
}

namespace {

// Rows whose adapter replaces the weight get the product with that weight instead.
void replace_rows(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                  const tensor::ConstTensor& x, const tensor::Tensor& acc,
                  const ops::Context& context) {
  constexpr std::int64_t rows_a_task = 32;
  constexpr std::int64_t outputs_a_task = 64;
  const std::int64_t out = acc.dim(1);
  const auto rows = static_cast<std::int64_t>(labels.size());
  for (std::int64_t begin = 0; begin < rows;) {
    // Adjacent rows with the same label share one read of the weight.
    const std::int32_t label = labels[static_cast<std::size_t>(begin)];
    std::int64_t end = begin + 1;
    while (end < rows && end - begin < rows_a_task &&
           labels[static_cast<std::size_t>(end)] == label)
      ++end;
    const SiteView* const view = batch.alone(label, site);
    if (view != nullptr && view->replaced != nullptr) {
      for_task_ranges(context, out, outputs_a_task, [&](std::int64_t first, std::int64_t last) {
        kernels::cpu::gemm_tile(
            {.x = x.bytes() + begin * x.stride(0) * bits(x.dtype()) / 8,
             .x_type = x.dtype(),
             .x_stride = x.stride(0),
             .rows = end - begin,
             .w = page_view(batch.table_dtype(), view->replaced, view->out, view->in),
             .out_begin = first,
             .out_end = last,
             .y = row_of<float>(acc, begin) + first,
             .y_stride = acc.stride(0)});
      });
    }
    begin = end;
  }
}

// Rounds rows [begin, end) of acc, + bias if there is one, into out.
void round_rows(const tensor::Tensor& acc, const float* bias, const tensor::Tensor& out,
                std::int64_t begin, std::int64_t end, const ops::Context& context) {
  MOTLEY_CHECK(context.kernels != nullptr, "a context with kernels");
  context.kernels->round_to({.rows = end - begin,
                             .width = acc.dim(1),
                             .x = row_of<float>(acc, begin),
                             .x_stride = acc.stride(0),
                             .bias = bias,
                             .out = out.bytes() + begin * out.stride(0) * bits(out.dtype()) / 8,
                             .out_type = out.dtype(),
                             .out_stride = out.stride(0)},
                            context.stream);
}

}  // namespace

namespace {

// Completes one linear map on the CPU.
void finish_on_host(const RowMixes& mixes, const tensor::ConstTensor& x,
                    const AdaptedLinear& linear, const ops::Context& context) {
  const auto& [site, acc, bias, out] = linear;
  const std::int64_t rows = acc.dim(0);
  const std::int64_t width = acc.dim(1);
  const Batch* const batch = mixes.batch;
  if (batch == nullptr || batch->empty() || !batch->touches(site)) {
    // The rounding would copy acc onto itself.
    if (bias == nullptr && acc.bytes() == out.bytes()) return;
    return round_rows(acc, bias, out, 0, rows, context);
  }
  const std::span labels(mixes.labels, static_cast<std::size_t>(rows));
  replace_rows(*batch, site, labels, x, acc, context);
  dense_delta(*batch, site, labels, x, acc, context);
  // Adjacent rows with the same bias are rounded together.
  std::int64_t begin = 0;
  const float* shared = bias;
  for (std::int64_t row = 0; row < rows; ++row) {
    const SiteView* const special = batch->alone(labels[static_cast<std::size_t>(row)], site);
    const bool own = special != nullptr && special->replaced_bias != nullptr;
    const float* const row_bias = own ? special->replaced_bias : bias;
    if (row_bias != shared) {
      if (begin < row) round_rows(acc, shared, out, begin, row, context);
      begin = row;
      shared = row_bias;
    }
    if (special == nullptr || special->gain == nullptr) continue;
    float* const sums = row_of<float>(acc, row);
    for (std::int64_t o = 0; o < width; ++o) sums[o] *= special->gain[o];
  }
  if (begin < rows) round_rows(acc, shared, out, begin, rows, context);
}

}  // namespace

void finish_linears(const RowMixes& mixes, const tensor::ConstTensor& x,
                    std::span<const AdaptedLinear> linears, const ops::Context& context) {
  for (const AdaptedLinear& linear : linears) {
    check_rows(linear.acc, x.dim(0), linear.acc.dim(1));
    check_rows(linear.out, x.dim(0), linear.acc.dim(1));
  }
  if (mixes.table != nullptr) return finish_on_device(mixes, x, linears, context, nullptr);
  for (const AdaptedLinear& linear : linears) finish_on_host(mixes, x, linear, context);
}

void finish_heads(const RowMixes& mixes, const tensor::ConstTensor& x,
                  std::span<const AdaptedLinear> linears, const ops::HeadsCall& heads,
                  const ops::Context& context) {
  if (mixes.table != nullptr) return finish_on_device(mixes, x, linears, context, &heads);
  finish_linears(mixes, x, linears, context);
  ops::prepare_heads(context, heads);
}

namespace {

// Computes the embedding of token `id` under a mix into acc.
void embed_row(const Batch& batch, std::int32_t label, std::int32_t id, std::int64_t width,
               float* acc) {
  constexpr Site site{-1, Projection::embed};
  const SiteView* const special = batch.alone(label, site);
  if (special != nullptr && special->replaced != nullptr) {
    MOTLEY_CHECK(id >= 0 && id < special->in, "a token of the vocabulary");
    const float one = 1;
    // A row of the table, times 1.
    kernels::cpu::transposed_tile(
        {.x = &one,
         .rows = 1,
         .w = page_view(batch.table_dtype(), special->replaced, special->in, special->out),
         .first = id,
         .count = 1,
         .in_end = width,
         .y = acc});
  }
  // Only the part that is written is read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
  std::array<float, max_rank> t;
  for (const Batch::Term& term : batch.terms(label)) {
    const SiteView* const view = term.adapter->find(site);
    if (view == nullptr) continue;
    const kernels::FactorEntry& factor = view->factors[0];
    if (factor.rank == 0) continue;
    MOTLEY_CHECK(id >= 0 && id < view->in, "a token of the vocabulary");
    const float scale = factor.scale[0] * term.scale;
    std::ranges::fill_n(t.begin(), factor.split, 0.0F);
    kernels::cpu::transposed_tile({.x = &scale,
                                   .rows = 1,
                                   .w = page_view(batch.dtype(), factor.a, view->in, factor.split),
                                   .first = id,
                                   .count = 1,
                                   .in_end = factor.rank,
                                   .y = t.data()});
    kernels::cpu::expand_tile(
        {.t = t.data(),
         .rows = 1,
         .b = factor.b,
         .b_type = batch.dtype(),
         .b_scales = row_scales(batch.dtype(), factor.b, view->out, factor.split),
         .padded = factor.split,
         .out_end = width,
         .y = acc});
  }
}

}  // namespace

void finish_embedding(const RowMixes& mixes, const std::int32_t* ids, std::int64_t vocabulary,
                      const tensor::Tensor& acc, const tensor::Tensor& out,
                      const ops::Context& context) {
  const std::int64_t rows = acc.dim(0);
  const std::int64_t width = acc.dim(1);
  check_rows(acc, rows, width);
  check_rows(out, rows, width);
  const Batch* const batch = mixes.batch;
  if (mixes.table != nullptr) {
    adapt_embedding_on_device(mixes, ids, vocabulary, acc, context);
  } else if (batch != nullptr && batch->touches({-1, Projection::embed})) {
    for_tasks(context, rows, [&](std::int64_t row) {
      const std::int32_t label = mixes.labels[row];
      if (label != plan::no_label)
        embed_row(*batch, label, ids[row], width, row_of<float>(acc, row));
    });
  }
  if (acc.bytes() != out.bytes()) round_rows(acc, nullptr, out, 0, rows, context);
}

}  // namespace motley::lora
