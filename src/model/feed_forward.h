#pragma once

#include <optional>

#include "model/config.h"
#include "model/linear.h"
#include "moe/backend.h"

namespace motley::model {

// down(silu(gate x) * up x): a dense block, or a shared expert.
struct DenseBlock {
  Linear gate, up, down;
};

// Routed experts, and a shared one that every token visits.
struct MoeBlock {
  Linear router;
  std::vector<float> correction_bias;
  moe::RouterSpec spec;
  moe::ExpertWeights experts;
  const moe::Backend* backend = nullptr;
  std::optional<DenseBlock> shared;
  std::optional<Linear> shared_gate;
};

Result<DenseBlock> load_dense_block(WeightSource& source, const Config& config, std::int32_t layer);

struct BackendChoice {
  bool exact = true;
  std::optional<std::string> forced;  // --experts-backend
};
Result<MoeBlock> load_moe_block(WeightSource& source, const Config& config, std::int32_t layer,
                                const BackendChoice& choice);

std::size_t scratch_bytes(const DenseBlock& block, std::int64_t rows);
std::size_t scratch_bytes(const MoeBlock& block, std::int64_t rows, bool exact);

// x [R, hidden] -> out [R, hidden].
void apply(const DenseBlock& block, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out);
void apply(const MoeBlock& block, const Step& step, const tensor::ConstTensor& x,
           const tensor::Tensor& out);

}  // namespace motley::model
