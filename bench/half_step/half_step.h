// Launches half a step.
#pragma once

#include <cuda_runtime.h>

#include "shape.h"

namespace motley::bench::half_step {

enum class ExpertFormat { bf16, int4 };
enum class LaunchMode { plain, cooperative, programmatic };

struct Instance {
  ExpertFormat format;
  int rows;  // 1 or max_rows
};

// Slots that fit into a block's shared memory.
int slots_of(const Instance& instance);
// Must be called once before launches.
cudaError_t prepare();
cudaError_t launch(const Instance& instance, const HalfStep& step, int blocks, LaunchMode mode,
                   cudaStream_t stream);

}  // namespace motley::bench::half_step
