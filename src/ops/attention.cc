#include "ops/attention.h"

#include <algorithm>
#include <array>

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {
namespace {

// One struct serves writers and readers; kernels that only read do not write.
kernels::Pages pages_of(const tensor::Tensor& pages) {
  check_activation(pages, 4);
  return {.data = pages.bytes(),
          .type = pages.dtype(),
          .page_stride = pages.stride(0),
          .token_stride = pages.stride(1),
          .head_stride = pages.stride(2)};
}
kernels::Pages pages_of(const KvPages& pages) {
  const tensor::Tensor& codes = pages.numbers;
  if (!pages.coded()) return pages_of(codes);
  const tensor::Tensor& exponents = pages.exponents;
  MOTLEY_CHECK(codes.shape().rank() == 4 && codes.stride(3) == 1, "contiguous columns");
  MOTLEY_CHECK(exponents.shape().rank() == 3 && exponents.dim(0) == codes.dim(0) &&
                   exponents.dim(1) == codes.dim(2) && exponents.dim(2) == codes.dim(1) &&
                   exponents.stride(0) == codes.stride(0) && exponents.stride(1) == codes.dim(1) &&
                   exponents.stride(2) == 1,
               "exponents in the codes' pages, head by head");
  return {.data = codes.bytes(),
          .type = codes.dtype(),
          .page_stride = codes.stride(0),
          .token_stride = codes.stride(1),
          .head_stride = codes.stride(2),
          .exponents = exponents.data<std::uint8_t>(),
          .fixed_scale = pages.fixed_scale};
}

kernels::PagedTail tail_of(const KvPages& pages) {
  if (pages.tail_width() == 0) return {};
  MOTLEY_CHECK(pages.coded() && pages.heads() == 1 && pages.tail.dim(2) == 1 &&
                   pages.tail.dtype() == DType::bf16,
               "a tail in bf16 behind the codes of one head");
  return {.pages = pages_of(pages.tail), .width = pages.tail_width()};
}

kernels::Sequences sequences_of(const PagedRows& rows, const tensor::ConstTensor& x) {
  MOTLEY_CHECK(rows.seq_begin != nullptr && rows.positions != nullptr, "rows of sequences");
  // The host cannot check arrays in a GPU's memory.
  if (x.device().kind == tensor::DeviceKind::cpu)
    MOTLEY_CHECK(rows.seq_begin[0] == 0 && rows.seq_begin[rows.sequences] == x.dim(0),
                 "a position and a sequence for every row");
  return {.count = rows.sequences,
          .seq_begin = rows.seq_begin,
          .positions = rows.positions,
          .rows = x.dim(0),
          .max_rows = rows.max_rows,
          .least_rows = rows.least_rows};
}

kernels::BlockTable table_of(const PagedRows& rows, std::int64_t page_tokens) {
  const tensor::ConstTensor& table = rows.block_table;
  MOTLEY_CHECK(table.shape().rank() == 2 && (table.dim(1) <= 1 || table.stride(1) == 1),
               "a row of pages for each sequence");
  MOTLEY_CHECK(table.dim(0) >= rows.sequences, "pages for every sequence");
  MOTLEY_CHECK(page_tokens > 0, "pages that hold positions");
#ifdef MOTLEY_DEBUG
  if (table.device().kind == tensor::DeviceKind::cpu) {
    for (std::int64_t row = 0; row < rows.seq_begin[rows.sequences]; ++row) {
      const std::int32_t position = rows.positions[row];
      MOTLEY_DCHECK(position >= 0 && position / page_tokens < table.dim(1), "a page for it");
    }
  }
#endif
  return {
      .pages = table.data<std::int32_t>(), .stride = table.stride(0), .page_tokens = page_tokens};
}

}  // namespace

KvPages values_in_keys(const KvPages& keys, std::int64_t width) {
  KvPages values = keys;
  values.tail = {};
  values.numbers = keys.numbers.slice(3, 0, width);
  return values;
}

void gather_kv(const Context& context, const PagedRows& rows, const KvPages& pages,
               const GatheredRows& gathered) {
  check_context(context);
  const tensor::Tensor& out = gathered.out;
  const DType type = pages.coded() ? DType::bf16 : pages.numbers.dtype();
  MOTLEY_CHECK(out.shape().rank() == 2 && pages.heads() == 1 && out.dim(1) == pages.width() &&
                   out.dtype() == type && out.stride(1) == 1,
               "rows of one head of the pages");
  MOTLEY_CHECK((gathered.labels == nullptr) == (gathered.out_labels == nullptr),
               "labels with a place to go to");
  context.kernels->gather_paged({.rows = out.dim(0),
                                 .begin = gathered.begin,
                                 .sequences = {.count = rows.sequences,
                                               .seq_begin = rows.seq_begin,
                                               .positions = rows.positions},
                                 .table = table_of(rows, pages.page_tokens()),
                                 .pages = pages_of(pages),
                                 .tail = tail_of(pages),
                                 .width = out.dim(1),
                                 .out = out.bytes(),
                                 .out_stride = out.stride(0),
                                 .labels = gathered.labels,
                                 .out_labels = gathered.out_labels},
                                context.stream);
}

DType query_type(const Context& context, const ExpandedWidths& widths) {
  const auto pages = [](std::int64_t width) -> kernels::Pages {
    return {.type = DType::bf16, .page_stride = width, .token_stride = width, .head_stride = width};
  };
  return context.kernels->attention_queries(
      {.table = {.pages = nullptr, .stride = 1, .page_tokens = rows_after_positions},
       .k = pages(widths.keys - widths.shared),
       .v = pages(widths.values),
       .shared_k = pages(widths.shared),
       .shared_width = widths.shared,
       .kv_heads = 1,
       .key_width = widths.keys,
       .value_width = widths.values});
}

DType query_type(const Context& context, DType type, const PagedWidths& widths) {
  const bool coded = type == DType::f8_e4m3;
  // Latents' rotated columns stand behind the codes.
  const std::int64_t tail = coded && widths.values_in_keys ? widths.keys - widths.values : 0;
  const auto pages = [&](std::int64_t width) -> kernels::Pages {
    const std::int64_t token = widths.kv_heads * width;
    return {.type = type,
            .page_stride = widths.page_tokens * (token + (coded ? widths.kv_heads + 2 * tail : 0)),
            .token_stride = token,
            .head_stride = width};
  };
  const kernels::Pages keys = pages(widths.keys - tail);
  return context.kernels->attention_queries(
      {.table = {.pages = nullptr, .stride = 1, .page_tokens = widths.page_tokens},
       .k = keys,
       .v = widths.values_in_keys ? keys : pages(widths.values),
       .shared_k = {.type = DType::bf16,
                    .page_stride = keys.page_stride / 2,
                    .token_stride = tail,
                    .head_stride = tail},
       .shared_width = tail,
       .kv_heads = widths.kv_heads,
       .key_width = widths.keys,
       .value_width = widths.values,
       // Kernels that round queries read codes in float32 mode too, but must not.
       .q_type = coded && !context.exact ? DType::bf16 : DType::f32});
}

namespace {

kernels::HeadGates gates_of(const tensor::ConstTensor& gates, const tensor::Tensor& out) {
  if (gates.bytes() == nullptr) return {};
  MOTLEY_CHECK(gates.dtype() == DType::f32 && gates.shape() == out.shape() && gates.stride(2) == 1,
               "a gate for each column of the result");
  return {.data = gates.data<float>(), .stride = gates.stride(0), .head_stride = gates.stride(1)};
}

// Everything except keys and values.
kernels::Attention call_of(const Context& context, const PagedRows& rows,
                           const tensor::ConstTensor& q, const AttentionOptions& options,
                           const tensor::Tensor& out) {
  check_context(context);
  check_activation(q, 3);
  check_activation(out, 3);
  MOTLEY_CHECK(out.dim(0) == q.dim(0) && out.dim(1) == q.dim(1), "as many rows and heads as q");
  MOTLEY_CHECK(q.dim(2) <= kernels::max_head_width && out.dim(2) <= kernels::max_head_width,
               "heads that the kernels' registers hold");
  return {.sequences = sequences_of(rows, q),
          .heads = q.dim(1),
          .key_width = q.dim(2),
          .value_width = out.dim(2),
          .scale = options.scale,
          .window = options.window,
          .sinks = options.sinks,
          .gates = gates_of(options.gates, out),
          .q = q.bytes(),
          .q_type = q.dtype(),
          .q_stride = q.stride(0),
          .q_head_stride = q.stride(1),
          .out = out.bytes(),
          .out_type = out.dtype(),
          .out_stride = out.stride(0),
          .out_head_stride = out.stride(1),
          .scratch = options.scratch,
          .batch_invariant = context.batch_invariant};
}

}  // namespace

void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const PagedKeys& pages, const AttentionOptions& options, const tensor::Tensor& out) {
  const auto& [k, v] = pages;
  kernels::Attention call = call_of(context, rows, q, options, out);
  call.table = table_of(rows, k.page_tokens());
  call.k = pages_of(k);
  call.v = pages_of(v);
  const auto [shared, shared_width] = tail_of(k);
  call.shared_k = shared;
  call.shared_width = shared_width;
  call.kv_heads = k.heads();
  MOTLEY_CHECK(call.k.type == call.v.type && v.tail_width() == 0, "keys and values of one type");
  MOTLEY_CHECK(k.page_tokens() == v.page_tokens() && k.heads() == v.heads(),
               "keys and values side by side");
  MOTLEY_CHECK(q.dim(2) == k.width() && out.dim(2) == v.width(), "heads of the pages' widths");
  MOTLEY_CHECK(k.heads() > 0 && q.dim(1) % k.heads() == 0, "whole groups of query heads");
  context.kernels->attention(call, context.stream);
}

