#include "model/linear.h"

#include <array>
#include <span>

#include "base/cat.h"
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
      MOTLEY_TRY(linear->weight, source.resident(linear->stored));
    }
  }
  return memory;
}

void apply(std::initializer_list<LinearCall> calls, const ops::Context& context,
           const lora::RowMixes& mixes, const tensor::ConstTensor& x) {
  MOTLEY_CHECK(calls.size() <= most_linear_calls, "as many maps as one call takes");
  Scratch scratch(context);
  std::array<lora::AdaptedLinear, most_linear_calls> parts;
  std::array<ops::Product, most_linear_calls> products;
  std::size_t count = 0;
  for (const auto& [linear, out] : calls) {
    // float32 results are their own accumulators.
    const tensor::Tensor acc =
        out.dtype() == DType::f32 ? out : scratch.take(DType::f32, {x.dim(0), linear.out()});
    products[count] = {&linear.weight, acc};
    parts[count++] = {.site = linear.site, .acc = acc, .bias = linear.bias.data(), .out = out};
  }
  ops::linears(context, x, std::span(products).first(count));
  lora::finish_linears(mixes, x, std::span(parts).first(count), context);
}

void apply(const Linear& linear, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  apply({{linear, out}}, step.context, step.batch.mixes, x);
}

void apply(const Norm& norm, const ops::Context& context, const tensor::ConstTensor& x,
           const tensor::Tensor& out) {
  ops::rms_norm(context, x, norm.weight.view(), norm.options(), out);
}

void apply(const NormedSum& sum, const ops::Context& context) {
  ops::add_and_norm(context, sum.hidden, sum.addend, sum.hidden, sum.norm.weight.view(),
                    sum.norm.options(), sum.x);
}

}  // namespace motley::model
