#pragma once

#include <memory>
#include <optional>

#include "model/block.h"
#include "model/config/config.h"
#include "moe/backend.h"
#include "quant/upload.h"

namespace motley::model {

// down(silu(gate x) * up x): a dense block, or a shared expert.
struct DenseBlock final : Block {
  Linear gate, up, down;
  tensor::Buffer gate_up_memory;  // of load_linears

  std::vector<MapGroup> maps() const override { return maps("dense layers"); }
  std::vector<MapGroup> maps(std::string_view part) const;
  std::vector<const Vector*> vectors() const override { return {}; }
  std::vector<const MoeBlock*> moe_blocks() const override { return {}; }
  ValueId append(ValueId x, Builder& pass) const override;
  // Of several ranks each computes a part of the sum. `beside`: a map of x whose product is
  // launched with those of gate and up, or null.
  struct Part {
    ValueId out = ops::no_value;
    ValueId beside = ops::no_value;
  };
  Part append_part(ValueId x, Builder& pass, const Linear* beside = nullptr) const;
};

// Routed experts, and a shared expert that every token uses.
struct MoeBlock final : Block {
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

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override;
  std::vector<const MoeBlock*> moe_blocks() const override { return {this}; }
  ValueId append(ValueId x, Builder& pass) const override;
  ValueId append_part(ValueId x, Builder& pass) const;
};

// A dense block and experts that read the same x; the result is their sum.
struct ParallelBlock final : Block {
  DenseBlock dense;
  MoeBlock experts;

  std::vector<MapGroup> maps() const override;
  std::vector<const Vector*> vectors() const override { return experts.vectors(); }
  std::vector<const MoeBlock*> moe_blocks() const override { return {&experts}; }
  ValueId append(ValueId x, Builder& pass) const override;
};

Result<DenseBlock> load_dense_block(WeightSource& source, const Config& config, std::int32_t layer);

struct BackendChoice {
  std::optional<std::string> forced;  // --experts-backend
  std::optional<DType> factors;       // of adapters; default: f32 if exact, else bf16
};
Result<MoeBlock> load_moe_block(WeightSource& source, const Config& config, std::int32_t layer,
                                const BackendChoice& choice);

}  // namespace motley::model
