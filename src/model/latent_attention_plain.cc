#include "model/latent_attention_plain.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace motley::model {

using tensor::ConstTensor;
using tensor::Tensor;

namespace {

// float32 numbers that grow with a sequence.
class Numbers {
 public:
  explicit Numbers(const tensor::Shape& shape)
      : values_(static_cast<std::size_t>(shape.elements())),
        view_(reinterpret_cast<std::byte*>(values_.data()), DType::f32, shape) {}
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() = default;

  const Tensor& view() const { return view_; }

 private:
  std::vector<float> values_;
  Tensor view_;
};

// One sequence of the step.
struct Sequence {
  const std::int32_t* pages;
  std::int64_t length;  // positions [0, length) are in its pages
  std::int64_t begin;   // its rows of the step
  std::int64_t end;
  std::int32_t label;
};

Sequence sequence_of(const Batch& batch, std::int64_t index) {
  const ops::PagedRows& rows = batch.rows;
  const ConstTensor& table = rows.block_table;
  Sequence sequence{.pages = table.data<std::int32_t>() + index * table.stride(0),
                    .length = 0,
                    .begin = rows.seq_begin[index],
                    .end = rows.seq_begin[index + 1],
                    .label = plan::no_label};
  const auto count = static_cast<std::size_t>(sequence.end - sequence.begin);
  if (count == 0) return sequence;
  const std::span positions(rows.positions + sequence.begin, count);
  sequence.length = std::int64_t{std::ranges::max(positions)} + 1;
  if (batch.mixes.batch == nullptr) return sequence;
  const std::span labels(batch.mixes.labels + sequence.begin, count);
  sequence.label = labels.front();
  MOTLEY_CHECK(std::ranges::count(labels, sequence.label) == std::ssize(labels),
               "one mix for a sequence's rows");
  return sequence;
}

// Its latents [length, kv_rank] and turned keys [length, rope_dim] out of its pages.
void gather(const ops::Context& context, const Sequence& sequence, const Tensor& pages,
            const Tensor& latents, const Tensor& turned) {
  const std::int64_t page_tokens = pages.dim(1);
  const std::int64_t kl = latents.dim(1);
  for (std::int64_t position = 0; position < sequence.length; ++position) {
    const Tensor kept =
        pages.select(sequence.pages[position / page_tokens]).select(position % page_tokens);
    ops::round_to(context, kept.slice(1, 0, kl), {}, latents.slice(0, position, position + 1));
    ops::round_to(context, kept.slice(1, kl, kl + turned.dim(1)), {},
                  turned.slice(0, position, position + 1));
  }
}

// The sequence's rows: q [rows, heads, nope_dim + rope_dim] -> values [rows, heads, value_dim].
void attend(const LatentAttention& block, const Step& step, const Sequence& sequence,
            const Tensor& pages, const Tensor& q, const Tensor& values) {
  const ops::Context& context = step.context;
  const std::int64_t length = sequence.length;
  const std::int64_t heads = block.heads;
  const std::int64_t dn = block.sizes.nope_dim;
  const std::int64_t dr = block.sizes.rope_dim;
  const std::int64_t dv = block.sizes.value_dim;
  const Numbers latents({length, block.sizes.kv_rank});
  const Numbers turned({length, dr});
  gather(context, sequence, pages, latents.view(), turned.view());

  // Each latent to [key | value] of every head. apply(Linear) would take the product's room from
  // the step's scratch.
  const Numbers expanded({length, block.kv_b.out()});
  const Linear& kv_b = block.kv_b;
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(length), sequence.label);
  ops::linear(context, latents.view(), kv_b.weight, expanded.view());
  lora::finish_linears({.batch = step.batch.mixes.batch, .labels = labels.data()}, latents.view(),
                       std::array{lora::AdaptedLinear{.site = kv_b.site,
                                                      .acc = expanded.view(),
                                                      .bias = kv_b.bias.data(),
                                                      .out = expanded.view()}},
                       context);

  // [nope | turned key]; the heads share the latter.
  const Numbers keys({length, heads, dn + dr});
  ops::round_to(context, expanded.view().reshape({length * heads, dn + dv}).slice(1, 0, dn), {},
                keys.view().reshape({length * heads, dn + dr}).slice(1, 0, dn));
  const Tensor keys_by_position = keys.view().reshape({length, heads * (dn + dr)});
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t first = head * (dn + dr) + dn;
    ops::round_to(context, turned.view(), {}, keys_by_position.slice(1, first, first + dr));
  }

  // One page holds the whole sequence.
  const std::int32_t page = 0;
  const std::array seq_begin = {0, static_cast<std::int32_t>(sequence.end - sequence.begin)};
  const ops::PagedRows rows{
      .sequences = 1,
      .seq_begin = seq_begin.data(),
      .positions = step.batch.rows.positions + sequence.begin,
      .block_table = ConstTensor(reinterpret_cast<const std::byte*>(&page), DType::i32, {1, 1})};
  ops::attention(context, rows, q, keys.view().reshape({1, length, heads, dn + dr}),
                 expanded.view().reshape({1, length, heads, dn + dv}).slice(3, dn, dn + dv),
                 {.scale = block.scale}, values);
}

}  // namespace

void apply_plain(const LatentAttention& block, const Step& step, const LayerPages& pages,
                 const ConstTensor& x, const Tensor& out) {
  const ops::Context& context = step.context;
  const std::int64_t rows = step.rows();
  const std::int64_t heads = block.heads;
  const std::int64_t q_width = block.sizes.nope_dim + block.sizes.rope_dim;
  const std::int64_t dv = block.sizes.value_dim;
  Scratch scratch(context);
  const Tensor q = scratch.take(DType::f32, {rows, heads, q_width});
  const Projected projected = project(block, step, x, scratch);
  prepare(block, step, pages, step.batch.whole(), projected, q);

  const Tensor values = scratch.take(DType::f32, {rows, heads, dv});
  for (std::int64_t index = 0; index < step.batch.rows.sequences; ++index) {
    const Sequence sequence = sequence_of(step.batch, index);
    if (sequence.begin == sequence.end) continue;
    attend(block, step, sequence, pages.keys, q.slice(0, sequence.begin, sequence.end),
           values.slice(0, sequence.begin, sequence.end));
  }
  const Tensor rounded = scratch.take(step.activations, {rows, heads * dv});
  ops::round_to(context, values.reshape({rows, heads * dv}), {}, rounded);
  apply(block.o, step, rounded, out);
}

}  // namespace motley::model
