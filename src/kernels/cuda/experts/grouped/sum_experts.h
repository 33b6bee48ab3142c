// The launch behind the experts that sums those of each token.
#pragma once

#include "base/system/stream_handle.h"
#include "kernels/cuda/experts/grouped/layer.cuh"
#include "kernels/elementary.h"

namespace motley::kernels::cuda::grouped {

void sum_experts(const LayerParams& p, StreamHandle stream);
// With what comes next, where next.rows.add.b stands for what sum_experts() would write: the bits
// of one after the other.
void sum_experts_and_norm(const LayerParams& p, const AfterExperts& next, StreamHandle stream);

}  // namespace motley::kernels::cuda::grouped
