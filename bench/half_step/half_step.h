// Launches half a step.
#pragma once

#include <cuda_runtime.h>

#include "shape.h"

namespace motley::bench::HALF_STEP_NAMESPACE {

enum class ExpertFormat { bf16, int4 };
enum class LaunchMode { plain, cooperative, programmatic };

struct Instance {
  ExpertFormat format;
  int rows;  // 1 or max_rows
};

// Rungs that don't compute have no `whole`, and qwen3.5's shape neither.
bool has_design(Design design, bool computes);
// Slots that fit into a block's shared memory.
int slots_of(const Instance& instance, Design design);
// Must be called once before launches.
cudaError_t prepare();
cudaError_t launch(const Instance& instance, Design design, const HalfStep& step, int blocks,
                   LaunchMode mode, cudaStream_t stream);

}  // namespace motley::bench::HALF_STEP_NAMESPACE
