// The instances of the grouped kernel: a file for each weight format, one more for pages of FP8.
#pragma once

#include <cstdint>

#include "kernels/cuda/expert_grouped.h"

namespace motley::kernels::cuda::grouped {

// What the adapters of a batch are kept in.
enum class Pages : std::uint8_t { none, bf16, f8 };

struct Instance {
  const void* kernel = nullptr;  // null: there is none
  int threads = 0;
  int rows = 0;
  int warpgroups = 0;  // of consumers
  int stage_k = 0;
  int weight_bytes = 0;  // of a stage
  int inside = 0;        // pairs that its blocks can sort for themselves
};

// `scales`: of int4, in 128 k.
template <ExpertFormat format, int scales, Pages pages>
Instance find_instance(const GroupedTiles& tiles);

}  // namespace motley::kernels::cuda::grouped
