#include "model/latent_attention_expanded.h"

#include <algorithm>
#include <array>

#include "lora/step_table.h"
#include "ops/linear.h"

namespace motley::model {

using tensor::Tensor;

namespace {

// Of keys and values in a step's scratch, unless its own rows take more.
constexpr std::int64_t most_expanded_bytes = std::int64_t{256} << 20;
// Accumulators of the product that stay in a GPU's second-level cache until they are rounded.
constexpr std::int64_t accumulator_bytes = std::int64_t{32} << 20;

ops::ExpandedWidths widths_of(const LatentConfig& sizes) {
  return {
      .keys = sizes.nope_dim + sizes.rope_dim, .shared = sizes.rope_dim, .values = sizes.value_dim};
}

std::int64_t latent_width(const LatentAttention& block) {
  return block.sizes.kv_rank + block.sizes.rope_dim;
}

std::int64_t accumulated_rows(const LatentAttention& block) {
  const std::int64_t bytes = block.kv_b.out() * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(accumulator_bytes / bytes, 1);
}

// latents [positions, kv_rank] through kv_b under their labels, into expanded [positions, out].
void expand(const LatentAttention& block, const Step& step, const Tensor& latents,
            const std::int32_t* labels, const Tensor& expanded) {
  const ops::Context& context = step.context;
  const lora::RowMixes& mixes = step.batch.mixes;
  const std::int64_t positions = latents.dim(0);
  std::int64_t at_once = accumulated_rows(block);
  if (mixes.table != nullptr) at_once = std::min<std::int64_t>(at_once, mixes.table->limits().rows);
  Scratch scratch(context);
  const Tensor sums = scratch.take(DType::f32, {std::min(at_once, positions), block.kv_b.out()});
  for (std::int64_t first = 0; first < positions; first += at_once) {
    const std::int64_t end = std::min(first + at_once, positions);
    const Tensor x = latents.slice(0, first, end);
    const Tensor acc = sums.slice(0, 0, end - first);
    ops::linear(context, x, block.expanding(), acc);
    lora::finish_linears({.batch = mixes.batch,
                          .labels = labels + first,
                          .table = mixes.table,
                          .labels_in_step = true},
                         x,
                         std::array{lora::AdaptedLinear{.site = block.kv_b.site,
                                                        .acc = acc,
                                                        .bias = block.kv_b.bias.data(),
                                                        .out = expanded.slice(0, first, end)}},
                         context);
  }
}

}  // namespace

bool can_expand(const LatentAttention& block, const ops::Context& context) {
  return !context.exact && !context.batch_invariant &&
         ops::query_type(context, widths_of(block.sizes)) == DType::bf16;
}

std::int64_t most_expanded(const LatentAttention& block, std::int64_t rows, std::int64_t tokens) {
  const std::int64_t bytes = 2 * (latent_width(block) + block.kv_b.out());
  return std::max(rows, std::min(rows + tokens, most_expanded_bytes / bytes));
}

std::size_t expanded_scratch_bytes(const LatentAttention& block, std::int64_t rows,
                                   std::int64_t positions, DType kept) {
  if (positions == 0) return 0;
  const auto floats = [&](std::int64_t width) { return (width * bits(kept) + 31) / 32; };
  const std::int64_t q_width = block.heads * (block.sizes.nope_dim + block.sizes.rope_dim);
  return scratch_bytes(rows, {q_width}) +
         scratch_bytes(positions + ops::rows_behind_expanded,
                       {1, floats(latent_width(block)), floats(block.kv_b.out())}) +
         scratch_bytes(std::min(accumulated_rows(block), positions), {block.kv_b.out()});
}

void attend_expanded(const LatentAttention& block, const Step& step, const LayerPages& pages,
                     const StepPart& part, const Projected& projected, const Tensor& mixed) {
  const ops::Context& context = step.context;
  const LatentConfig& sizes = block.sizes;
  const std::int64_t heads = block.heads;
  const std::int64_t dn = sizes.nope_dim;
  const std::int64_t dv = sizes.value_dim;
  const ops::PagedRows rows = step.batch.rows_of(part);
  const std::int32_t* const begin = step.batch.expanded_begin;
  Scratch scratch(context);
  const Tensor queries = scratch.take(ops::query_type(context, widths_of(sizes)),
                                      {step.rows(), heads, dn + sizes.rope_dim});
  prepare(block, step, pages, part, projected, queries);

  const std::int64_t all = part.positions + ops::rows_behind_expanded;
  const DType type = pages.keys.dtype();
  const Tensor kept = scratch.take(type, {all, latent_width(block)});
  const Tensor expanded = scratch.take(type, {all, block.kv_b.out()});
  const Tensor labels = scratch.take(DType::i32, {all});
  const bool adapted = step.batch.mixes.batch != nullptr;
  ops::gather_kv(context, rows, pages.keys,
                 {.begin = begin,
                  .out = kept.slice(0, 0, part.positions),
                  .labels = adapted ? step.batch.mixes.labels : nullptr,
                  .out_labels = adapted ? labels.data<std::int32_t>() : nullptr});
  expand(block, step, kept.slice(0, 0, part.positions).slice(1, 0, sizes.kv_rank),
         labels.data<std::int32_t>(), expanded.slice(0, 0, part.positions));

  const Tensor by_head = expanded.reshape({all, heads, dn + dv});
  ops::attention(context, rows, queries,
                 {.begin = begin,
                  .most_positions = part.most_positions,
                  .keys = by_head.slice(2, 0, dn),
                  .shared = kept.slice(1, sizes.kv_rank, latent_width(block)),
                  .values = by_head.slice(2, dn, dn + dv)},
                 {.scale = block.scale, .scratch = step.attention_scratch},
                 mixed.reshape({step.rows(), heads, dv}));
}

}  // namespace motley::model