void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const ExpandedKeys& expanded, const AttentionOptions& options,
               const tensor::Tensor& out) {
  const auto& [begin, max_positions, keys, shared, values] = expanded;
  kernels::Attention call = call_of(context, rows, q, options, out);
  // Each sequence is one page, which begins at its first row.
  const auto pages = [](const tensor::ConstTensor& x, std::int64_t head_stride) -> kernels::Pages {
    check_activation(x, x.shape().rank());
    return {.data = const_cast<std::byte*>(x.bytes()),
            .type = x.dtype(),
            .page_stride = x.stride(0),
            .token_stride = x.stride(0),
            .head_stride = head_stride};
  };
  call.table = {
      .pages = begin, .stride = 1, .page_tokens = std::max(max_positions, rows_after_positions)};
  call.k = pages(keys, keys.stride(1));
  call.v = pages(values, values.stride(1));
  call.shared_k = pages(shared, shared.dim(1));
  call.shared_width = shared.dim(1);
  call.kv_heads = keys.dim(1);
  MOTLEY_CHECK(call.k.type == call.v.type && call.k.type == call.shared_k.type,
               "keys and values of one type");
  MOTLEY_CHECK(
      keys.dim(1) == values.dim(1) && keys.dim(0) == values.dim(0) && keys.dim(0) == shared.dim(0),
      "keys and values side by side");
  MOTLEY_CHECK(q.dim(2) == keys.dim(2) + shared.dim(1) && out.dim(2) == values.dim(2),
               "heads of the keys' and values' widths");
  MOTLEY_CHECK(keys.dim(1) > 0 && q.dim(1) % keys.dim(1) == 0, "whole groups of query heads");
  context.kernels->attention(call, context.stream);
}

