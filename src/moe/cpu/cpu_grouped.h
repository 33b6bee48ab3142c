#pragma once

#include "moe/cpu/cpu_backend.h"

namespace motley::moe {

// Tiles over experts, rows and outputs, run by the threads of the context's pool.
class CpuGrouped final : public CpuBackend {
 public:
  std::string_view name() const override { return "cpu_grouped"; }
  std::size_t scratch_bytes(const Problem& problem, std::int64_t tokens) const override;
  std::span<const ExpertKernel> kernels() const override;
};

}  // namespace motley::moe
