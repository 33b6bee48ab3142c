#pragma once

#include "moe/cpu/cpu_backend.h"

namespace motley::moe {

// The specification: plain loops in float32 over decoded weights, on one thread. For tests, and to
// check whether a strange answer is due to a faster backend.
class Reference final : public CpuBackend {
 public:
  std::string_view name() const override { return "reference"; }
  // Not of formats that round inputs.
  Support supports(const Problem& problem) const override;
  std::size_t scratch_bytes(const Problem& problem, std::int64_t tokens) const override;
  std::span<const ExpertKernel> kernels() const override;
};

}  // namespace motley::moe
