// The launch behind the experts that sums those of each token.
#pragma once

#include "base/result.h"
#include "base/stream_handle.h"
#include "kernels/cuda/grouped/layer.cuh"
#include "kernels/elementary.h"

namespace motley::kernels::cuda::grouped {

Result<void> sum_experts(const LayerParams& p, StreamHandle stream);
// With the sum and the norm that come next, where next.add.b stands for what sum_experts() would
// write: the bits of one after the other.
Result<void> sum_experts_and_norm(const LayerParams& p, const AddAndNorm& next,
                                  StreamHandle stream);

}  // namespace motley::kernels::cuda::grouped