HeadsCall::HeadsCall(const Context& context, const PagedRows& rows, const PreparedRope& rope,
                     std::span<const PreparedHeads> all)
    : heads_{} {
  check_context(context);
  MOTLEY_CHECK(!all.empty() && all.size() <= max_prepared_heads, "some projections of a layer");
  std::int64_t page_tokens = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [x, bias, norm, rotated, pages, out] = all[i];
    check_activation(x, 3);
    MOTLEY_CHECK(bias == nullptr || x.stride(1) == x.dim(2), "a bias of heads side by side");
    heads_[i] = {.heads = x.dim(1),
                 .width = x.dim(2),
                 .x = x.bytes(),
                 .x_type = x.dtype(),
                 .x_stride = x.stride(0),
                 .x_head_stride = x.stride(1),
                 .bias = bias,
                 .norm_weight = norm.weight,
                 .eps = norm.options.eps,
                 .weight_in_f32 = norm.options.weight_in_f32};
    if (rotated) {
      MOTLEY_CHECK(rope.cos_sin.is_contiguous() && rope.cos_sin.dim(1) <= x.dim(2) &&
                       rope.cos_sin.dim(0) == x.dim(0),
                   "rotated elements inside the head");
      heads_[i].cos_sin = rope.cos_sin.data<float>();
      heads_[i].pairs = rope.cos_sin.dim(1) / 2;
      heads_[i].interleaved = rope.interleaved;
    }
    if (out.bytes() != nullptr) {
      check_activation(out, 3);
      MOTLEY_CHECK(out.shape() == x.shape(), "heads written as they are");
      heads_[i].out = out.bytes();
      heads_[i].out_type = out.dtype();
      heads_[i].out_stride = out.stride(0);
      heads_[i].out_head_stride = out.stride(1);
    }
    if (!pages.stored()) continue;
    MOTLEY_CHECK(x.dim(1) == pages.heads() && x.dim(2) == pages.width(),
                 "heads of the pages' size");
    heads_[i].pages = pages_of(pages);
    heads_[i].tail = tail_of(pages);
    page_tokens = pages.page_tokens();
  }
  const tensor::Tensor& first = all.front().x;
  params_ = {.rows = first.dim(0), .count = static_cast<std::int64_t>(all.size())};
  if (page_tokens == 0) return;
  params_.sequences = sequences_of(rows, first);
  params_.table = table_of(rows, page_tokens);
}

