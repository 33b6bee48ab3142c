#include "model/linear.h"

#include <array>
#include <span>

#include "base/cat.h"
#include "kernels/elementary.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "quant/upload.h"

namespace motley::model {

namespace {

// Whether weights that stand side by side are one weight, and rows begin where loads like it.
bool can_stand_together(const quant::Weight& first, const quant::Weight& other) {
  constexpr std::size_t alignment = 16;
  return other.format() == first.format() && other.in() == first.in() &&
         other.format().scales == quant::Format::Scales::none &&
         quant::data_bytes(other) % alignment == 0;
}

}  // namespace

Result<Linear> load_linear(WeightSource& source, const LinearSpec& spec) {
  Linear linear;
  auto alone = load_linears(source, {{&linear, spec}});
  if (!alone.ok()) return std::move(alone).error();
  return linear;
}

Result<tensor::Buffer> load_linears(WeightSource& source,
                                    std::initializer_list<std::pair<Linear*, LinearSpec>> maps) {
  const Linear* const first = maps.begin()->first;
  bool together = maps.size() > 1;
  std::size_t bytes = 0;
  for (const auto& [linear, spec] : maps) {
    linear->site = spec.site;
    MOTLEY_TRY(linear->weight, source.matrix(spec.module, spec.size));
    if (spec.bias) {
      MOTLEY_TRY(linear->bias, source.vector(cat(spec.module, ".bias"), spec.size.out));
    }
    together = together && can_stand_together(first->weight, linear->weight);
    bytes += quant::data_bytes(linear->weight);
  }
  tensor::Buffer memory;
  quant::Uploader* const uploader = source.memory().uploader;
  if (uploader == nullptr) return memory;
  if (together) {
    MOTLEY_TRY(memory, source.memory().device.allocate(bytes));
  }
  std::byte* to = memory.data();
  for (const auto& [linear, spec] : maps) {
    linear->stored = std::move(linear->weight);
    if (together) {
      const std::size_t own = quant::data_bytes(linear->stored);
      MOTLEY_TRY_VOID(uploader->copy(to, linear->stored.view().data, own));
      linear->weight = quant::Weight::borrow(linear->stored.format(), spec.size, to, {});
      to += own;
    } else {
      MOTLEY_TRY(linear->weight, spec.float32_rows ? source.resident_for_float32(linear->stored)
                                                   : source.resident(linear->stored));
    }
  }
  return memory;
}

namespace {

// Maps that share x, as products and as what comes behind them.
struct Calls {
  std::array<lora::AdaptedLinear, most_linear_calls> all;
  std::array<ops::Product, most_linear_calls> all_products;
  std::size_t count = 0;

  Calls(std::initializer_list<LinearCall> calls, std::int64_t rows, Scratch& scratch) {
    MOTLEY_CHECK(calls.size() <= most_linear_calls, "as many maps as one call takes");
    for (const auto& [linear, out] : calls) {
      // float32 results are their own accumulators.
      const tensor::Tensor acc =
          out.dtype() == DType::f32 ? out : scratch.take(DType::f32, {rows, linear.out()});
      all_products[count] = {&linear.weight, acc};
      all[count++] = {.site = linear.site, .acc = acc, .bias = linear.bias.data(), .out = out};
    }
  }
  std::span<const lora::AdaptedLinear> linears() const { return std::span(all).first(count); }
  std::span<const ops::Product> products() const { return std::span(all_products).first(count); }
};

}  // namespace

void apply(std::initializer_list<LinearCall> calls, const ops::Context& context,
           const lora::RowMixes& mixes, const tensor::ConstTensor& x) {
  Scratch scratch(context);
  const Calls parts(calls, x.dim(0), scratch);
  ops::linears(context, x, parts.products());
  lora::finish_linears(mixes, x, parts.linears(), context);
}

void apply(std::initializer_list<LinearCall> calls, const Step& step, const NormedSum& entry,
           const kernels::Ahead& ahead, const ops::HeadsCall* heads) {
  const ops::Context& context = step.context;
  const lora::RowMixes& mixes = step.batch.mixes;
  Scratch scratch(context);
  const Calls parts(calls, step.rows(), scratch);
  if (entry.made || entry.addend.bytes() == nullptr) {
    apply(entry, context);
    ops::linears(context, entry.x, parts.products(), ahead);
  } else {
    ops::norm_and_linears(context, call_of(entry, context), entry.x, parts.products(), ahead);
  }
  if (heads == nullptr) return lora::finish_linears(mixes, entry.x, parts.linears(), context);
  lora::finish_heads(mixes, entry.x, parts.linears(), *heads, context);
}

kernels::Ahead reading(const Linear& linear) {
  return {.data = linear.weight.view().data,
          .bytes = static_cast<std::int64_t>(quant::data_bytes(linear.weight))};
}

void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  apply({{linear, out}}, step.context, step.batch.mixes, x);
}

void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out, NormedSum& next) {
  const ops::Context& context = step.context;
  const lora::RowMixes& mixes = step.batch.mixes;
  Scratch scratch(context);
  const Calls parts({{linear, out}}, step.rows(), scratch);
  ops::linears(context, x, parts.products());
  const lora::AdaptedLinear& map = parts.linears().front();
  next.made = map.acc.bytes() == out.bytes() &&
              lora::finish_linear_and_norm(mixes, x, map, call_of(next, context), context);
  if (!next.made) lora::finish_linears(mixes, x, parts.linears(), context);
}

void apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  ops::rms_norm(context, x, norm.weight.view(), norm.options(), out);
}

kernels::AddAndNorm call_of(const NormedSum& entry, const ops::Context& context) {
  return ops::add_and_norm_call(context, entry.hidden, entry.addend, entry.sum,
                                entry.norm.weight.view(), entry.norm.options(), entry.x);
}

void apply(const NormedSum& entry, const ops::Context& context) {
  if (entry.made) return;
  if (entry.addend.bytes() == nullptr) return apply(entry.norm, context, entry.hidden, entry.x);
  context.kernels->add_and_norm(call_of(entry, context), context.stream);
}

}  // namespace motley::model
