// The instances of the grouped kernel, one file a weight format.
#pragma once

#include "kernels/cuda/expert_grouped.h"

namespace motley::kernels::cuda::grouped {

struct Instance {
  const void* kernel = nullptr;  // null: there is none
  int threads = 0;
  int rows = 0;
  int stage_k = 0;
  int weight_bytes = 0;  // of a stage
  int inside = 0;        // pairs that its blocks can sort for themselves
};

Instance bf16_instance(const GroupedTiles& tiles, bool lora);
Instance int4_instance(const GroupedTiles& tiles, bool lora);       // groups of 128
Instance int4_fine_instance(const GroupedTiles& tiles, bool lora);  // groups of 32

}  // namespace motley::kernels::cuda::grouped
