#include "moe/reference.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "moe/activation.h"
#include "moe/cpu/cpu_workspace.h"
#include "tensor/arena.h"
#include "tensor/convert.h"

namespace motley::moe {
namespace {

// [rows, columns] in float32, in scratch.
struct Matrix {
  tensor::Tensor tensor;
  std::int64_t columns = 0;

  std::span<float> row(std::int64_t index) const {
    return {tensor.data<float>() + index * columns, static_cast<std::size_t>(columns)};
  }
};

Matrix take(const ops::Context& context, std::int64_t rows, std::int64_t columns) {
  return {context.scratch->allocate(DType::f32, {rows, columns}).value(), columns};
}

float dot(std::span<const float> a, std::span<const float> b) {
  float sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

// y[place] = weights[expert of place] x[row_of(place)] for every pair that has an expert.
template <class RowOf>
void multiply(const plan::Plan& plan, const std::vector<quant::Weight>& weights, const Matrix& x,
              RowOf row_of, std::span<float> decoded, const Matrix& y) {
  const auto begin = plan.expert_begin();
  for (std::size_t expert = 0; expert < weights.size(); ++expert) {
    if (begin[expert] == begin[expert + 1]) continue;
    const quant::Weight& weight = weights[expert];
    const auto row = decoded.first(static_cast<std::size_t>(weight.in()));
    for (std::int64_t o = 0; o < weight.out(); ++o) {
      weight.decode(o, o + 1, row.data());
      for (std::int64_t place = begin[expert]; place < begin[expert + 1]; ++place)
        y.row(place)[static_cast<std::size_t>(o)] = dot(x.row(row_of(place)), row);
    }
  }
}

// y[place] += bias[expert of place].
void add_bias(const plan::Plan& plan, const std::vector<float>& bias, const Matrix& y) {
  if (bias.empty()) return;
  for (const plan::Segment& segment : plan.segments()) {
    const auto width = static_cast<std::size_t>(y.columns);
    const auto own = std::span(bias).subspan(static_cast<std::size_t>(segment.expert) * width);
    for (std::int64_t place = segment.begin; place < segment.end; ++place)
      for (std::size_t i = 0; i < width; ++i) y.row(place)[i] += own[i];
  }
}

}  // namespace

Support Reference::supports(const Problem& problem) const {
  for (const quant::Format* format : {&problem.gate_up, &problem.down}) {
    if (format->inputs != kernels::InputRounding::Scales::none)
      return Support::no("it does not quantise activations (--activations exact leaves them)");
  }
  return CpuBackend::supports(problem);
}

std::size_t Reference::scratch_bytes(const Problem& problem, std::int64_t tokens) const {
  const std::int64_t pairs = tokens * problem.top_k;
  const std::int64_t numbers = tokens * problem.hidden + pairs * 3 * problem.intermediate +
                               pairs * problem.hidden +
                               std::max(problem.hidden, problem.intermediate);
  const std::int64_t rounded = problem.exact ? 0 : pairs * problem.intermediate * 2;
  constexpr std::size_t max_tensors = 7;
  return static_cast<std::size_t>(numbers * 4 + rounded) +
         max_tensors * tensor::Allocator::alignment;
}

namespace {

void run(const ExpertCall& call, const ExpertKernel&) {
  const plan::Plan& plan = CpuWorkspace::build_plan(call);
  const ExpertWeights& weights = call.experts.weights();
  const ops::Context& context = call.context;
  const std::size_t mark = context.scratch->mark();
  const std::int64_t pairs = plan.pairs();
  const std::int64_t longest = std::max(weights.hidden, weights.intermediate);
  const std::span<float> decoded = take(context, 1, longest).row(0);
  const auto token_of = [&](std::int64_t place) {
    return std::int64_t{plan.tokens_in_order()[static_cast<std::size_t>(place)]};
  };

  const Matrix x = take(context, plan.tokens(), weights.hidden);
  const std::span<float> all_x(x.tensor.data<float>(), static_cast<std::size_t>(call.x.elements()));
  tensor::widen(call.x.dtype(), call.x.bytes(), 0, all_x);

  const Matrix gate = take(context, pairs, weights.intermediate);
  const Matrix up = take(context, pairs, weights.intermediate);
  multiply(plan, weights.gate, x, token_of, decoded, gate);
  multiply(plan, weights.up, x, token_of, decoded, up);
  if (call.deltas != nullptr)
    lora::add_gate_up(*call.deltas, plan, call.x, gate.tensor, up.tensor, context);
  add_bias(plan, weights.gate_bias, gate);
  add_bias(plan, weights.up_bias, up);

  const Matrix h = take(context, pairs, weights.intermediate);
  const DType h_type = context.exact ? DType::f32 : DType::bf16;
  const tensor::Tensor rounded_h =
      context.exact ? h.tensor : context.scratch->allocate(h_type, h.tensor.shape()).value();
  for (std::int64_t place = 0; place < plan.routed_pairs(); ++place) {
    const std::span<float> row = h.row(place);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = activate(weights, gate.row(place)[i], up.row(place)[i]);
    if (context.exact) continue;
    std::byte* const to = rounded_h.select(place).bytes();
    tensor::narrow(h_type, row, to);
    tensor::widen(h_type, to, 0, row);
  }

  const Matrix down = take(context, pairs, weights.hidden);
  const auto own = [](std::int64_t place) { return place; };
  multiply(plan, weights.down, h, own, decoded, down);
  if (call.deltas != nullptr) lora::add_down(*call.deltas, plan, rounded_h, down.tensor, context);
  add_bias(plan, weights.down_bias, down);

  const std::int64_t slots = plan.experts_per_token();
  const float* const routing_weights = call.routing_weights.data<float>();
  const auto hidden = static_cast<std::size_t>(weights.hidden);
  for (std::int64_t token = 0; token < plan.tokens(); ++token) {
    const std::span<float> out(call.out.data<float>() + token * weights.hidden, hidden);
    std::ranges::fill(out, 0.0F);
    for (std::int64_t pair = token * slots; pair < (token + 1) * slots; ++pair) {
      const std::int64_t place = plan.places()[static_cast<std::size_t>(pair)];
      if (place >= plan.routed_pairs()) continue;
      for (std::size_t i = 0; i < hidden; ++i) out[i] += routing_weights[pair] * down.row(place)[i];
    }
  }
  context.scratch->rewind(mark);
}

constexpr std::array<ExpertKernel, 1> all_kernels{
    {{.info = {.name = "reference",
               .architecture = kernels::Architecture::cpu,
               .arithmetic = {"float32, k ascending"}},
      .run = run}}};

}  // namespace

std::span<const ExpertKernel> Reference::kernels() const { return all_kernels; }

}  // namespace motley::moe
