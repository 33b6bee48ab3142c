#pragma once

#include <vector>

#include "base/result.h"
#include "lora/files/conventions/builder.h"

namespace motley::lora {

// The three maps of a layer's experts.
struct ExpertSpecs {
  const SiteSpec* gate = nullptr;
  const SiteSpec* up = nullptr;
  const SiteSpec* down = nullptr;

  int experts() const { return gate->experts; }
  std::int64_t hidden() const { return gate->in; }
  std::int64_t intermediate() const { return gate->out; }
};

// The place of row `row` of gate or up in their 2 I fused rows.
struct GateUpRows {
  bool interleaved = false;
  std::int64_t intermediate = 0;

  std::int64_t gate(std::int64_t row) const { return interleaved ? 2 * row : row; }
  std::int64_t up(std::int64_t row) const { return interleaved ? 2 * row + 1 : intermediate + row; }
};

// Sets an expert's factors; setting them twice is an error.
Result<void> put_expert(Builder& builder, const SiteSpec& spec, int expert, const Factors& factors,
                        const Unit::Item& item);

// The rows of gate or up of a fused B.
Matrix take_gate_up_rows(const Matrix& both, const GateUpRows& rows, bool up);

// PEFT's packed parameters, `experts` and `experts.base_layer`.
Result<void> build_packed(Builder& builder, const Units& units);

}  // namespace motley::lora
