#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "moe/experts.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::moe {

// What a backend must support for a layer, known at load. The number of rows is not part of it: a
// backend adapts its tiles to the rows.
struct Problem {
  quant::Format gate_up;
  quant::Format down;
  // Gate and up of an expert read the same inputs: in one order, rounded with one scale.
  bool shared_inputs = true;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t more_columns = 0;  // of down than I: an order of inputs with columns that mean zero
  std::int64_t cut_scales = 0;    // of a row of h, as ExpertWeights::down_scales counts them
  int experts = 0;
  int top_k = 0;
  ActivationKind activation = ActivationKind::silu_mul;
  bool expert_biases = false;
  bool lora = false;           // there may be adapters on these experts
  DType factors = DType::f32;  // of adapters: f32, bf16 or f8_e4m3
  bool exact = false;          // float32 throughout; else bf16 with float32 sums
  tensor::DeviceKind device = tensor::DeviceKind::cpu;
};

// "128 experts, top 8, hidden 2048, intermediate 768, gate_up bf16, down bf16, silu_mul, with LoRA,
// bf16 compute, cpu"
std::string to_string(const Problem& problem);

// Options that the weights do not determine.
struct ProblemOptions {
  int top_k = 0;
  bool lora = false;
  bool exact = false;
  std::optional<DType> factors = std::nullopt;  // default: f32 if exact, else bf16
  tensor::DeviceKind device = tensor::DeviceKind::cpu;
};

// The weights must have passed validate().
Problem problem_of(const ExpertWeights& weights, const ProblemOptions& options);

}  // namespace motley::moe
