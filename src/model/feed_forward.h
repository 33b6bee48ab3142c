#pragma once

#include <memory>
#include <optional>

#include "model/config/config.h"
#include "model/forward/builder.h"
#include "model/linear.h"
#include "moe/backend.h"
#include "quant/upload.h"

namespace motley::model {

// down(silu(gate x) * up x): a dense block, or a shared expert.
struct DenseBlock {
  Linear gate, up, down;
  tensor::Buffer gate_up_memory;  // of load_linears
};

// Routed experts, and a shared expert that every token uses.
struct MoeBlock {
  Linear router;
  Vector correction_bias;
  moe::RouterSpec spec;
  std::unique_ptr<moe::ExpertWeights> experts;  // as loaded; this rank's
  // The router's number of the first of them, where other ranks have others.
  std::optional<std::int32_t> first_expert;
  moe::Problem problem;  // the problem for which a backend is selected
  const moe::Backend* backend = nullptr;
  std::unique_ptr<moe::PreparedExperts> prepared;  // in the backend's layout
  std::optional<DenseBlock> shared;
  std::optional<Linear> shared_gate;
};

Result<DenseBlock> load_dense_block(WeightSource& source, const Config& config, std::int32_t layer);

struct BackendChoice {
  std::optional<std::string> forced;  // --experts-backend
  std::optional<DType> factors;       // of adapters; default: f32 if exact, else bf16
};
Result<MoeBlock> load_moe_block(WeightSource& source, const Config& config, std::int32_t layer,
                                const BackendChoice& choice);

// x [R, hidden] -> the block's result [R, hidden].
ValueId append(const DenseBlock& block, ValueId x, Builder& pass);
ValueId append(const MoeBlock& block, ValueId x, Builder& pass);

}  // namespace motley::model
