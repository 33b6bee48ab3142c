#include "lora/apply/device.h"

#include <algorithm>

#include "base/check.h"
#include "base/function_ref.h"
#include "kernels/elementary.h"
#include "lora/apply/batch.h"
#include "lora/apply/step_table.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/over_ranks.h"

namespace motley::lora {
namespace {

const kernels::AdapterTable& kernels_of(const ops::Context& context) {
  MOTLEY_CHECK(context.kernels != nullptr && context.kernels->adapters->linears != nullptr,
               "kernels that read a step's table");
  return *context.kernels->adapters;
}

// No adapter has an entry at the site: only a rounding is left, if any.
void round_on_device(const AdaptedLinear& linear, const ops::Context& context) {
  const auto& [site, acc, bias, out] = linear;
  if (bias == nullptr && acc.bytes() == out.bytes()) return;
  context.kernels->round_to({.rows = acc.dim(0),
                             .width = acc.dim(1),
                             .x = acc.bytes(),
                             .x_stride = acc.stride(0),
                             .bias = bias,
                             .out = out.bytes(),
                             .out_type = out.dtype(),
                             .out_stride = out.stride(0)},
                            context.stream);
}

kernels::AdaptLinears call_of(const RowMixes& mixes, const tensor::ConstTensor& x,
                              std::span<const AdaptedLinear> linears) {
  const StepTable& table = *mixes.table;
  MOTLEY_CHECK(x.dim(0) <= table.limits().rows, "rows that the table's rank space holds");
  kernels::AdaptLinears call{.adapters = table.rows(mixes.labels, x.dim(0)),
                             .x = x.bytes(),
                             .x_type = x.dtype(),
                             .x_stride = x.stride(0),
                             .in = x.dim(1),
                             .rank_rows = table.rank_rows(),
                             .max_ranks = table.scope().max_ranks,
                             .many_labels = table.scope().many_labels};
  call.adapters.labels_in_step = mixes.labels_in_step;
  for (const AdaptedLinear& linear : linears) {
    if (mixes.batch == nullptr || !table.touches(linear.site)) continue;
    MOTLEY_CHECK(call.count < kernels::max_adapted_linears, "as many maps as one call takes");
    call.linears[call.count++] = {.site = StepTable::entry_of(linear.site),
                                  .out = linear.acc.dim(1),
                                  .acc = linear.acc.data<float>(),
                                  .acc_stride = linear.acc.stride(0),
                                  .bias = linear.bias,
                                  .result = linear.out.bytes(),
                                  .result_type = linear.out.dtype(),
                                  .result_stride = linear.out.stride(0)};
    call.replaced = call.replaced || table.replaces(linear.site);
  }
  return call;
}

bool may_share_shrinks(std::span<const AdaptedLinear> linears, const ops::Context& context) {
  return context.shared_shrinks.dense &&
         std::ranges::all_of(linears, [](const AdaptedLinear& linear) {
           return has_whole_inputs(linear.site.projection);
         });
}

}  // namespace

void finish_on_device(const RowMixes& mixes, const tensor::ConstTensor& x,
                      std::span<const AdaptedLinear> linears, const ops::Context& context,
                      const ops::HeadsCall* heads) {
  for (const AdaptedLinear& linear : linears) {
    if (mixes.batch == nullptr || !mixes.table->touches(linear.site))
      round_on_device(linear, context);
  }
  kernels::AdaptLinears call = call_of(mixes, x, linears);
  const auto gather = [&](void* parts, std::int64_t bytes) {
    ops::gather_parts_over_ranks(context, static_cast<std::byte*>(parts), bytes);
  };
  const FunctionRef<void(void*, std::int64_t)> gather_parts = gather;
  if (may_share_shrinks(linears, context))
    call.shared = {.rank = context.ranks->rank(),
                   .ranks = context.ranks->ranks(),
                   .from_rows = context.shared_shrinks.from_rows.value_or(-1),
                   .gather = &gather_parts};
  const kernels::AdapterTable& kernels = kernels_of(context);
  if (heads == nullptr) {
    if (call.count > 0) kernels.linears(call, context.stream);
  } else if (call.count > 0) {
    kernels.heads({.linears = call, .heads = heads->params()}, context.stream);
  } else {
    ops::prepare_heads(context, *heads);
  }
}

bool takes_norm(const RowMixes& mixes, const tensor::ConstTensor& x, const AdaptedLinear& linear,
                const kernels::AddAndNorm& rows, const ops::Context& context) {
  if (mixes.table == nullptr) return false;
  const kernels::AdaptLinears call = call_of(mixes, x, std::span(&linear, 1));
  return call.count > 0 && kernels_of(context).takes_norm({.linear = call, .rows = rows});
}

void finish_linear_and_norm(const RowMixes& mixes, const tensor::ConstTensor& x,
                            const AdaptedLinear& linear, const kernels::AddAndNorm& rows,
                            const ops::Context& context) {
  kernels_of(context).linear_and_norm(
      {.linear = call_of(mixes, x, std::span(&linear, 1)), .rows = rows}, context.stream);
}

void adapt_embedding_on_device(const RowMixes& mixes, const std::int32_t* ids,
                               std::int64_t vocabulary, const tensor::Tensor& out,
                               const ops::Context& context) {
  constexpr Site site{-1, Projection::embed};
  if (mixes.batch == nullptr || !mixes.table->touches(site)) return;
  kernels_of(context).embedding({.adapters = mixes.table->rows(mixes.labels, out.dim(0)),
                                 .site = StepTable::entry_of(site),
                                 .ids = ids,
                                 .vocabulary = vocabulary,
                                 .width = out.dim(1),
                                 .out = out.data<float>(),
                                 .out_stride = out.stride(0)},
                                context.stream);
}

void adapt_latent_on_device(const RowMixes& mixes, const KvB& kv_b, LatentPart part,
                            const LatentCall& asked, const ops::Context& context) {
  const auto& [heads, latent, rounded] = asked;
  const Site site{kv_b.layer, Projection::kv_b};
  if (mixes.batch == nullptr || !mixes.table->touches(site)) return;
  if (part == LatentPart::query_gains && !mixes.table->scales(site)) return;
  kernels::AdaptLatent call{.adapters = mixes.table->rows(mixes.labels, heads.dim(0)),
                            .site = StepTable::entry_of(site),
                            .heads = heads.dim(1),
                            .rows_a_head = kv_b.rows_a_head,
                            .width = heads.dim(2),
                            // One struct serves all parts; each writes only its own side.
                            .heads_data = const_cast<std::byte*>(heads.bytes()),
                            .heads_type = heads.dtype(),
                            .heads_stride = heads.stride(0),
                            .heads_head_stride = heads.stride(1)};
  const kernels::AdapterTable& kernels = kernels_of(context);
  if (part != LatentPart::query_gains) {
    call.latent = latent.dim(2);
    call.latent_data = const_cast<float*>(latent.data<float>());
    call.latent_stride = latent.stride(0);
    call.latent_head_stride = latent.stride(1);
  }
  if (rounded.bytes() != nullptr) {
    MOTLEY_CHECK(rounded.dtype() == DType::bf16, "rounded to bf16");
    call.rounds = true;
    call.rounded = rounded.bytes();
    call.rounded_stride = rounded.stride(0);
    call.rounded_head_stride = rounded.stride(1);
  }
  switch (part) {
    case LatentPart::query_gains:
      return kernels.scale_queries(call, context.stream);
    case LatentPart::key_delta:
      return kernels.latent_queries(call, context.stream);
    case LatentPart::value_delta:
      return kernels.latent_values(call, context.stream);
  }
}

}  // namespace motley::lora