void prepare_latent(const Context& context, const PagedRows& rows, const PreparedRope& rope,
                    const LatentRows& latent, const KvPages& pages) {
  const auto& [first_row, count, kv, norm, q, out] = latent;
  check_context(context);
  check_float32(kv, 2);
  check_float32(q, 3);
  check_activation(out, 3);
  const std::int64_t dims = rope.cos_sin.dim(1);
  MOTLEY_CHECK(rope.cos_sin.is_contiguous() && rope.cos_sin.dim(0) == kv.dim(0),
               "a row of angles for each");
  MOTLEY_CHECK(pages.heads() == 1 && pages.width() == kv.dim(1) && dims < kv.dim(1),
               "one head of the pages' width");
  MOTLEY_CHECK(q.dim(0) == kv.dim(0) && out.dim(0) == q.dim(0) && out.dim(1) == q.dim(1) &&
                   dims <= out.dim(2) && out.dim(2) <= q.dim(2),
               "the rotated columns of every head, and some before them");
  MOTLEY_CHECK(first_row >= 0 && first_row + count <= kv.dim(0), "rows that are there");
  context.kernels->prepare_latent({.first_row = first_row,
                                   .rows = count,
                                   .kv = kv.data<float>(),
                                   .kv_stride = kv.stride(0),
                                   .latent = kv.dim(1) - dims,
                                   .norm_weight = norm.weight,
                                   .eps = norm.options.eps,
                                   .weight_in_f32 = norm.options.weight_in_f32,
                                   .cos_sin = rope.cos_sin.data<float>(),
                                   .pairs = dims / 2,
                                   .interleaved = rope.interleaved,
                                   .q = q.data<float>(),
                                   .heads = q.dim(1),
                                   .width = q.dim(2),
                                   .q_stride = q.stride(0),
                                   .q_head_stride = q.stride(1),
                                   .out = out.bytes(),
                                   .out_from = q.dim(2) - out.dim(2),
                                   .out_type = out.dtype(),
                                   .out_stride = out.stride(0),
                                   .out_head_stride = out.stride(1),
                                   .sequences = {.count = rows.sequences,
                                                 .seq_begin = rows.seq_begin,
                                                 .positions = rows.positions},
                                   .table = table_of(rows, pages.page_tokens()),
                                   .pages = pages_of(pages),
                                   .tail = tail_of(pages)},
                                  context.stream);
}

void prepare_heads(const Context& context, const HeadsCall& call) {
  context.kernels->prepare_heads(call.params(), context.stream);
}

}  // namespace motley::ops
