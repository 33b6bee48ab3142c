// The launch that sums the experts of each token.
#pragma once

#include "base/system/stream_handle.h"
#include "kernels/cuda/experts/grouped/layer.cuh"
#include "kernels/elementary.h"

namespace motley::kernels::cuda::grouped {

void sum_experts(const LayerParams& p, StreamHandle stream);
// The sum and the op that follows: next.rows.add.b stands for the output of sum_experts(). The bits
// are those of one after the other.
void sum_experts_and_norm(const LayerParams& p, const AfterExperts& next, StreamHandle stream);

}  // namespace motley::kernels::cuda::grouped
