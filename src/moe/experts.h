#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/cut_scales.h"
#include "quant/weight.h"

namespace motley::moe {

enum class ActivationKind : std::uint8_t {
  silu_mul,        // h = silu(gate) up
  clamped_swiglu,  // g = min(gate, limit), u = clamp(up, -limit, limit), h = (u + 1) g sigma(alpha
                   // g)
};

std::string_view name(ActivationKind kind);

// The routed experts of one layer. Fused or interleaved gate and up are separated at load: row i of
// gate and row i of up belong together.
struct ExpertWeights {
  int experts = 0;
  std::int64_t hidden = 0;        // H
  std::int64_t intermediate = 0;  // I
  // By expert: gate and up [I, H], down [H, I].
  std::vector<quant::Weight> gate;
  std::vector<quant::Weight> up;
  std::vector<quant::Weight> down;
  quant::CutScales down_scales;  // of down's inputs, where ranks cut them
  // Empty: none. gate and up have biases together.
  std::vector<float> gate_bias;  // [E * I]
  std::vector<float> up_bias;    // [E * I]
  std::vector<float> down_bias;  // [E * H]
  ActivationKind activation = ActivationKind::silu_mul;
  float swiglu_limit = 7.0F;
  float swiglu_alpha = 1.702F;
};

// The format of weights that validate() takes as alike: it has zero points, or an order of inputs,
// if any of them has.
quant::Format common_format(std::span<const quant::Weight> weights);

// Checks that every expert is present with the layer's sizes; gate and up have one format, down has
// one. Single experts may lack zero points or an order of inputs: readers drop those without
// effect.
Result<void> validate(const ExpertWeights& weights);

}  // namespace motley::moe
