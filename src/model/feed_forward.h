#pragma once

#include <memory>
#include <optional>

#include "model/config.h"
#include "model/linear.h"
#include "moe/backend.h"
#include "quant/upload.h"

namespace motley::model {

// down(silu(gate x) * up x): a dense block, or a shared expert.
struct DenseBlock {
  Linear gate, up, down;
  tensor::Buffer gate_up_memory;  // of load_linears
};

// Routed experts, and a shared one that every token visits.
struct MoeBlock {
  Linear router;
  Vector correction_bias;
  moe::RouterSpec spec;
  std::unique_ptr<moe::ExpertWeights> experts;  // as they were loaded
  moe::Problem problem;                         // what they ask of a backend
  const moe::Backend* backend = nullptr;
  std::unique_ptr<moe::PreparedExperts> prepared;  // as the backend reads them
  std::optional<DenseBlock> shared;
  std::optional<Linear> shared_gate;
};

Result<DenseBlock> load_dense_block(WeightSource& source, const Config& config, std::int32_t layer);

struct BackendChoice {
  std::optional<std::string> forced;  // --experts-backend
  std::optional<DType> factors;       // of adapters' pages; else f32 if exact, or bf16
};
Result<MoeBlock> load_moe_block(WeightSource& source, const Config& config, std::int32_t layer,
                                const BackendChoice& choice);

std::size_t scratch_bytes(const DenseBlock& block, std::int64_t rows);
std::size_t scratch_bytes(const MoeBlock& block, std::int64_t rows);

// entry.x [R, hidden] -> out [R, hidden], with what leads into the block; out may be entry.addend.
// `next`, with out as its addend, leads into the block behind: it may be made in place of out.
// Null: there is none.
void apply(const DenseBlock& block, const Step& step, const NormedSum& entry,
           const tensor::Tensor& out, NormedSum* next);
void apply(const MoeBlock& block, const Step& step, const NormedSum& entry,
           const tensor::Tensor& out, NormedSum* next);

}  // namespace motley::model
