#include "moe/problem.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::moe {

std::string to_string(const Problem& problem) {
  return cat(problem.experts, " experts, top ", problem.top_k, ", hidden ", problem.hidden,
             ", intermediate ", problem.intermediate, ", gate_up ", to_string(problem.gate_up),
             ", down ", to_string(problem.down), ", ", name(problem.activation),
             problem.expert_biases ? ", with biases" : "",
             problem.shared_inputs ? "" : ", gate and up with inputs of their own",
             !problem.lora                       ? ""
             : problem.factors == DType::f8_e4m3 ? ", with LoRA in FP8"
                                                 : ", with LoRA",
             problem.exact ? ", f32 compute, " : ", bf16 compute, ",
             problem.device == tensor::DeviceKind::cpu ? "cpu" : "cuda");
}

namespace {
bool gate_and_up_take_inputs_alike(const ExpertWeights& weights) {
  return std::ranges::equal(weights.gate, weights.up,
                            [](const quant::Weight& gate, const quant::Weight& up) {
                              return gate.takes_inputs_like(up);
                            });
}
}  // namespace

Problem problem_of(const ExpertWeights& weights, const ProblemOptions& options) {
  quant::Format gate_up = common_format(weights.gate);
  const quant::Format up = common_format(weights.up);
  gate_up.zero_points = gate_up.zero_points || up.zero_points;
  gate_up.input_order = gate_up.input_order || up.input_order;
  return {
      .gate_up = gate_up,
      .down = common_format(weights.down),
      .shared_inputs = gate_and_up_take_inputs_alike(weights),
      .hidden = weights.hidden,
      .intermediate = weights.intermediate,
      .more_columns = weights.down[0].columns() - weights.intermediate,
      .cut_scales = weights.down_scales.count,
      .experts = weights.experts,
      .top_k = options.top_k,
      .activation = weights.activation,
      .expert_biases = !weights.gate_bias.empty() || !weights.down_bias.empty(),
      .lora = options.lora,
      .factors = options.factors.value_or(options.exact ? DType::f32 : DType::bf16),
      .exact = options.exact,
      .device = options.device,
  };
}

}  // namespace motley::moe
