// The layer in float64 on the host, for sampled tokens and columns: no rounding between the steps.
#pragma once

#include <cmath>
#include <thread>
#include <vector>

#include "layer.cuh"
#include "weights.cuh"

namespace expert_layer {

struct WeightSeeds {
  Format format;
  uint64_t gate_up, down;
};

// The adapter of a token: seeds of its A and B matrices; index -1: none.
struct AdapterSeeds {
  int index;
  float scale;
  uint64_t gate_up_a, down_a, gate_up_b, down_b;
};

inline float round_bf16(float v) { return __bfloat162float(__float2bfloat16(v)); }

// Weight `row` (over all experts' image rows of `rows` each), column k.
inline double weight_at(Format format, uint64_t seed, size_t row, int k, int cols) {
  if (format == Format::kBf16) return random_value(seed, row * cols + k, kWeightUnit);
  return random_int4(seed, row * cols + k) *
         static_cast<double>(round_bf16(random_scale(seed, row * (cols / kGroup) + k / kGroup)));
}

// out[c] = the layer's output of a token at columns[c]; x: its kHidden inputs.
inline std::vector<double> reference_token(const WeightSeeds& w, const std::vector<double>& x,
                                           const int* experts, const float* gains,
                                           const std::vector<int>& columns,
                                           const AdapterSeeds& lora) {
  std::vector<double> out(columns.size(), 0.0);
  for (int j = 0; j < kTopK; j++) {
    std::vector<double> act(kInner), rank(2 * kRank, 0.0), down_rank(kRank, 0.0);
    size_t matrix = static_cast<size_t>(lora.index) * kExperts + experts[j];
    if (lora.index >= 0)
      for (int r = 0; r < 2 * kRank; r++)
        for (int k = 0; k < kHidden; k++)
          rank[r] +=
              lora.scale * x[k] *
              random_value(lora.gate_up_a, (matrix * 2 * kRank + r) * kHidden + k, kWeightUnit);
    for (int i = 0; i < kInner; i++) {
      size_t row = static_cast<size_t>(experts[j]) * kGateUpRows + gate_row(i);
      double gate = 0, up = 0;
      for (int k = 0; k < kHidden; k++) {
        gate += x[k] * weight_at(w.format, w.gate_up, row, k, kHidden);
        up += x[k] * weight_at(w.format, w.gate_up, row + 8, k, kHidden);
      }
      if (lora.index >= 0)
        for (int r = 0; r < kRank; r++) {
          gate += rank[r] * lora_b_value(lora.gate_up_b, matrix, kGateUpRows, gate_row(i), r);
          up += rank[kRank + r] *
                lora_b_value(lora.gate_up_b, matrix, kGateUpRows, gate_row(i) + 8, r);
        }
      act[i] = gate / (1 + std::exp(-gate)) * up;
    }
    if (lora.index >= 0)
      for (int r = 0; r < kRank; r++)
        for (int k = 0; k < kInner; k++)
          down_rank[r] += lora.scale * act[k] *
                          random_value(lora.down_a, (matrix * kRank + r) * kInner + k, kWeightUnit);
    for (size_t c = 0; c < columns.size(); c++) {
      size_t row = static_cast<size_t>(experts[j]) * kHidden + columns[c];
      double sum = 0;
      for (int k = 0; k < kInner; k++) sum += act[k] * weight_at(w.format, w.down, row, k, kInner);
      if (lora.index >= 0)
        for (int r = 0; r < kRank; r++)
          sum += down_rank[r] * lora_b_value(lora.down_b, matrix, kHidden, columns[c], r);
      out[c] += gains[j] * sum;
    }
  }
  return out;
}

}  // namespace expert_layer
